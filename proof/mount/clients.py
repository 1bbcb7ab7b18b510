"""Load for `proof/mount/clients`: a worker that checks what it reads and times what it does.

    clients.py files DIR SEED SECONDS         works on files in DIR against a model in memory
    clients.py commands POOL SEED SECONDS     runs CENOTE's commands on datasets of its own

Prints "KIND SECONDS" for the slowest operation of each kind; exit status 1 if anything was wrong.
"""

import mmap
import os
import random
import subprocess
import sys
import time

MAX_BYTES = 1 << 20
MAX_FILES = 60


def content(seed, length):
    word = b"%019d\n" % seed
    return (word * (length // len(word) + 1))[:length]


class Worker:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.slowest = {}
        self.number = seed * 10_000_000

    def next(self):
        self.number += 1
        return self.number

    def timed(self, kind, work):
        begin = time.monotonic()
        done = work()
        self.slowest[kind] = max(self.slowest.get(kind, 0), time.monotonic() - begin)
        return done

    def run(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.rng.choice(self.kinds)()
        for kind, worst in sorted(self.slowest.items()):
            print(kind, f"{worst:.3f}")


class Files(Worker):
    def __init__(self, folder, seed):
        super().__init__(seed)
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)
        self.files = {}
        self.kinds = [self.write, self.write, self.read, self.read, self.map, self.rename, self.remove]
        self.kinds += [self.list, self.sync, self.truncate]

    def some(self):
        return self.rng.choice(sorted(self.files)) if self.files else None

    def write(self):
        if len(self.files) >= MAX_FILES:
            return self.remove()
        seed = self.next()
        name, data = f"f{seed}", content(seed, self.rng.randrange(MAX_BYTES))

        def work():
            with open(name, "wb") as out:
                out.write(data)

        self.timed("write", work)
        self.files[name] = data

    def read(self):
        if name := self.some():
            def work():
                with open(name, "rb") as file:
                    return file.read()

            assert self.timed("read", work) == self.files[name], f"{name}: wrong content"

    def map(self):
        name = self.some()
        if not name or not self.files[name]:
            return
        data, at, seed = bytearray(self.files[name]), self.rng.randrange(len(self.files[name])), self.next()
        patch = content(seed, min(len(data) - at, 5000))

        def work():
            with open(name, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
                mapped[at:at + len(patch)] = patch

        self.timed("mmap", work)
        data[at:at + len(patch)] = patch
        self.files[name] = bytes(data)

    def rename(self):
        if name := self.some():
            new = f"r{self.next()}"
            self.timed("rename", lambda: os.rename(name, new))
            self.files[new] = self.files.pop(name)

    def remove(self):
        if name := self.some():
            self.timed("unlink", lambda: os.unlink(name))
            del self.files[name]

    def list(self):
        assert sorted(self.timed("list", os.listdir)) == sorted(self.files), "wrong listing"

    def truncate(self):
        if name := self.some():
            length = self.rng.randrange(MAX_BYTES)
            self.timed("truncate", lambda: os.truncate(name, length))
            self.files[name] = self.files[name][:length].ljust(length, b"\0")

    def sync(self):
        if name := self.some():
            def work():
                file = os.open(name, os.O_RDONLY)
                os.fsync(file)
                os.close(file)

            self.timed("fsync", work)


class Commands(Worker):
    def __init__(self, pool, seed):
        super().__init__(seed)
        self.home, self.snapshots = f"{pool}/c{seed}", []
        self.cenote("create", "zfs", "create", self.home)
        self.kinds = [self.snapshot, self.snapshot, self.destroy, self.clone, self.set, self.list, self.copy]

    def cenote(self, kind, *words):
        def work():
            return subprocess.run([os.environ["CENOTE"], *words], capture_output=True, text=True, check=False)

        done = self.timed(kind, work)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def snapshot(self):
        name = f"{self.home}@s{self.next()}"
        self.cenote("snapshot", "zfs", "snapshot", name)
        self.snapshots.append(name)

    def destroy(self):
        if self.snapshots:
            self.cenote("destroy", "zfs", "destroy", self.snapshots.pop(self.rng.randrange(len(self.snapshots))))

    def clone(self):
        if self.snapshots:
            clone = f"{self.home}/k{self.next()}"
            self.cenote("clone", "zfs", "clone", self.rng.choice(self.snapshots), clone)
            self.cenote("destroy", "zfs", "destroy", clone)

    def set(self):
        self.cenote("set", "zfs", "set", f"compression={self.rng.choice(['lz4', 'off', 'zstd'])}", self.home)

    def list(self):
        have = self.cenote("list", "zfs", "list", "-H", "-o", "name", "-t", "snapshot", "-d", "1", self.home)
        assert sorted(have.split()) == sorted(self.snapshots), "wrong list of snapshots"

    def copy(self):
        self.cenote("cp", "cp", "-r", os.path.dirname(os.path.abspath(__file__)), f"{self.home}:/d{self.next()}")


def main():
    what, where, seed, seconds = sys.argv[1:5]
    worker = {"files": Files, "commands": Commands}[what](where, int(seed))
    worker.run(float(seconds))


main()
