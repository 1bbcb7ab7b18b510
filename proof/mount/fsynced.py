"""Load for `proof/mount/crash`: workers that note what fsync has promised, and the check of those promises.

    fsynced.py load DIR NOTES ROUND   WORKERS processes until killed
    fsynced.py check DIR NOTES        every promise is kept, else exit status 1

Each worker has a folder of its own and a file of notes on another file system, of lines "what number". A note
is written after the call that it is about has returned, or before one that may be cut off in the middle.
"""

import os
import random
import sys

WORKERS = 8
BLOCK = 4096
BLOCKS = 64


def content(number, length):
    return (b"%019d\n" % number) * (length // 20 + 1)


def block(number):
    return content(number, BLOCK)[:BLOCK]


def small(number):
    return content(number, 20_000)[: number * 7919 % 20_000]


class Worker:
    def __init__(self, folder, notes, turn):
        self.folder, self.number = folder, turn * 1_000_000
        os.makedirs(folder, exist_ok=True)
        self.notes = os.open(notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self.dir = os.open(folder, os.O_RDONLY)
        self.file = os.open(folder + "/blocks", os.O_CREAT | os.O_RDWR)
        os.fsync(self.file)
        os.fsync(self.dir)

    def note(self, *words):
        os.write(self.notes, (" ".join(map(str, words)) + "\n").encode())

    def next(self):
        self.number += 1
        return self.number

    def blocks(self):
        """Random writes, made durable together."""
        written = {}
        for _ in range(random.choice([1, 1, 4, 16])):
            place, number = random.randrange(BLOCKS), self.next()
            os.pwrite(self.file, block(number), place * BLOCK)
            written[place] = number
        os.fsync(self.file)
        for place, number in written.items():
            self.note("block", number, place)

    def names(self):
        """A file from its creation to its end; sometimes it stays."""
        number = self.next()
        old, new = f"{self.folder}/made{number}", f"{self.folder}/moved{number}"
        file = os.open(old, os.O_CREAT | os.O_WRONLY)
        os.write(file, small(number))
        os.fsync(file)
        os.close(file)
        self.note("made", number)
        for state, call in [("mov", lambda: os.rename(old, new)), ("remov", lambda: os.unlink(new))]:
            if random.random() < 0.2:
                return
            self.note(state + "ing", number)
            call()
            if random.random() < 0.5:
                os.fsync(self.dir)
                self.note(state + "ed", number)

    def run(self):
        while True:
            random.choice([self.blocks, self.blocks, self.names])()


def load(dir, notes, turn):
    for n in range(WORKERS):
        if os.fork() == 0:
            try:
                Worker(f"{dir}/worker{n}", f"{notes}/{n}", turn).run()
            except OSError:
                os._exit(0)  # killed under it
    for _ in range(WORKERS):
        os.wait()


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def check_worker(folder, notes):
    blocks, names, bad = {}, {}, []
    for line in open(notes):
        what, number, *place = line.split()
        if what == "block":
            blocks[int(place[0])] = int(number)
        else:
            names[int(number)] = what
    held = read(folder + "/blocks") or b""
    for place, number in blocks.items():
        there = held[place * BLOCK : (place + 1) * BLOCK]
        found = int(there[:19]) if there[:19].isdigit() else -1
        if found < number or there != block(found):
            bad.append(f"{folder}/blocks, block {place}: {found} instead of {number}")
    there = set(os.listdir(folder))
    for number, state in names.items():
        found = [name for name in ("made", "moved") if f"{name}{number}" in there]
        right = {
            "made": [["made"]],
            "moving": [["made"], ["moved"]],
            "moved": [["moved"]],
            "removing": [["made"], ["moved"], []],
            "removed": [[]],
        }[state]
        if found not in right:
            bad.append(f"{folder}: {number} was {state}, found: {found}")
        if found and read(f"{folder}/{found[0]}{number}") != small(number):
            bad.append(f"{folder}/{found[0]}{number}: wrong content")
    return len(blocks) + len(names), bad


def check(dir, notes):
    promises, bad = 0, []
    for n in sorted(os.listdir(notes)):
        count, found = check_worker(f"{dir}/worker{n}", f"{notes}/{n}")
        promises += count
        bad += found
        # Old files would only make the checks longer.
        for name in os.listdir(f"{dir}/worker{n}"):
            if name != "blocks":
                os.unlink(f"{dir}/worker{n}/{name}")
        lines = [line for line in open(f"{notes}/{n}") if line.startswith("block")]
        with open(f"{notes}/{n}", "w") as file:
            file.writelines({line.split()[2]: line for line in lines}.values())
    print(promises)
    for line in bad:
        print("LOST:", line, file=sys.stderr)
    sys.exit(1 if bad else 0)


if sys.argv[1] == "load":
    load(sys.argv[2], sys.argv[3], int(sys.argv[4]))
else:
    check(sys.argv[2], sys.argv[3])
