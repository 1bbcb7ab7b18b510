"""guests.py: guests of vhost-user that break every rule, beside an honest one.

Three guests attack volumes of their own for GUESTS_MINUTES (30): requests, descriptors, rings and indirect tables of
which bytes are wrong, also while they are read; indexes far ahead; chains that are offered again and again, or that
have loops; memory that is taken away; messages of the protocol in any order, cut short, with wrong numbers and
descriptors. After each attack an honest guest must find the same volume served, and keep its words, within STALL_S.
No guest may see a byte of other volumes, or change them.
"""

import array
import ctypes
import mmap
import os
import select
import socket
import struct
import time
import traceback

import watched
from watched import MIB, STALL_S, Fault, exactly, in_process, number

ATTACKERS = 3
VOLUME_BYTES = 32 * MIB
BASE = 0x7F0000000000
READ, WRITE, FLUSH, ID, DISCARD, ZEROES = 0, 1, 4, 8, 11, 13
NEXT, WRITES, INDIRECT = 1, 2, 4


class Guest:
    """A virtual machine with one disk, as seen from its memory."""

    def __init__(self, path, memory=MIB, size=64, queues=1, features=None):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(STALL_S)
        self.stream.connect(path)
        self.fd = os.memfd_create("guest")
        os.ftruncate(self.fd, memory)
        self.memory, self.bytes, self.size, self.queues = mmap.mmap(self.fd, memory), memory, size, queues
        self.fds, self.kicks, self.calls, self.offered, self.seen = [self.fd], {}, {}, {}, {}
        self.tell(3)
        offered = struct.unpack("<Q", self.ask(1))[0]
        self.features = offered if features is None else offered & features
        self.tell(2, struct.pack("<Q", self.features))
        if self.features >> 30 & 1:
            self.ask(15)
            self.tell(16, struct.pack("<Q", 0x201))
        self.tell(5, struct.pack("<IIQQQQ", 1, 0, 0, memory, BASE, 0), self.fd)
        for queue in range(queues):
            self.start(queue)

    # Where a queue's rings lie: 16 KiB each, from 64 KiB on; requests and data behind.
    def desc(self, queue=0):
        return 0x10000 + queue * 0x4000

    def avail(self, queue=0):
        return self.desc(queue) + 0x2000

    def used(self, queue=0):
        return self.desc(queue) + 0x3000

    def start(self, queue):
        self.tell(8, struct.pack("<II", queue, self.size))
        self.tell(10, struct.pack("<II", queue, 0))
        addresses = [BASE + at(queue) for at in (self.desc, self.used, self.avail)]
        self.tell(9, struct.pack("<IIQQQQ", queue, 0, *addresses, 0))
        self.kicks[queue], self.calls[queue] = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK)
        self.fds += [self.kicks[queue], self.calls[queue]]
        self.tell(13, struct.pack("<Q", queue), self.calls[queue])
        self.tell(12, struct.pack("<Q", queue), self.kicks[queue])
        if self.features >> 30 & 1:
            self.tell(18, struct.pack("<II", queue, 1))
        self.offered[queue] = self.seen[queue] = 0

    def tell(self, request, payload=b"", *fds, flags=1):
        head = struct.pack("<III", request, flags, len(payload))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.stream.sendmsg([head + payload], rights)

    def ask(self, request, payload=b""):
        self.tell(request, payload)
        return exactly(self.stream, struct.unpack("<III", exactly(self.stream, 12))[2])

    def describe(self, queue, index, address, length, flags, following=0):
        struct.pack_into("<QIHH", self.memory, self.desc(queue) + 16 * index, address, length, flags, following)

    def offer(self, queue, *heads):
        for head in heads:
            at = self.avail(queue) + 4 + 2 * (self.offered[queue] % self.size)
            struct.pack_into("<H", self.memory, at, head)
            self.offered[queue] = self.offered[queue] + 1 & 0xFFFF
        # In one step, as drivers do: `pack_into` writes zeros first, an index that the device takes for a wrong one.
        ctypes.c_uint16.from_buffer(self.memory, self.avail(queue) + 2).value = self.offered[queue]
        self.kick(queue)

    def kick(self, queue):
        try:
            os.eventfd_write(self.kicks[queue], 1)
        except BlockingIOError:
            pass

    def answered(self, queue=0):
        return struct.unpack_from("<H", self.memory, self.used(queue) + 2)[0]

    def request(self, kind, offset=0, data=b"", length=0):
        """Makes a request, and waits for its end: what was read."""
        struct.pack_into("<IIQ", self.memory, 0x40000, kind, 0, offset // 512)
        self.memory[0x41000:0x41000 + len(data)] = data
        self.memory[0x40800] = 0xFF
        self.describe(0, 0, 0x40000, 16, NEXT, 1)
        if data or length:
            self.describe(0, 1, 0x41000, len(data) or length, NEXT | (0 if data else WRITES), 2)
        self.describe(0, 2 if data or length else 1, 0x40800, 1, WRITES)
        self.offer(0, 0)
        self.seen[0] = self.seen[0] + 1 & 0xFFFF
        end = time.monotonic() + STALL_S
        while self.answered() != self.seen[0]:
            select.select([self.calls[0]], [], [], 0.05)
            if time.monotonic() > end:
                left = select.select([self.stream], [], [], 0)[0] and not self.stream.recv(1)
                why = "the guest was thrown out" if left else "the guest is still connected"
                raise Fault(f"request {kind} at {offset} is not answered: {why}")
        if self.memory[0x40800] != 0:
            raise Fault(f"request {kind} at {offset}: status {self.memory[0x40800]}")
        return self.memory[0x41000:0x41000 + length]

    def leave(self):
        self.stream.close()
        for fd in self.fds:
            os.close(fd)


def honest_visit(path, mark):
    """Connects, writes, reads, leaves."""
    begun = time.monotonic()
    while True:
        try:
            guest = Guest(path)
            break
        except OSError:
            # The last connection is not over yet.
            if time.monotonic() - begun > STALL_S:
                raise Fault(f"{path}: nobody can connect\n{traceback.format_exc()}") from None
            time.sleep(0.05)
    try:
        guest.request(WRITE, MIB, mark)
        guest.request(FLUSH)
        if guest.request(READ, MIB, length=len(mark)) != mark:
            raise Fault(f"{path}: does not keep what is written")
    except OSError:
        raise Fault(f"{path}: an honest guest is thrown out\n{traceback.format_exc()}") from None
    finally:
        guest.leave()
    return time.monotonic() - begun


class Attacker:
    def __init__(self, path, random, secrets):
        self.path, self.random, self.secrets = path, random, secrets
        self.attacks = [self.rings, self.rings, self.rings, self.ahead, self.again, self.loops, self.taken_away,
                        self.messages, self.messages, self.rudely]

    def attack(self):
        """One attack; its name."""
        attack = self.random.choice(self.attacks)
        try:
            size = self.random.choice([1, 2, 16, 64, 128, 256])
            features = self.random.choice([None, None, ~(1 << 29), ~(1 << 28), self.random.getrandbits(64)])
            self.guest = Guest(self.path, size=size, queues=self.random.randrange(1, 5), features=features)
        except OSError:
            # Thrown out at once: nothing that it negotiated need be served.
            return "none"
        try:
            attack()
        except OSError:
            pass
        try:
            seen = self.guest.memory[:]
        except (ValueError, OSError):
            seen = b""
        self.guest.leave()
        if any(secret in seen for secret in self.secrets):
            raise Fault(f"{attack.__name__}: a guest has seen what another one wrote")
        return attack.__name__

    def value(self, width):
        """A number that is likely to be at some edge."""
        random, most = self.random, (1 << 8 * width) - 1
        return random.choice([0, 1, 2, most, most - 1, most >> 1, (most >> 1) + 1, 255, 256, 257, 4095, 4096, MIB,
                              MIB - 1, random.randint(0, most), random.randrange(512)]) & most

    def spoil(self, start, length, times):
        for _ in range(times):
            width = self.random.choice([1, 2, 4, 8])
            at = start + self.random.randrange(max(1, length - 8))
            self.guest.memory[at:at + width] = self.value(width).to_bytes(width, "little")

    def fill(self, queue):
        """As many requests as there is room for, each as a driver would make it; their heads."""
        guest, random, heads, index = self.guest, self.random, [], 0
        while index + 3 <= min(guest.size, 48):
            kind = random.choice([READ, READ, WRITE, WRITE, FLUSH, ID, DISCARD, ZEROES, 99])
            at, length = 0x40000 + queue * 0x10000 + index * 1024, random.choice([512, 4096, 16384])
            struct.pack_into("<IIQ", guest.memory, at, kind, 0, random.randrange(VOLUME_BYTES // 512 - 64))
            heads.append(index)
            if kind in (DISCARD, ZEROES):
                struct.pack_into("<QII", guest.memory, at + 16, random.randrange(1024), random.randrange(64), 0)
                pieces = [(at, 16, 0), (at + 16, 16, 0), (at + 900, 1, WRITES)]
            elif kind == FLUSH:
                pieces = [(at, 16, 0), (at + 900, 1, WRITES)]
            else:
                data = 0x80000 + random.randrange(0x70000)
                pieces = [(at, 16, 0), (data, length, 0 if kind == WRITE else WRITES), (at + 900, 1, WRITES)]
            if random.random() < 0.3:
                table = at + 512
                for nth, (address, length, flags) in enumerate(pieces):
                    flags |= NEXT if nth + 1 < len(pieces) else 0
                    struct.pack_into("<QIHH", guest.memory, table + 16 * nth, address, length, flags, nth + 1)
                guest.describe(queue, index, table, 16 * len(pieces), INDIRECT)
                index += 1
                continue
            for nth, (address, length, flags) in enumerate(pieces):
                flags |= NEXT if nth + 1 < len(pieces) else 0
                guest.describe(queue, index + nth, address, length, flags, index + nth + 1)
            index += len(pieces)
        return heads

    def rings(self):
        """Rounds of requests, of which bytes are wrong, now or while they are read."""
        guest = self.guest
        for _ in range(self.random.randrange(1, 20)):
            queue = self.random.randrange(guest.queues)
            heads = self.fill(queue)
            self.random.shuffle(heads)
            times = self.random.choice([0, 1, 1, 2, 8])
            where = self.random.choice([(guest.desc(queue), 16 * guest.size), (guest.avail(queue), 6 + 2 * guest.size),
                                        (guest.used(queue), 6 + 8 * guest.size), (0x40000 + queue * 0x10000, 0x10000)])
            if self.random.random() < 0.5:
                self.spoil(*where, times)
                guest.offer(queue, *heads)
            else:
                guest.offer(queue, *heads)
                self.spoil(*where, times * 16)
            time.sleep(self.random.choice([0, 0, 0.001, 0.01]))

    def ahead(self):
        """An index far ahead of what the ring holds."""
        queue = self.random.randrange(self.guest.queues)
        struct.pack_into("<H", self.guest.memory, self.guest.avail(queue) + 2, self.value(2))
        self.guest.kick(queue)
        time.sleep(0.02)

    def again(self):
        """One chain, offered again before it is answered."""
        heads, end = self.fill(0) or [0], time.monotonic() + self.random.random()
        while time.monotonic() < end:
            self.guest.offer(0, *[heads[0]] * self.random.randrange(1, self.guest.size + 1))

    def loops(self):
        """Chains that lead back, out of the table, or into each other."""
        guest = self.guest
        for _ in range(20):
            for index in range(guest.size):
                flags = self.random.choice([NEXT, NEXT | WRITES, INDIRECT, NEXT | INDIRECT, 0, WRITES, 7])
                following = self.random.choice([index, self.random.randrange(guest.size), self.value(2)])
                address = self.random.choice([0x40000, guest.desc(0), self.value(8)])
                guest.describe(0, index, address, self.random.choice([16, 512, self.value(4)]), flags, following)
            guest.offer(0, *[self.random.randrange(guest.size) for _ in range(self.random.randrange(1, 5))])
            time.sleep(0.001)

    def taken_away(self):
        """Memory that is cut off while requests use it. Our own view of it must not be touched afterwards."""
        guest = self.guest
        guest.offer(0, *self.fill(0))
        os.ftruncate(guest.fd, self.random.choice([0, 4096, 0x10000, 0x12000, 0x40000, 0x80000]))
        guest.kick(0)
        time.sleep(self.random.choice([0, 0.01, 0.1]))
        os.ftruncate(guest.fd, MIB)

    def messages(self):
        """Anything that the protocol has, in any order, and much that it has not."""
        guest, random = self.guest, self.random
        guest.stream.settimeout(0.05)
        for _ in range(random.randrange(1, 40)):
            request = random.choice([*range(1, 19), *range(20, 42), self.value(4)])
            queue = random.choice([0, 0, 1, 4, self.value(4)])
            payload = random.choice([
                b"", struct.pack("<Q", self.value(8)), struct.pack("<II", queue, self.value(4)),
                struct.pack("<IIQQQQ", queue, self.value(1), *(BASE + self.value(4) for _ in range(3)), self.value(8)),
                struct.pack("<IIQQQQ", random.choice([0, 1, 2, 8, 9, self.value(4)]), 0, self.value(8), self.value(8),
                            random.choice([BASE, self.value(8)]), self.value(8)),
                struct.pack("<III", self.value(2), self.value(2), 0) + bytes(random.randrange(300)),
                struct.pack("<QQQQQ", 0, self.value(8), self.value(8), self.value(8), self.value(8)),
                random.randbytes(random.randrange(64))])
            fds = [random.choice([guest.fd, guest.kicks[0], 0]) for _ in range(random.choice([0, 0, 1, 1, 2, 9]))]
            head = struct.pack("<III", request, random.choice([1, 1, 1, 9, 5, 0, self.value(4)]),
                               random.choice([len(payload)] * 6 + [self.value(4)]))
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            guest.stream.sendmsg([(head + payload)[:random.choice([None] * 9 + [random.randrange(1, 20)])]], rights)
            if random.random() < 0.2:
                guest.kick(0)
            if random.random() < 0.2:
                try:
                    guest.stream.recv(4096)
                except TimeoutError:
                    pass

    def rudely(self):
        """Leaves with requests under way."""
        for queue in range(self.guest.queues):
            self.guest.offer(queue, *self.fill(queue))


def attacks(path, seed, secrets, end):
    """The process of an attacker."""
    random, counts, slowest = watched.random.Random(seed), {}, 0
    attacker = Attacker(path, random, secrets)
    while time.monotonic() < end:
        name = attacker.attack()
        counts[name] = counts.get(name, 0) + 1
        try:
            slowest = max(slowest, honest_visit(path, random.randbytes(512)))
        except Fault as fault:
            raise Fault(f"after {name}, attack {sum(counts.values())} of {seed!r}: {fault}") from None
    if sum(counts.values()) > 100 and 2 * counts.get("none", 0) > sum(counts.values()):
        raise Fault(f"most attackers did not come in, so little is shown: {counts}")
    return f"{sum(counts.values())} attacks {counts}; served again after {slowest * 1000:.0f} ms at most"


def work(daemon, random):
    minutes = number("GUESTS_MINUTES", 30)
    one = daemon("--vhost-user", os.path.join(os.environ["WORK"], "guests", "vhost"))
    one.pool("4G", "-O", "compression=off")
    for name in ["honest", "secret", *(f"v{nth}" for nth in range(ATTACKERS))]:
        one.root(f"zfs create -V {VOLUME_BYTES} tank/{name}")
    at = lambda name: one.path("vhost", "tank", name)
    one.until(lambda: all(os.path.exists(at(name)) for name in ("honest", "secret", "v2")), 20, "makes its sockets")
    secrets = [random.randbytes(32), random.randbytes(32)]
    keeper = Guest(at("secret"))
    for block in range(64):
        keeper.request(WRITE, block * 16384, secrets[0] * 512)
    keeper.request(FLUSH)
    keeper.leave()
    honest = Guest(at("honest"))

    def reads():
        # Blocks come from the disk, too.
        offset = random.randrange(VOLUME_BYTES // 16384) * 16384
        honest.request(WRITE, offset, secrets[1] * 512)
        if honest.request(READ, offset, length=16384) != secrets[1] * 512:
            raise Fault("an honest guest reads something else than it wrote")

    one.watch(("an honest guest", reads))
    end = time.monotonic() + minutes * 60
    seeds = [f"guest {nth} {random.random()}" for nth in range(ATTACKERS)]
    pipes = [in_process(lambda nth=nth: attacks(at(f"v{nth}"), seeds[nth], secrets, end)) for nth in range(ATTACKERS)]
    one.until_all(pipes)
    one.rest()
    honest.leave()
    keeper = Guest(at("secret"))
    for block in range(64):
        if keeper.request(READ, block * 16384, length=16384) != secrets[0] * 512:
            raise Fault("a guest has changed another one's volume")
    keeper.leave()


watched.run("guests", work)
