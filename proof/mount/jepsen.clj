;; Runs the model, generator and client of Jepsen's local-fs on a mount that is killed now and then: see
;; `jepsen`.
;;
;; local-fs is built on Jepsen itself, which is made for clusters. The few parts of it that the files below
;; need are here; a history has one client, whose calls follow each other.

(ns clojure.tools.logging)
(defmacro info [& _])
(defmacro warn [& _])

(ns jepsen.util (:require [clojure.pprint :as pp]))
(defn name+ [x] (if (instance? clojure.lang.Named x) (name x) (str x)))
(defn pprint-str [x] (with-out-str (pp/pprint x)))
(defmacro timeout [millis otherwise & body]
  `(let [result# (deref (future ~@body) ~millis ::late)]
     (if (= ::late result#) ~otherwise result#)))

(ns jepsen.client)
(defprotocol Client
  (open! [client test node]) (setup! [client test]) (invoke! [client test op])
  (teardown! [client test]) (close! [client test]))

(ns jepsen.checker)
(defprotocol Checker (check [checker test history opts]))

(ns jepsen.generator)
(ns jepsen.nemesis)
(ns jepsen.store)
(defmacro with-out-file [_ _ & body] `(do ~@body))

(ns knossos.op)
(defn invoke? [op] (= :invoke (:type op)))

(ns dom-top.core (:require [clojure.walk :as walk]))
(defmacro loopr
  "A loop over one sequence: `recur` takes the accumulators only, `final` is the result at its end."
  [accumulators [x sequence] body & [final]]
  (let [names (vec (take-nth 2 accumulators))
        final (or final (first names))
        body  (walk/postwalk #(if (and (seq? %) (= 'recur (first %))) [::again (vec (rest %))] %) body)]
    `(loop [items# (seq ~sequence), ~names ~(vec (take-nth 2 (rest accumulators)))]
       (if-let [[~x & more#] items#]
         (let [result# ~body]
           (if (and (vector? result#) (= ::again (first result#)))
             (recur more# (second result#))
             result#))
         ~final))))

(ns run
  (:require [clojure.java.io :as io]
            [clojure.test.check.generators :as g]
            [jepsen.checker :as checker]
            [jepsen.local-fs.db.core :as db]
            [jepsen.local-fs.shell.checker :as model]
            [jepsen.local-fs.shell.client :as client]
            [jepsen.local-fs.shell.workload :as workload])
  (:import (java.lang ProcessBuilder$Redirect)
           (java.util Random)))

(def env #(or (System/getenv %) (throw (Exception. (str % " is not set")))))
(def mnt (env "MNT"))
(def mode (env "MODE"))
(def histories (parse-long (env "HISTORIES")))
(def calls 60)
(def kills 2)
;; Of the generator: data of up to 200 bytes.
(def size 20000)

(defn command [words]
  (let [log (ProcessBuilder$Redirect/appendTo (io/file (env "LOG")))]
    (.start (doto (ProcessBuilder. ^java.util.List words)
              (.redirectErrorStream true)
              (.redirectOutput log)))))
(defn done? [& words] (zero? (.waitFor ^Process (command words))))

(defn mounted []
  (let [process (command [(env "CENOTE") "--disks" (env "DISKS") "mount" "jepsen" mnt])]
    (loop [looks 0]
      (cond (done? "mountpoint" "-q" mnt) process
            (or (> looks 600) (not (.isAlive process))) (throw (Exception. "the pool can't be mounted"))
            :else (do (Thread/sleep 50) (recur (inc looks)))))))

(defrecord Mount [process]
  db/LoseUnfsyncedWrites
  (lose-unfsynced-writes! [_]
    (when (= mode "standard") (assert (done? "sync" "-f" mnt)))
    (.destroyForcibly ^Process @process)
    (.waitFor ^Process @process)
    (assert (done? "umount" "-l" mnt))
    (reset! process (mounted))))

(defn operations
  "Calls, with kills among them."
  [seed]
  (let [random (Random. seed)
        drawn  (g/generate (g/vector (workload/fs-op-gen {:dont #{:lose-unfsynced-writes}}) calls) size seed)
        places (set (repeatedly kills #(.nextInt random calls)))]
    (mapcat (fn [at op] (if (places at) [{:f :lose-unfsynced-writes} op] [op])) (range) drawn)))

(defn history
  "Performs operations. Kills lose nothing that may be lost, so the model does not know of them."
  [mount dir operations]
  (vec (mapcat (fn [op]
                 (let [made (client/fs-op! dir mount (assoc op :type :invoke, :process 0, :time 0, :index 0))]
                   (when-not (= :lose-unfsynced-writes (:f op))
                     [(assoc op :type :invoke, :process 0, :time 0, :index 0) made])))
               operations)))

(let [mount (->Mount (atom (mounted)))
      first-seed (parse-long (env "SEED"))
      counts (atom {})]
  (doseq [seed (range first-seed (+ first-seed histories))]
    (let [dir (str mnt "/" seed)]
      (.mkdir (io/file dir))
      (let [made   (history mount dir (operations seed))
            result (checker/check (model/pure-checker) {} made {})]
        (swap! counts (partial merge-with +) (frequencies (map :type made)))
        (when-not (:valid? result)
          (model/print-fs-test result)
          (println "WRONG: seed" seed)
          (System/exit 1)))
      (assert (done? "rm" "-r" dir)))
    (when (zero? (mod (inc (- seed first-seed)) 50))
      (println (inc (- seed first-seed)) "histories," (:ok @counts 0) "calls succeeded,"
               (:fail @counts 0) "failed as they should")
      (flush)))
  (assert (done? "umount" mnt))
  (.waitFor ^Process @(:process mount))
  (shutdown-agents)
  (System/exit 0))
