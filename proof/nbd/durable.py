"""Checks a volume against what was acknowledged, writes more, and kills the server meanwhile.

Arguments: socket, volume, file of what was acknowledged, process to kill, seed. Each line of the file is a
block and the number written into it. A write counts when it was made with FUA, or when a flush that began
after it was answered; what was written and not flushed may be either there or not.
"""

import os
import random
import signal
import struct
import sys
import threading
import time

import nbd

socket, volume, path, process, seed = sys.argv[1:3] + [sys.argv[3]] + [int(sys.argv[4]), int(sys.argv[5])]
random.seed(seed)
BLOCK = 4096
BLOCKS = 2000


def connect():
    handle = nbd.NBD()
    handle.set_export_name(volume)
    handle.connect_unix(socket)
    return handle


def content(block, number):
    # What was never written is a hole.
    return struct.pack("<QQ", block, number) * (BLOCK // 16) if number else bytes(BLOCK)


# What must be there, and what may be instead.
sure, maybe = {}, {}
if os.path.exists(path):
    for line in open(path):
        kind, block, number = line.split()
        block, number = int(block), int(number)
        if kind == "sure":
            sure[block] = number
        else:
            maybe.setdefault(block, set()).add(number)
handle = connect()
for block in sorted(set(sure) | set(maybe)):
    found = bytes(handle.pread(BLOCK, block * BLOCK))
    number = struct.unpack("<QQ", found[:16])[1]
    allowed = maybe.get(block, set()) | ({sure[block]} if block in sure else {number})
    if number not in allowed or (block in sure and found != content(block, number)):
        sys.exit(f"block {block} has {number}, not one of {sorted(allowed)}")
    sure[block] = number
maybe.clear()

first = connect()
threading.Thread(
    target=lambda: (time.sleep(random.uniform(0.2, 2)), os.kill(process, signal.SIGKILL)), daemon=True
).start()
number = seed << 32
written = {}
try:
    while True:
        # Writes through one connection, flushes through the other.
        number += 1
        block = random.randrange(BLOCKS)
        maybe.setdefault(block, set()).add(number)
        if random.random() < 0.2:
            first.pwrite(content(block, number), block * BLOCK, nbd.CMD_FLAG_FUA)
            sure[block] = number
            written.pop(block, None)
            maybe[block] = set()
            continue
        first.pwrite(content(block, number), block * BLOCK)
        written[block] = number
        if random.random() < 0.1:
            handle.flush()
            for flushed, value in written.items():
                sure[flushed] = value
                maybe[flushed] = set()
            written.clear()
except nbd.Error:
    pass
with open(path + ".new", "w") as out:
    for block, value in sure.items():
        print("sure", block, value, file=out)
    for block, values in maybe.items():
        for value in values:
            print("maybe", block, value, file=out)
os.rename(path + ".new", path)
print(f"{number - (seed << 32)} writes, {len(sure)} blocks sure")
