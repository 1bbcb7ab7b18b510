#!/usr/bin/env python3
"""32 clients of some pools, until they are killed or the daemon is: healthy.py MOUNTS NBD READY SEED POOL...

Half of them work on files below MOUNTS/POOL, the others write to the volumes POOL/a to d with FUA. When each has
done something, the file READY appears.
"""
import os
import random
import socket
import struct
import sys
import threading

CLIENTS = 32
VOLUMES = "abcd"
VOLUME_BYTES = 32 << 20
FILES = 40
MOST_BYTES = 256 << 10


class Nbd:
    """A client of one export."""

    def __init__(self, path, name):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.receive(18)
        name = name.encode()
        option = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        self.socket.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, len(option)) + option)
        kind = 0
        while kind != 1:
            _, _, kind, length = struct.unpack(">QIII", self.receive(20))
            self.receive(length)
            if kind & 0x80000000:
                raise OSError(f"refused: {kind:x}")

    def receive(self, length):
        got = b""
        while len(got) < length:
            more = self.socket.recv(length - len(got))
            if not more:
                raise OSError("the server is gone")
            got += more
        return got

    def write(self, offset, data, fua):
        head = struct.pack(">IHHQQI", 0x25609513, int(fua), 1, 1, offset, len(data))
        self.socket.sendall(head + data)
        _, error, _ = struct.unpack(">IIQ", self.receive(16))
        if error:
            raise OSError(error, "NBD")


def on_volume(rng, server, name):
    nbd = Nbd(server, name)
    while True:
        yield
        length = rng.choice([4096, 8192, 65536])
        nbd.write(rng.randrange(0, VOLUME_BYTES - length, 4096), rng.randbytes(length), rng.random() < 0.7)


def on_files(rng, folder):
    os.makedirs(folder, exist_ok=True)
    while True:
        yield
        path = f"{folder}/{rng.randrange(FILES)}"
        what = rng.random()
        if what < 0.1:
            if os.path.exists(path):
                os.unlink(path)
        elif what < 0.2:
            if os.path.exists(path):
                os.rename(path, f"{folder}/{rng.randrange(FILES)}")
        else:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                os.pwrite(file, rng.randbytes(rng.randrange(1, MOST_BYTES)), rng.randrange(MOST_BYTES))
                if what < 0.7:
                    os.fsync(file)
                os.pread(file, MOST_BYTES, 0)
            finally:
                os.close(file)


def main():
    mounts, server, ready, seed, *pools = sys.argv[1:]
    begun = threading.Barrier(CLIENTS, lambda: open(ready, "w").close())

    def client(number):
        rng, pool = random.Random(f"{seed}-{number}"), pools[number % len(pools)]
        turn = number // len(pools)
        try:
            if turn % 2:
                work = on_volume(rng, server, f"{pool}/{VOLUMES[turn // 2 % len(VOLUMES)]}")
            else:
                work = on_files(rng, f"{mounts}/{pool}/client{number}")
            for _ in range(2):
                next(work)
            begun.wait()
            for _ in work:
                pass
        except (OSError, threading.BrokenBarrierError) as error:
            print(f"client {number} of {pool}: {error}", file=sys.stderr)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
