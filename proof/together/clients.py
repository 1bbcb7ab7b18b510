"""32 clients and all verbs on one pool of a daemon that is killed again and again: see `run`.

    clients.py LAYOUT COMMANDS STOPS SEED

Environment: CENOTE, WORK (a folder). Exit status 1 if anything was lost or wrong, or hung.
"""

import collections
import contextlib
import errno
import hashlib
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time

from disks import Gone, Iscsi, Nbd
from oracle import ANY, Cells

CENOTE, WORK = os.environ["CENOTE"], os.environ["WORK"]
SOCKET, NBD, PORTAL = f"{WORK}/socket", f"{WORK}/nbd", "127.0.0.1:13262"
TARGET = "iqn.2026-11.org.cenote:tank"
BLOCK = 4096
# No command may take longer, however loaded the machine is.
LONGEST_S = 120
LAYOUTS = {
    "mirror": (2, "mirror d0 d1"),
    "raidz1": (3, "raidz1 d0 d1 d2"),
    "draid1": (4, "draid1:2d:4c:1s d0 d1 d2 d3"),
    "log-special": (6, "mirror d0 d1 special mirror d2 d3 log mirror d4 d5"),
}


def say(text):
    print(time.strftime("%T"), text, flush=True)


class Host:
    """The daemon, and what all threads share."""

    def __init__(self, layout):
        self.wrong, self.failures, self.counts = [], collections.Counter(), collections.Counter()
        self.slowest, self.lock = collections.Counter(), threading.Lock()
        self.going = threading.Event()  # clients and verbs may work
        self.ended = False
        self.busy = 0
        disks, words = LAYOUTS[layout]
        for i in range(disks):
            self.make_disk(f"disks/d{i}")
        self.environment = dict(os.environ, CENOTE_SOCKET=SOCKET)
        self.log = open(f"{WORK}/daemon.log", "ab")
        self.start()
        vdevs = [f"{WORK}/disks/{w}" if w[0] == "d" and w[1:].isdigit() else w for w in words.split()]
        self.must("zpool", "create", "-o", "compatibility=openzfs-2.3", "-O", "compression=lz4", "-m", f"{WORK}/tank",
                  "tank", *vdevs)

    def make_disk(self, name):
        path = f"{WORK}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as disk:
            disk.truncate(512 << 20)
        return path

    def start(self):
        words = ["serve", "--socket", SOCKET, "-d", f"{WORK}/disks", "--nbd", f"unix:{NBD}", "--iscsi", PORTAL,
                 "--insecure", "--memory", "1G"]
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET)
        self.daemon = subprocess.Popen([CENOTE, *words], env=self.environment, stdout=self.log, stderr=self.log,
                                       stdin=subprocess.DEVNULL)
        for _ in range(1200):
            if os.path.exists(SOCKET) and self.run("zpool", "list")[0] == 0:
                return
            time.sleep(0.05)
        raise SystemExit("the daemon does not start")

    def run(self, *words):
        """Exit status and output; status `None`: nobody knows."""
        began = time.monotonic()
        try:
            done = subprocess.run([CENOTE, *words], env=self.environment, capture_output=True, text=True,
                                  timeout=LONGEST_S, stdin=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired:
            self.is_wrong(f"{' '.join(words)}: no end after {LONGEST_S} s")
            return None, ""
        text, took = done.stdout + done.stderr, time.monotonic() - began
        with self.lock:
            key = " ".join(words[:2])
            self.slowest[key] = max(self.slowest[key], took)
        for bad in ("takes no more changes", "panicked", "damaged"):
            if bad in text and self.going.is_set():
                self.is_wrong(f"{' '.join(words)}: {text.strip()[:300]}")
        return (done.returncode if self.going.is_set() or done.returncode == 0 else None), text

    def must(self, *words):
        status, text = self.run(*words)
        if status != 0 and text:
            raise SystemExit(f"{' '.join(words)}: {text}")
        return text

    def is_wrong(self, text):
        if text:
            with self.lock:
                self.wrong.append(text)
            say(f"WRONG: {text}")

    @contextlib.contextmanager
    def work(self):
        """Something that must end before a stop is examined."""
        while not self.ended:
            self.going.wait(1)
            with self.lock:
                if self.going.is_set():
                    self.busy += 1
                    break
        try:
            yield
        finally:
            with self.lock:
                self.busy = max(0, self.busy - 1)

    def pause(self):
        self.going.clear()

    def wait_idle(self):
        end = time.monotonic() + LONGEST_S
        while self.busy:
            if time.monotonic() > end:
                self.is_wrong(f"{self.busy} clients or commands hang")
                self.busy = 0
            time.sleep(0.02)

    def kill(self):
        self.daemon.send_signal(signal.SIGKILL)
        try:
            self.daemon.wait(10)
        except subprocess.TimeoutExpired:
            # A thread waits for a mount of its own, which nobody answers any more.
            self.failures["a killed daemon lived on"] += 1
            self.unmount(abort=True)
            self.daemon.wait(30)
        self.unmount()

    def unmount(self, abort=False):
        for line in reversed(open("/proc/self/mountinfo").read().splitlines()):
            words = line.split()
            connection, where = words[2].split(":")[1], words[4].replace("\\040", " ")
            if where.startswith(f"{WORK}/tank"):
                if abort:
                    with contextlib.suppress(OSError), open(f"/sys/fs/fuse/connections/{connection}/abort", "w") as to:
                        to.write("1")
                subprocess.run(["umount", "-l", where], capture_output=True, check=False)


class Home:
    """A dataset with its cells."""

    def __init__(self, host, name, is_volume):
        self.host, self.name, self.is_volume = host, name, is_volume
        self.cells, self.turn, self.count = Cells(name, is_volume), threading.Lock(), 0
        if is_volume:
            host.must("zfs", "create", "-V", "16M", "-o", "volblocksize=4k", f"tank/{name}")
        else:
            host.must("zfs", "create", f"tank/{name}")
            with open(f"{self.dir()}/.me", "w") as me:
                me.write(name)

    def full(self):
        return f"tank/{self.name}"

    def dir(self):
        return f"{WORK}/tank/{self.name}"

    def next(self):
        self.count += 1
        return self.count


def block(home, cell, value):
    return struct.pack("<QQ16s", value, cell, home.name.encode()) * (BLOCK // 32)


def value_of(home, cell, data):
    """What a block holds; 0 at the beginning."""
    if not any(data):
        return None
    value = struct.unpack_from("<Q", data)[0]
    return value if data == block(home, cell, value) else f"garbage {data[:48]!r}"


def digest(data):
    return hashlib.blake2b(data, digest_size=8).hexdigest()


class Client(threading.Thread):
    def __init__(self, host, homes, number, seed):
        super().__init__(daemon=True)
        self.host, self.homes, self.number = host, homes, number
        self.rng = random.Random(f"{seed} {number}")

    def run(self):
        while not self.host.ended:
            with self.host.work():
                if self.host.ended:
                    return
                try:
                    self.turn(self.rng.choice(self.homes))
                except (Gone, OSError) as error:
                    # The dataset is gone for a while, or the daemon.
                    self.host.failures[type(error).__name__] += 1
                    time.sleep(0.02)


class Disk(Client):
    """Writes blocks of volumes, durably, and comes and goes."""

    def open(self, home):
        return Nbd(NBD, home.full())

    def turn(self, home):
        disk = self.open(home)
        try:
            for _ in range(self.rng.randrange(1, 20)):
                cell, value = self.number * 64 + self.rng.randrange(64), home.next()
                begun = home.cells.begin_write(cell, [value])
                try:
                    disk.write(cell * BLOCK, block(home, cell, value))
                except Gone:
                    home.cells.failed_write(cell)
                    raise
                home.cells.end_write(cell, begun, value)
                self.host.counts["durable blocks"] += 1
        finally:
            disk.close(self.rng.random() < 0.5)


class IscsiDisk(Disk):
    def open(self, home):
        return Iscsi(PORTAL, f"{TARGET}:{home.name}")


class Files(Client):
    """Writes and syncs files of a mounted file system, clones them, and keeps descriptors of others."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.kept = []  # descriptors and what they must read

    def turn(self, home):
        dir_fd = os.open(home.dir(), os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Not the directory below the mount.
            with open(os.open(".me", os.O_RDONLY, dir_fd=dir_fd), "rb") as me:
                if me.read() != home.name.encode():
                    return self.host.is_wrong(f"{home.name}: .me is another file's")
            for _ in range(self.rng.randrange(1, 8)):
                self.rng.choice([self.write, self.write, self.read, self.clone, self.keep])(home, dir_fd)
            self.look()
        finally:
            os.close(dir_fd)

    def content(self, home):
        text = f"{home.name} {self.number} {home.next()}\n".encode()
        return (text * (200_000 // len(text)))[:self.rng.choice([100, 5000, 131072, 200_000])]

    def cell(self):
        return f"c{self.number}.{self.rng.randrange(12)}"

    def put(self, home, cell, values, fill):
        """One write that takes the place of the file's content, durably."""
        begun = home.cells.begin_write(cell, values)
        try:
            value = fill()
        except OSError:
            home.cells.failed_write(cell)
            raise
        home.cells.end_write(cell, begun, value)
        self.host.counts["durable files"] += 1

    def write(self, home, dir_fd):
        cell, data = self.cell(), self.content(home)

        def fill():
            with open(os.open(cell + ".new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600, dir_fd=dir_fd), "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
                os.rename(cell + ".new", cell, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
                os.fsync(f.fileno())
            return digest(data)

        self.put(home, cell, [digest(data)], fill)

    def read(self, home, dir_fd):
        cell = self.cell()
        with home.cells.lock:
            before = home.cells.rollbacks, home.cells.back_to
        value = read_cell(dir_fd, cell)
        with home.cells.lock:
            if before == (home.cells.rollbacks, None) and not home.cells.back_to:
                self.host.is_wrong(home.cells.check(cell, value, "read"))

    def clone(self, home, dir_fd):
        """Out of a snapshot, which may be destroyed meanwhile."""
        with home.cells.lock:
            known = list(home.cells.snapshots.items())
        if not known:
            return
        snapshot, cells = self.rng.choice(known)
        source, target = self.rng.choice(sorted(cells) or ["none"]), f"k{self.number}.{self.rng.randrange(12)}"
        try:
            file = os.open(f".zfs/snapshot/{snapshot}/{source}", os.O_RDONLY, dir_fd=dir_fd)
        except OSError:
            return
        with open(file, "rb", buffering=0) as origin:
            values, before = cells[source], (home.cells.rollbacks, home.cells.back_to)

            def fill():
                to = os.open(target + ".new", os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600, dir_fd=dir_fd)
                with open(to, "r+b", buffering=0) as copy:
                    while os.copy_file_range(origin.fileno(), copy.fileno(), 1 << 20):
                        pass
                    os.fsync(copy.fileno())
                    value = digest(pread_all(copy.fileno()))
                    is_ours = before == (home.cells.rollbacks, None) and not home.cells.back_to
                    if is_ours and value not in values and ANY not in values:
                        self.host.is_wrong(f"clone of {home.name}@{snapshot} {source}: {value} is none of {values}")
                    os.rename(target + ".new", target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
                    os.fsync(copy.fileno())
                self.host.counts["clones out of snapshots"] += 1
                return value

            self.put(home, target, values, fill)

    def keep(self, home, dir_fd):
        """A file that a command may remove while it is open."""
        name, data = f"d{self.number}.{self.rng.randrange(6)}", self.content(home)
        file = os.open(name, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600, dir_fd=dir_fd)
        # Whoever had it open has another file now, or this one's new content.
        for kept in [kept for kept in self.kept if kept[1:3] == (home.name, name)]:
            self.kept.remove(kept)
            os.close(kept[0])
        os.write(file, data)
        self.kept.append((file, home.name, name, data))
        if len(self.kept) > 8:
            os.close(self.kept.pop(0)[0])

    def look(self):
        for kept in list(self.kept):
            file, _, _, data = kept
            try:
                found = os.pread(file, 1 << 20, 0)
            except OSError as error:
                if error.errno not in (errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ENOENT, errno.ECONNABORTED):
                    raise
                self.kept.remove(kept)
                os.close(file)
                continue
            self.host.counts["descriptors read"] += 1
            owner = b" ".join(data.split(b" ")[:2])
            # A rollback may have brought older content of the same file.
            if found and not found.startswith(owner + b" "):
                self.host.is_wrong(f"a descriptor of {owner!r} reads {found[:60]!r}")


def pread_all(file):
    """One call may answer with a part if the daemon dies meanwhile; the next one then fails."""
    found = b""
    while part := os.pread(file, 1 << 20, len(found)):
        found += part
    return found


def read_cell(dir_fd, cell):
    try:
        with open(os.open(cell, os.O_RDONLY, dir_fd=dir_fd), "rb") as file:
            return digest(file.read())
    except FileNotFoundError:
        return None


class FileCommands(Client):
    """`cp`, `cp -f`, `mkdir` and `rm` through the socket, in file systems that others have mounted."""

    def turn(self, home):
        name = f"d{self.rng.randrange(32)}.{self.rng.randrange(6)}"
        host, kind = self.host, self.rng.randrange(4)
        own = f"{home.full()}:/x{self.number}"
        if kind == 0:
            host.run("rm", "-f", f"{home.full()}:/{name}")
        elif kind == 1:
            host.run("mkdir", "-p", f"{own}/{home.next()}")
        elif kind == 2:
            host.run("cp", "-f", os.path.abspath(__file__), f"{home.full()}:/y{self.number}")
        else:
            host.run("rm", "-rf", own)
        host.counts["file commands"] += 1


class Verbs(Client):
    """Commands on datasets that clients use."""

    def turn(self, home):
        with home.turn:
            verb = self.rng.choice([self.snapshot, self.snapshot, self.rollback, self.rollback, self.destroy,
                                    self.clone, self.promote, self.rename, self.set, self.unmount, self.scrub])
            verb(home)
        self.host.counts["commands"] += 1

    def newest(self, home):
        listed = self.host.run("zfs", "list", "-H", "-o", "name", "-t", "snapshot", "-s", "createtxg", home.full())
        names = [line.split("@")[1] for line in listed[1].split() if "@" in line]
        return [name for name in names if name in home.cells.snapshots] if listed[0] == 0 else []

    def snapshot(self, home):
        name = f"s{home.next()}"
        home.cells.begin_snapshot(name)
        status, _ = self.host.run("zfs", "snapshot", f"{home.full()}@{name}")
        home.cells.end_snapshot(name, None if status is None else status == 0)

    def rollback(self, home):
        known = self.newest(home)
        if not known:
            return
        to = self.rng.choice(known[-2:])
        home.cells.begin_rollback(to)
        status, text = self.host.run("zfs", "rollback", "-R", f"{home.full()}@{to}")
        home.cells.end_rollback(None if status is None else status == 0)
        if status == 0:
            self.host.counts["rollbacks"] += 1
        elif status is not None and "busy" not in text and "in use" not in text and "is open" not in text:
            self.host.failures[f"rollback: {text.strip()[-60:]}"] += 1

    def destroy(self, home):
        known = self.newest(home)
        if len(known) > 3 or (known and self.rng.random() < 0.5):
            if self.host.run("zfs", "destroy", "-R", f"{home.full()}@{self.rng.choice(known)}")[0] == 0:
                self.host.counts["snapshots destroyed"] += 1

    def clone(self, home):
        known = self.newest(home)
        if known:
            name = f"{home.full()}-c{home.next()}"
            if self.host.run("zfs", "clone", f"{home.full()}@{self.rng.choice(known)}", name)[0] == 0:
                self.host.run("zfs", "destroy", "-r", name)

    def promote(self, home):
        known = self.newest(home)
        if known:
            name = f"{home.full()}-p{home.next()}"
            if self.host.run("zfs", "clone", f"{home.full()}@{self.rng.choice(known)}", name)[0] == 0:
                if self.host.run("zfs", "promote", name)[0] == 0:
                    self.host.run("zfs", "promote", home.full())
                self.host.run("zfs", "destroy", "-r", name)

    def rename(self, home):
        other = f"{home.full()}-r"
        if self.host.run("zfs", "rename", home.full(), other)[0] == 0:
            self.host.run("zfs", "rename", other, home.full())

    def set(self, home):
        values = ["compression=lz4", "compression=off", "sync=standard", "sync=always", "logbias=throughput",
                  "logbias=latency", "primarycache=metadata", "primarycache=all"]
        if not home.is_volume:
            values += ["atime=off", "atime=on", "recordsize=16k", "recordsize=128k"]
        self.host.run("zfs", "set", self.rng.choice(values), home.full())

    def unmount(self, home):
        if not home.is_volume:
            self.host.run("zfs", "unmount", *self.rng.choice([[], ["-f"]]), home.full())
            self.host.run("zfs", "mount", home.full())

    def scrub(self, _home):
        self.host.run(*self.rng.choice([("zpool", "scrub", "tank"), ("zpool", "sync", "tank"),
                                        ("zpool", "trim", "tank"), ("zpool", "status", "tank")]))


def repair(host, homes):
    """What a kill has left in the middle of two commands that belong together."""
    for home in homes:
        if host.run("zfs", "list", f"{home.full()}-r")[0] == 0:
            host.must("zfs", "rename", f"{home.full()}-r", home.full())
    origins = host.must("zfs", "list", "-H", "-o", "name,origin", "-t", "filesystem,volume", "-r", "tank")
    for line in origins.splitlines():
        name, origin = line.split("\t")
        if origin != "-" and name in {home.full() for home in homes}:
            host.must("zfs", "promote", name)
    for line in origins.splitlines():
        name = line.split("\t")[0]
        if "-c" in name or "-p" in name:
            host.must("zfs", "destroy", "-r", name)
    host.run("zfs", "mount", "-a")


def examine(host, homes):
    """After a restart: all that was acknowledged is there."""
    repair(host, homes)
    for home in homes:
        cells = home.cells
        have = {line.split("@")[1] for line in host.must(
            "zfs", "list", "-H", "-o", "name", "-t", "snapshot", "-d", "1", home.full()).split() if "@" in line}
        cells.snapshots = {name: values for name, values in cells.snapshots.items() if name in have}
        if home.is_volume:
            disk = Nbd(NBD, home.full())
            for cell in list(cells.values):
                value = value_of(home, cell, disk.read(cell * BLOCK, BLOCK))
                host.is_wrong(cells.check(cell, value, "after the kill"))
                cells.settle(cell, value)
            disk.close(True)
            continue
        dir_fd = os.open(home.dir(), os.O_RDONLY | os.O_DIRECTORY)
        for cell in list(cells.values):
            value = read_cell(dir_fd, cell)
            host.is_wrong(cells.check(cell, value, "after the kill"))
            cells.settle(cell, value)
        os.close(dir_fd)
    status = host.must("zpool", "status", "-v", "tank")
    if "errors: No known data errors" not in status or "DEGRADED" in status:
        host.is_wrong(status)
    for line in status.splitlines():
        words = line.split()
        if len(words) == 5 and words[1] == "ONLINE" and words[2:] != ["0", "0", "0"]:
            host.is_wrong(f"a healthy disk is accused: {line.strip()}")


def zdb(host):
    host.must("zpool", "export", "tank")
    done = subprocess.run(["zdb", "-bcc", "-e", "-p", f"{WORK}/disks", "tank"], capture_output=True, text=True,
                          timeout=900, check=False)
    text = done.stdout + done.stderr
    if done.returncode or "No leaks" not in text or "error" in text.lower().replace("errors: 0", ""):
        with open(f"{WORK}/zdb.txt", "w") as file:
            file.write(text)
        host.is_wrong(f"zdb: {done.returncode} {text[-600:]}")
    host.must("zpool", "import", "tank")


def main():
    layout, commands, stops, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    host, rng = Host(layout), random.Random(seed)
    files = [Home(host, f"f{i}", False) for i in range(6)]
    nbd = [Home(host, f"n{i}", True) for i in range(8)]
    iscsi = [Home(host, f"i{i}", True) for i in range(4)]
    homes = files + nbd + iscsi
    kinds = [(Files, files, 12), (Disk, nbd, 12), (IscsiDisk, iscsi, 4), (FileCommands, files, 4), (Verbs, homes, 3)]
    clients = [kind(host, where, number, seed) for kind, where, count in kinds for number in range(count)]
    for client in clients:
        client.start()
    for stop in range(stops):
        until = host.counts["commands"] + host.counts["file commands"] + commands // stops
        host.going.set()
        began = time.monotonic()
        while host.counts["commands"] + host.counts["file commands"] < until and not host.wrong:
            time.sleep(rng.uniform(0.01, 0.05))
            if time.monotonic() - began > 600:
                host.is_wrong("commands make no progress")
        host.pause()
        host.kill()
        host.wait_idle()
        host.start()
        examine(host, homes)
        zdb(host)
        if stop % 10 == 9 or host.wrong:
            say(f"{layout}: {stop + 1} stops, {dict(host.counts)}")
        if host.wrong:
            break
    host.ended = True
    host.going.set()
    say(f"{layout}: failures that clients met: {dict(host.failures)}")
    say("slowest: " + ", ".join(f"{name} {took:.1f} s" for name, took in host.slowest.most_common(6)))
    host.unmount()
    host.daemon.terminate()
    sys.stdout.flush()
    os._exit(1 if host.wrong else 0)


if __name__ == "__main__":
    main()
