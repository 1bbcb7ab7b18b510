"""A daemon that is killed under clients whose mount points move: see `run`.

    killed.py KILLS MINUTES SEED [systemd]

With `systemd` the daemon is the unit `cenote` of this machine, and systemd starts it again. Environment: CENOTE,
WORK (a folder). Exit status 1 if anything was lost or wrong, or came back too late.
"""

import contextlib
import glob
import http.client
import os
import random
import subprocess
import sys
import threading
import time

from clients import (CENOTE, NBD, PORTAL, SOCKET, TARGET, WORK, Client, Disk, FileCommands, Files, Home, Host,
                     IscsiDisk, Verbs, examine, say, zdb)
from disks import Gone, Iscsi, Nbd

HTTP = "127.0.0.1:13264"
# From the start of a new daemon until everything is served.
LONGEST_S = float(os.environ.get("LONGEST", "10"))
# A process may sleep in the kernel for so long.
LONGEST_D_S = 10


class Service(Host):
    """The daemon as a service manager runs it: nobody cleans up after it."""

    def __init__(self):
        self.homes, self.moving, self.late, self.rng = [], 0, [], random.Random()
        super().__init__("mirror")

    def start(self):
        words = ["serve", "--socket", SOCKET, "-d", f"{WORK}/disks", "--nbd", f"unix:{NBD}", "--iscsi", PORTAL,
                 "--insecure", "--http", HTTP, "--memory", "1G"]
        began = time.monotonic()
        self.launch(words)
        why = ""
        while time.monotonic() - began < 60:
            why = self.lacks()
            if not why:
                took = time.monotonic() - began
                self.late.append(took)
                if self.homes and took > LONGEST_S:
                    self.is_wrong(f"everything is served after {took:.1f} s only")
                return
            time.sleep(0.02)
        self.is_wrong(f"after 60 s: {why}")
        raise SystemExit(1)

    def launch(self, words):
        self.daemon = subprocess.Popen([CENOTE, *words], env=self.environment, stdout=self.log, stderr=self.log,
                                       stdin=subprocess.DEVNULL)

    def lacks(self):
        """What is not served yet."""
        if self.daemon.poll() is not None:
            self.is_wrong(f"the new daemon has ended: {self.daemon.returncode}")
            raise SystemExit(1)
        if not os.path.exists(SOCKET):
            return "no socket"
        status, text = self.run("zpool", "list", "-H", "-o", "health")
        if status != 0 or self.homes and text != "ONLINE\n":
            return f"zpool list: {text}"
        # A rename that a kill has interrupted has given a dataset another name for a while.
        names = self.run("zfs", "list", "-H", "-o", "name", "-t", "filesystem,volume")[1].split()
        homes = [home for home in self.homes if home.full() in names]
        try:
            for home in homes:
                if not home.is_volume:
                    with open(f"{home.dir()}/.me", encoding="ascii") as me:
                        if me.read() != home.name:
                            return f"{home.name} is another one"
            for home in [home for home in homes if home.is_volume]:
                disk = Iscsi(PORTAL, f"{TARGET}:{home.name}") if home.name[0] == "i" else Nbd(NBD, home.full())
                disk.close(True)
            page = http.client.HTTPConnection(HTTP, timeout=5)
            page.request("GET", "/")
            if page.getresponse().status != 200:
                return "no page"
            page.close()
        except (OSError, Gone, http.client.HTTPException) as error:
            return repr(error)
        return ""

    def kill(self, with_guard=False):
        if with_guard:
            for guard in children(self.daemon.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(guard, 9)
        self.daemon.kill()
        # The next one comes at once; this one may take its time to end.
        threading.Thread(target=self.daemon.wait, daemon=True).start()


class Unit:
    """The daemon as `systemctl` shows it."""

    def poll(self):
        """systemd goes on for ever: a unit that has failed was not started again."""
        state = self.show("ActiveState")
        return state if state == "failed" else None

    def show(self, what):
        return systemctl("show", "-P", what, "cenote").stdout.strip()

    def terminate(self):
        systemctl("stop", "cenote")

    def wait(self, _timeout):
        """`stop` has waited."""


class Booted(Service):
    """The same as a unit of systemd, which starts it again by itself."""

    def launch(self, words):
        if hasattr(self, "daemon"):
            return
        lines = [f'disks = ["{WORK}/disks"]', f'socket = "{SOCKET}"', f'nbd = ["unix:{NBD}"]', f'iscsi = ["{PORTAL}"]',
                 f'http = ["{HTTP}"]', 'memory = "1G"']
        if "--insecure" in words:
            lines.append("insecure = true")
        with open("/etc/cenote/serve.toml", "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        self.daemon = Unit()
        done = systemctl("start", "cenote")
        if done.returncode != 0:
            raise SystemExit(f"systemctl start cenote: {done.stderr}")

    def kill(self, with_guard=False):
        systemctl("kill", "--signal=KILL", f"--kill-whom={'all' if with_guard else 'main'}", "cenote")


def systemctl(*words):
    return subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)


def children(pid):
    found = set()
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
            found |= {int(word) for word in file.read().split()}
    return found


class Movers(Client):
    """File systems below those that are mounted come, move and go."""

    def turn(self, home):
        name = f"{home.full()}/move{self.number}"
        steps = [("create", name), ("rename", name, name + "x"), ("unmount", name + "x"), ("mount", name + "x"),
                 ("destroy", "-r", name + "x"), ("destroy", "-r", name)]
        with self.host.lock:
            self.host.moving += 1
        try:
            for step in steps[:self.rng.randrange(1, len(steps) + 1)]:
                if not self.host.going.is_set():
                    return
                self.host.run("zfs", *step)
                self.host.counts["mount points moved"] += 1
        finally:
            with self.host.lock:
                self.host.moving -= 1


class Disks(Client):
    """The mirror gets other disks, in a folder where nobody looks for pools."""

    def turn(self, _home):
        used = self.used()
        if len(used) > 2:
            # Whatever a kill has left: a replacement goes on, a third side goes.
            self.host.run("zpool", "wait", "-t", "resilver,replace", "tank")
            used = self.used()
        if len(used) > 2:
            self.host.run("zpool", "detach", "tank", used[0])
        elif len(used) == 2:
            self.count += 1
            new = self.host.make_disk(f"elsewhere/e{self.count}")
            self.host.run("zpool", self.rng.choice(["attach", "replace"]), "tank", used[0], new)
            self.host.counts["disks changed"] += 1
        else:
            return
        for path in glob.glob(f"{WORK}/elsewhere/*"):
            if path not in used and int(path.rsplit("e", 1)[1]) < self.count - 8:
                os.unlink(path)

    count = 0

    def used(self):
        """The disks that the pool has; none if that can't be told."""
        status, text = self.host.run("zpool", "status", "-P", "tank")
        words = [line.split()[0] for line in text.splitlines() if line.strip()]
        return [word for word in words if word.startswith(WORK)] if status == 0 else []


def watch_sleepers(host):
    """Nobody sleeps in the kernel for long."""
    since = {}
    while True:
        now, asleep = time.monotonic(), set()
        for task in glob.glob("/proc/[0-9]*/task/[0-9]*"):
            try:
                with open(f"{task}/stat", encoding="utf8", errors="replace") as file:
                    name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
                if rest.split()[0] == "D" and ("cenote" in name or f"/proc/{os.getpid()}/" in task):
                    asleep.add((task, name))
            except (OSError, IndexError):
                continue
        since = {one: since.get(one, now) for one in asleep}
        for (task, name), begun in since.items():
            if now - begun > LONGEST_D_S:
                host.is_wrong(f"{name} ({task}) has been in state D for {now - begun:.0f} s")
        time.sleep(1)


def main():
    kills, minutes, seed = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    host, rng = Booted() if sys.argv[4:] == ["systemd"] else Service(), random.Random(seed)
    is_done = False
    try:
        work(host, rng, kills, minutes, seed)
        is_done = True
    finally:
        host.daemon.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            host.daemon.wait(60)
        host.unmount()
        sys.stdout.flush()
        os._exit(0 if is_done and not host.wrong else 1)


def work(host, rng, kills, minutes, seed):
    files = [Home(host, f"f{i}", False) for i in range(6)]
    nbd = [Home(host, f"n{i}", True) for i in range(6)]
    iscsi = [Home(host, f"i{i}", True) for i in range(3)]
    homes = files + nbd + iscsi
    host.homes = homes
    kinds = [(Files, files, 10), (Disk, nbd, 8), (IscsiDisk, iscsi, 3), (FileCommands, files, 3), (Verbs, homes, 3),
             (Movers, files, 4), (Disks, files, 1)]
    clients = [kind(host, where, number, seed) for kind, where, count in kinds for number in range(count)]
    for client in clients:
        client.start()
    threading.Thread(target=watch_sleepers, args=(host,), daemon=True).start()
    began, done = time.monotonic(), 0
    while done < kills and time.monotonic() - began < minutes * 60 - 60 and not host.wrong:
        host.going.set()
        time.sleep(rng.uniform(0.2, 1.5))
        end = time.monotonic() + 5
        while done % 2 and not host.moving and time.monotonic() < end:
            time.sleep(0.001)
        host.counts["while mount points moved"] += bool(host.moving)
        host.pause()
        host.kill(with_guard=done % 3 == 0)
        host.start()
        host.wait_idle()
        for name in host.must("zfs", "list", "-H", "-o", "name", "-r", "tank").split():
            if "/move" in name:
                host.run("zfs", "destroy", "-r", name)
        examine(host, homes)
        done += 1
        if done % 25 == 0 or host.wrong:
            say(f"{done} kills, {dict(host.counts)}, back after {max(host.late):.1f} s at most")
    host.ended = True
    host.going.set()
    if not host.wrong:
        host.run("zpool", "wait", "-t", "resilver,replace", "tank")
        links = host.must("zpool", "status", "-P", "tank")
        for path in glob.glob(f"{WORK}/elsewhere/*"):
            if path in links:
                os.symlink(path, f"{WORK}/disks/{os.path.basename(path)}")
        # The container's host has `zdb`.
        if not isinstance(host, Booted):
            zdb(host)
    times = sorted(host.late)
    say(f"{done} kills in {time.monotonic() - began:.0f} s; everything served again after "
        f"{times[len(times) // 2]:.2f} s (median), {times[-1]:.2f} s (longest); {dict(host.counts)}; failures that "
        f"clients met: {dict(host.failures)}")


main()
