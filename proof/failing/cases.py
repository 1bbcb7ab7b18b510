"""Devices of a served pool fail, while clients work: see `run`.

    cases.py WORDS      only cases with these words

Environment: CENOTE, WORK (a folder). Exit status 1 if anything was wrong.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../together"))
from disks import Gone, Nbd  # noqa: E402

CENOTE, WORK = os.environ["CENOTE"], os.environ["WORK"]
HTTP = "127.0.0.1:13270"
BLOCK = 8192
# A command that looks takes no longer, whatever devices do.
LOOK_S = 10
FAULT_S = float(os.environ.get("FAULT_S", 8))
# Layout: disks, their words, the disks that may fail, all of a vdev that matters.
LAYOUTS = {
    "single": (1, "{0}", [], [0]),
    "mirror": (2, "mirror {0} {1}", [1], [0, 1]),
    "raidz1": (3, "raidz1 {0} {1} {2}", [1], [0, 1]),
    "draid1": (4, "draid1:2d:4c:1s {0} {1} {2} {3}", [1], [0, 1]),
    "special": (4, "mirror {0} {1} special mirror {2} {3}", [3], [2, 3]),
    "log": (3, "mirror {0} {1} log {2}", [2], [0, 1]),
}
ALL = "read,write,flush"
# Fault: the options of `cenote inject`; whether bytes that were acknowledged may be lost beyond redundancy.
FAULTS = {
    "eio": (["--error", "write"], False),
    "flush": (["--error", "flush"], False),
    "gone": (["--error", ALL], False),
    "enospc": (None, False),
    "hang": (["--hang", "write,flush"], False),
    "slow": (["--delay", "300"], False),
    "wrong": (["--corrupt", "--sectors", "2"], True),
    "torn": (["--torn-writes", "--sectors", "2"], True),
    "lying": (["--lost-writes", "--sectors", "2"], True),
    "stale": (None, False),
}
# What is never served beyond redundancy: the data is lost, not the device. A disk that was away is within it.
WITHIN_ONLY = {"stale", "slow"}


def say(text):
    print(time.strftime("%T"), text, flush=True)


class Case:
    def __init__(self, layout, fault, beyond, mode, seed):
        self.name = f"{layout} {fault} {'beyond' if beyond else 'within'} {mode}"
        self.layout, self.fault, self.beyond, self.mode, self.seed = layout, fault, beyond, mode, seed
        self.work = f"{WORK}/case"
        self.wrong, self.slowest = [], {}
        self.stop, self.running = threading.Event(), []
        self.acked, self.maybe, self.errors = {}, {}, {}
        self.since = {}
        self.may_lose = beyond and FAULTS[fault][1]

    def is_wrong(self, text):
        if text not in self.wrong:
            self.wrong.append(text)
            say(f"WRONG: {self.name}: {text[:600]}")

    def run(self, *words, most=120):
        began = time.monotonic()
        try:
            done = subprocess.run([CENOTE, *words], env=self.env, capture_output=True, text=True, timeout=most,
                                  stdin=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired:
            self.is_wrong(f"{' '.join(words)}: no end after {most} s")
            return None, ""
        took = time.monotonic() - began
        if took > LOOK_S + 2:
            self.is_wrong(f"{' '.join(words)}: took {took:.1f} s")
        text = done.stdout + done.stderr
        if "panicked" in text:
            self.is_wrong(text)
        return done.returncode, text

    def must(self, *words):
        status, text = self.run(*words)
        if status != 0:
            raise SystemExit(f"{self.name}: {' '.join(words)}: {text}")

    def start(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.env["CENOTE_SOCKET"])
        words = ["serve", "-d", self.disks, "--nbd", f"unix:{self.work}/nbd", "--http", HTTP]
        self.daemon = subprocess.Popen([CENOTE, *words], env=self.env, stdout=self.log, stderr=self.log,
                                       stdin=subprocess.DEVNULL)
        for _ in range(600):
            if os.path.exists(self.env["CENOTE_SOCKET"]) and self.run("zpool", "list")[0] == 0:
                return
            time.sleep(0.05)
        raise SystemExit("the daemon does not start")

    def end_daemon(self):
        began = time.monotonic()
        self.daemon.send_signal(signal.SIGTERM)
        try:
            self.daemon.wait(60)
        except subprocess.TimeoutExpired:
            self.is_wrong("SIGTERM: no end after 60 s")
            self.daemon.kill()
        if time.monotonic() - began > 15:
            self.is_wrong(f"SIGTERM took {time.monotonic() - began:.1f} s")
        self.unmount()

    def unmount(self):
        for line in reversed(open("/proc/mounts").read().splitlines()):
            if line.split()[1].startswith(f"{self.work}/mnt"):
                subprocess.run(["umount", "-l", line.split()[1]], check=False)

    # Clients

    def guarded(self, name, step):
        """Calls `step` until the end; notes errors, and since when it waits."""
        while not self.stop.is_set():
            self.since[name] = time.monotonic()
            try:
                step()
            except (OSError, Gone) as error:
                key = f"{name.split()[0]}: {getattr(error, 'strerror', None) or error}"
                self.errors[key] = self.errors.get(key, 0) + 1
                time.sleep(0.1)
            self.since.pop(name, None)

    def write_file(self, rng, number):
        name, data = f"w{number}-{rng.randrange(30)}", rng.randbytes(rng.choice([100, 4096, 70000, 300000]))
        self.maybe.setdefault(name, []).append(data)
        fd = os.open(f"{self.mnt}/{name}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(f"{self.mnt}/{name}.new", f"{self.mnt}/{name}")
        fd = os.open(self.mnt, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        self.acked[name], self.maybe[name] = data, []

    def read_file(self, rng):
        names = sorted(key for key in list(self.acked) if isinstance(key, str))
        if not names:
            return time.sleep(0.1)
        name = rng.choice(names)
        allowed = [self.acked[name], *self.maybe.get(name, [])]
        with open(f"{self.mnt}/{name}", "rb") as file:
            data = file.read()
        if data not in allowed + [self.acked[name], *self.maybe.get(name, [])]:
            self.is_wrong(f"{name}: other content is read")
        return None

    def write_block(self, rng):
        if not self.nbd:
            self.nbd = Nbd(f"{self.work}/nbd", "tank/v")
        number, data = rng.randrange(2048), rng.randbytes(BLOCK)
        self.maybe.setdefault(number, []).append(data)
        try:
            self.nbd.write(number * BLOCK, data)
        except Gone:
            self.nbd.close(False)
            self.nbd = None
            raise
        self.acked[number], self.maybe[number] = data, []

    def clients(self):
        rng = [random.Random(f"{self.seed}:{i}") for i in range(5)]
        self.nbd = None
        steps = {f"write {i}": (lambda i=i: self.write_file(rng[i], i)) for i in range(3)}
        steps["read"] = lambda: self.read_file(rng[3])
        steps["nbd"] = lambda: self.write_block(rng[4])
        return [threading.Thread(target=self.guarded, args=(name, step), daemon=True) for name, step in steps.items()]

    # The case

    def inject(self, disks):
        options = FAULTS[self.fault][0]
        if self.fault == "enospc":
            room = os.statvfs(self.disks)
            with open(f"{self.disks}/ballast", "wb") as ballast:
                with contextlib.suppress(OSError):
                    while True:
                        ballast.write(b"b" * min(1 << 20, max(4096, room.f_bfree * 4096)))
        elif self.fault == "stale":
            for disk in disks:
                self.must("zpool", "offline", "tank", self.paths[disk])
        else:
            for disk in disks:
                self.must("inject", "tank", self.paths[disk], *options)

    def clear(self, disks):
        if self.fault == "enospc":
            os.unlink(f"{self.disks}/ballast")
        elif self.fault == "stale":
            for disk in disks:
                self.must("zpool", "online", "tank", self.paths[disk])
        else:
            self.must("inject", "--clear", "tank")

    def look(self, is_suspended):
        """Everything that looks answers, and says what is so."""
        status, text = self.run("zpool", "status", "tank", most=LOOK_S * 2)
        _, health = self.run("zpool", "list", "-H", "-o", "health", "tank", most=LOOK_S * 2)
        self.run("zfs", "list", "-H", most=LOOK_S * 2)
        self.run("zpool", "events", most=LOOK_S * 2)
        try:
            token = open(f"{self.work}/http-token").read().split()[-1]
            ask = urllib.request.Request(f"http://{HTTP}/metrics", headers={"Authorization": f"Bearer {token}"})
            metrics = urllib.request.urlopen(ask, timeout=LOOK_S).read().decode()
        except OSError as error:
            metrics = ""
            self.is_wrong(f"metrics: {error}")
        if is_suspended is None:
            return
        for what, says in [("status", "SUSPENDED" in text), ("list", "SUSPENDED" in health),
                           ("metrics", any(line.startswith("cenote_pool_suspended") and line.endswith(" 1") for line in metrics.splitlines()))]:
            if says != is_suspended:
                self.is_wrong(f"{what} says {'that' if says else 'not that'} the pool is suspended: {text if what == 'status' else health}")

    def check(self, where):
        lost, unreadable = [], 0
        try:
            reader = Nbd(f"{self.work}/nbd", "tank/v")
        except Gone as error:
            # All of it may be lost, and so the volume.
            if not self.may_lose:
                self.is_wrong(f"{where}: the volume: {error}")
            reader = None
        for key, data in sorted(self.acked.items(), key=str):
            allowed = [data, *self.maybe.get(key, [])]
            try:
                if isinstance(key, str):
                    with open(f"{self.mnt}/{key}", "rb") as file:
                        found = file.read()
                elif reader:
                    found = reader.read(key * BLOCK, BLOCK)
                else:
                    continue
            except (OSError, Gone) as error:
                unreadable += 1
                if not self.may_lose:
                    lost.append(f"{key}: {error}")
                continue
            if found not in allowed:
                lost.append(f"{key}: {len(found)} bytes of other content")
        if lost:
            self.is_wrong(f"{where}: {len(lost)} of {len(self.acked)} acknowledged: {lost[:3]}")
        if reader:
            reader.close(True)
        return unreadable

    def go(self):
        count, words, within, all_of = LAYOUTS[self.layout]
        disks = all_of if self.beyond else within
        shutil.rmtree(self.work, ignore_errors=True)
        self.disks = f"{self.work}/disks"
        os.makedirs(self.disks)
        if self.fault == "enospc":
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600m", "none", self.disks], check=True)
        self.paths = [f"{self.disks}/d{i}" for i in range(count)]
        for path in self.paths:
            with open(path, "wb") as disk:
                disk.truncate(512 << 20)
        self.env = dict(os.environ, CENOTE_SOCKET=f"{self.work}/socket")
        self.log = open(f"{self.work}/daemon.log", "ab")
        self.mnt = f"{self.work}/mnt"
        self.start()
        self.must("zpool", "create", "-o", f"failmode={self.mode}", "-m", self.mnt, "tank",
                  *words.format(*self.paths).split())
        self.must("zfs", "set", "primarycache=metadata", "tank")
        self.must("zfs", "create", "-s", "-V", "16M", "tank/v")
        self.running = self.clients()
        for thread in self.running:
            thread.start()
        time.sleep(2)
        if not self.acked:
            self.is_wrong("nothing was acknowledged before the fault")
        self.inject(disks)
        self.errors.clear()
        before = len(self.acked)
        time.sleep(FAULT_S)
        stops = self.beyond and self.fault in ("eio", "flush", "gone", "enospc")
        self.look(True if stops else None if self.beyond or self.fault in ("wrong", "torn", "lying") else False)
        status, text = self.run("zfs", "snapshot", "tank@during")
        if stops and (status != 1 or "suspended" not in text):
            self.is_wrong(f"a snapshot of the suspended pool: {status} {text}")
        if stops and self.mode == "continue" and not self.errors:
            self.is_wrong("writers of a pool with failmode=continue got no error")
        if stops and self.mode == "wait" and any(key.startswith(("write", "nbd")) for key in self.errors):
            self.is_wrong(f"writers of a pool with failmode=wait got errors: {self.errors}")
        if not self.beyond and self.errors:
            self.is_wrong(f"clients got errors: {self.errors}")
        self.clear(disks)
        for _ in range(3):
            status, text = self.run("zpool", "clear", "tank")
            if status == 0:
                break
            time.sleep(1)
        else:
            self.is_wrong(f"clear: {text}")
        end, acked = time.monotonic() + 45, dict(self.acked)
        while time.monotonic() < end and sum(self.acked[key] is not acked.get(key) for key in self.acked) < 5:
            time.sleep(0.2)
        if time.monotonic() >= end and not self.may_lose:
            self.is_wrong(f"nobody goes on: {self.errors} {self.run('zpool', 'status', 'tank')[1]}")
        if not self.may_lose:
            self.look(False)
        self.stop.set()
        for thread in self.running:
            thread.join(60)
        if self.since:
            self.is_wrong(f"clients hang: { {key: round(time.monotonic() - at) for key, at in self.since.items()} }")
        if self.nbd:
            self.nbd.close(True)
        self.run("zpool", "wait", "-t", "resilver", "tank", most=100)
        self.check("live")
        status, text = self.run("zpool", "export", "tank")
        if status != 0 and not self.may_lose:
            self.is_wrong(f"export: {text}")
        if status == 0:
            if not self.may_lose:
                done = subprocess.run(["zdb", "-e", "-p", self.disks, "-bcc", "tank"], capture_output=True, text=True, check=False)
                if done.returncode != 0 or "No leaks" not in done.stdout:
                    self.is_wrong(f"zdb: {(done.stdout + done.stderr)[-500:]}")
            status, text = self.run("zpool", "import", "tank")
            if status != 0 and not self.may_lose:
                self.is_wrong(f"import: {text}")
            if status == 0:
                self.check("after an import")
        self.end_daemon()
        if "panicked" in open(f"{self.work}/daemon.log").read():
            self.is_wrong("the daemon panicked")
        say(f"{self.name}: {len(self.acked)} acknowledged, {len(self.acked) - before} of them since the fault; "
            f"errors {self.errors or 'none'}{': WRONG' if self.wrong else ''}")

    def clean(self):
        self.stop.set()
        for client in self.running:
            client.join(5)
        self.unmount()
        if self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()
        if self.fault == "enospc":
            subprocess.run(["umount", "-l", self.disks], check=False)
        if self.wrong:
            kept = f"{WORK}/{self.name.replace(' ', '-')}.log"
            shutil.copy(f"{self.work}/daemon.log", kept)
        shutil.rmtree(self.work, ignore_errors=True)


def cases():
    for layout, (_, _, within, _) in LAYOUTS.items():
        for fault in FAULTS:
            if within:
                yield layout, fault, False, "wait"
            if fault not in WITHIN_ONLY:
                for mode in ("wait", "continue"):
                    yield layout, fault, True, mode


def main():
    words, bad, count = sys.argv[1].split() if len(sys.argv) > 1 else [], 0, 0
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    say(f"seed {seed}")
    for layout, fault, beyond, mode in cases():
        case = Case(layout, fault, beyond, mode, seed)
        # With no disk to spare it is the room of all disks that ends.
        if fault == "enospc" and not beyond:
            continue
        if not all(word in case.name.split() for word in words):
            continue
        try:
            case.go()
        except SystemExit as error:
            case.is_wrong(str(error))
        finally:
            case.clean()
        count, bad = count + 1, bad + bool(case.wrong)
    say(f"failing: {count} cases, {bad} wrong" if bad else f"failing: {count} cases: all is well")
    sys.exit(bool(bad))


main()
