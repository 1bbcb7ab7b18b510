"""initiators.py: hostile initiators of iSCSI beside an honest one, for INITIATORS_MINUTES (30).

Three attack at a time: logins without the secret, whose stages, keys and names are wrong; sessions with it, whose PDUs
are wrong in any byte, come twice, in another order, or in part; commands and parameters of SCSI at random. Meanwhile
three hosts walk at random through persistent reservations, and each answer is what SPC-4 says (`Reservations`). No
login may succeed without the secret, nobody may write what is reserved for another, or a snapshot, and after each
attack the target must serve. The daemon starts again twice: kept reservations are there, and no others.
"""

import hashlib
import os
import socket
import struct
import time
import traceback

import watched
from watched import MIB, STALL_S, Fault, exactly, in_process, number, say

ATTACKERS, ROUNDS = 3, 3
USER, SECRET = b"host", b"a secret of hosts"
TARGET = b"iqn.2026-11.org.cenote:tank:"
GOOD, CHECK, CONFLICT, ABORTED = 0, 2, 0x18, 0x40
LOGIN_REPLY, SCSI_REPLY, DATA_IN, R2T = 0x23, 0x21, 0x25, 0x31
OPERATIONAL = [b"HeaderDigest=None", b"DataDigest=None", b"ImmediateData=Yes", b"InitialR2T=Yes",
               b"MaxRecvDataSegmentLength=262144", b"MaxBurstLength=262144", b"FirstBurstLength=65536"]


def pdu(opcode, flags=0x80, data=b"", lun=0, words=(), cdb=b"", ahs=0):
    """A PDU. Words: numbers from byte 16 on."""
    head = bytearray(48)
    head[0], head[1], head[4], head[9] = opcode, flags, ahs, lun
    head[5:8] = len(data).to_bytes(3, "big")
    for at, word in enumerate(words):
        struct.pack_into(">I", head, 16 + 4 * at, word & 0xFFFFFFFF)
    head[32:32 + len(cdb)] = cdb
    return bytes(head[:48]) + data + b"\0" * (-len(data) % 4)


class Initiator:
    """A session; honest, unless `spoil` changes what it sends."""

    def __init__(self, port, name, volume, isid=1, spoil=None, secret=SECRET, said=None):
        self.stream = socket.create_connection(("127.0.0.1", port), STALL_S)
        self.stream.settimeout(STALL_S)
        self.spoil, self.isid = spoil, b"\x80\0\0" + isid.to_bytes(3, "big")
        self.cmd_sn, self.exp_stat_sn, self.tag, self.status, self.challenge = 1, 0, 1, None, None
        names = [b"InitiatorName=" + name, b"SessionType=Normal", b"TargetName=" + TARGET + volume]
        for flags, text in said or [(0x01, names + [b"AuthMethod=CHAP,None"]), (0x01, [b"CHAP_A=5"]),
                                    (0x81, None), (0x87, OPERATIONAL)]:
            if text is None:
                if self.challenge is None:
                    raise ConnectionRefusedError("no challenge")
                digest = hashlib.md5(bytes([self.challenge[0]]) + secret + self.challenge[1]).hexdigest()
                text = [b"CHAP_N=" + USER, b"CHAP_R=0x" + digest.encode()]
            self.send(pdu(0x43, flags, b"".join(pair + b"\0" for pair in text),
                          words=(0, 0, self.cmd_sn, self.exp_stat_sn)), isid=True)
            head, answer = self.receive()
            if head[0] & 0x3F != LOGIN_REPLY:
                raise ConnectionRefusedError(f"opcode {head[0]:#x} in a login")
            self.status = struct.unpack_from(">H", head, 36)[0]
            if self.status:
                raise ConnectionRefusedError(f"{self.status:#06x}")
            self.is_in = head[1] & 0x83 == 0x83
            pairs = dict(pair.partition(b"=")[::2] for pair in answer.split(b"\0"))
            if b"CHAP_C" in pairs and b"CHAP_I" in pairs:
                self.challenge = int(pairs[b"CHAP_I"]), bytes.fromhex(pairs[b"CHAP_C"][2:].decode())
            if self.is_in:
                break

    def send(self, sent, isid=False):
        if isid:
            sent = sent[:8] + self.isid + sent[14:]
        for piece in self.spoil(sent) if self.spoil else [sent]:
            self.stream.sendall(piece)

    def receive(self):
        head = exactly(self.stream, 48)
        length = int.from_bytes(head[5:8], "big")
        data = exactly(self.stream, length + -length % 4)[:length]
        if head[0] & 0x3F in (0x20, 0x21, 0x22, 0x23, 0x25, 0x26):
            self.exp_stat_sn = struct.unpack_from(">I", head, 24)[0] + 1
        return head, data

    def command(self, cdb, out=b"", length=0, lun=0):
        """A SCSI command: its status and data, or sense."""
        flags = 0x81 | (0x20 if out else 0) | (0x40 if length else 0)
        tag, self.tag = self.tag, self.tag + 1
        self.send(pdu(1, flags, out, lun, (tag, len(out) or length, self.cmd_sn, self.exp_stat_sn), cdb))
        self.cmd_sn += 1
        got = b""
        while True:
            head, data = self.receive()
            if struct.unpack_from(">I", head, 16)[0] != tag and not self.spoil:
                continue
            kind = head[0] & 0x3F
            if kind == DATA_IN:
                got += data
                if head[1] & 1:
                    return head[3], got
            elif kind == SCSI_REPLY:
                return head[3], data or got
            elif kind != R2T and self.spoil:
                return None, data

    def patient(self, cdb, **more):
        """The same; news of the target (unit attentions) are heard first. One that another initiator's reset aborts is
        made again."""
        for _ in range(32):
            status, data = self.command(cdb, **more)
            if status != ABORTED and (status != CHECK or len(data) < 5 or data[4] & 15 != 6):
                return status, data
        raise Fault("unit attentions or resets without an end")

    def read(self, block, count=1):
        return self.patient(struct.pack(">BBIBHB", 0x28, 0, block, 0, count, 0), length=512 * count)

    def write(self, block, data):
        return self.patient(struct.pack(">BBIBHB", 0x2A, 0, block, 0, len(data) // 512, 0), out=data)[0]

    def reserve_out(self, action, key, new=0, kind=0, keeps=0):
        parameters = struct.pack(">QQIBBH", key, new, 0, keeps, 0, 0)
        cdb = struct.pack(">BBBBBIB", 0x5F, action, kind, 0, 0, len(parameters), 0)
        return self.patient(cdb, out=parameters)

    def reserve_in(self, action):
        return self.patient(struct.pack(">BBBBBBBHB", 0x5E, action, 0, 0, 0, 0, 0, 4096, 0), length=4096)

    def leave(self):
        self.stream.close()


class Host:
    """An honest initiator. One that is thrown out, as any with the secret may do by TARGET COLD RESET, comes again."""

    def __init__(self, port, name, volume, isid):
        self.who, self.session, self.again = (port, name, volume, isid), None, 0

    def __getattr__(self, name):
        def call(*arguments, **more):
            begun = time.monotonic()
            while True:
                try:
                    self.session = self.session or Initiator(*self.who)
                    return getattr(self.session, name)(*arguments, **more)
                except (OSError, ValueError):
                    if time.monotonic() - begun > STALL_S:
                        raise Fault(f"{self.who}: an honest initiator is not served\n{traceback.format_exc()}") from None
                    self.session, self.again = None, self.again + 1
                    time.sleep(0.01)
        return call


def honest_visit(port, name, volume):
    begun = time.monotonic()
    visitor = Host(port, name, volume, 77)
    status, data = visitor.read(8)
    visitor.leave()
    # Another may have reserved it.
    if status not in (GOOD, CONFLICT) or status == GOOD and len(data) != 512:
        raise Fault(f"{volume}: a read has status {status}, {len(data)} bytes")
    return time.monotonic() - begun


class Attacker:
    COMMANDS = [0x00, 0x03, 0x04, 0x08, 0x0A, 0x12, 0x15, 0x16, 0x17, 0x1A, 0x1B, 0x1E, 0x25, 0x28, 0x2A, 0x2E, 0x2F,
                0x35, 0x3B, 0x3C, 0x41, 0x42, 0x4D, 0x55, 0x5A, 0x5E, 0x5F, 0x83, 0x84, 0x88, 0x89, 0x8A, 0x8E, 0x8F,
                0x91, 0x93, 0x9E, 0xA0, 0xA3, 0xA4, 0xA8, 0xAA]

    def __init__(self, nth, port, random):
        self.nth, self.port, self.random = nth, port, random
        self.name = b"iqn.2026-11.hostile:%d" % nth

    def value(self, width):
        random, most = self.random, (1 << 8 * width) - 1
        return random.choice([0, 1, 2, most, most - 1, most >> 1, (most >> 1) + 1, 255, 256, random.randint(0, most),
                              random.randrange(64)]) & most

    def spoil(self, often):
        """What becomes of a PDU on its way."""
        random, kept = self.random, []

        def change(sent):
            if random.random() > often:
                return [sent]
            sent = bytearray(sent)
            for _ in range(random.choice([1, 1, 2, 8])):
                width = random.choice([1, 1, 2, 4, 8])
                at = random.randrange(48 if random.random() < 0.8 else len(sent))
                sent[at:at + width] = self.value(width).to_bytes(width, "big")
            if self.volume == b"reserved" and sent[32] == 0x5F:
                # With the key of the holder, which it may ask for, it could preempt: that is its right.
                sent[32] = 0x2A
            if random.random() < 0.5:
                # So that it is still a PDU.
                length = max(0, len(sent) - 48)
                sent[4], sent[5:8] = 0, length.to_bytes(3, "big")
            sent = bytes(sent)
            kept.append(sent)
            return random.choice([[sent], [sent], [sent], [sent, sent], [sent[:random.randrange(len(sent))]],
                                  [random.choice(kept), sent], [sent, random.randbytes(random.randrange(200))]])

        return change

    def login(self):
        """Without the secret."""
        random, self.volume = self.random, b"own"
        name = random.choice([
            self.name, b"iqn.x\ny", b"iqn.a\0b", b"IQN.UPPER", b"iqn." + b"a" * 300, b"", b"\xff\xfe", b"iqn.v1_ 0x1:2;",
            "iqn.ß\u202e".encode(), b"eui.0123456789abcdef", b"iqn.2026-11.org.cenote:tank"])
        named = [b"InitiatorName=" + name, random.choice([b"SessionType=Normal", b"SessionType=Discovery", b"X=Y"]),
                 b"TargetName=" + TARGET + random.choice([b"own", b"reserved", b"none", b"own.40kept", b".", b"\xff"])]
        keys = [*named, b"AuthMethod=None", b"AuthMethod=CHAP", b"AuthMethod=CHAP,None", b"CHAP_A=5", b"CHAP_A=7,5",
                b"CHAP_N=" + USER, b"CHAP_N=", b"CHAP_R=0x", b"CHAP_R=0x" + b"00" * 16, b"CHAP_R=0b", b"CHAP_I=1",
                b"CHAP_C=0x00", b"CHAP_C=0x" + b"ab" * 2000, *OPERATIONAL, b"HeaderDigest=CRC32C", b"=", b"A",
                b"MaxBurstLength=99999999999999999999", b"FirstBurstLength=0", b"X=" + b"y" * 9000]
        said = []
        for _ in range(random.randrange(1, 8)):
            text = random.sample(keys, random.randrange(0, 6))
            flags = random.choice([0x80, 0x40, 0xC0, 0, 0]) | random.choice([0, 1, 3]) << 2 | random.choice([1, 3, 0])
            said.append((flags, (named if not said and random.random() < 0.8 else []) + text))
        if random.random() < 0.4:
            # All that an honest one says, with another secret.
            said = None
        session = Initiator(self.port, name, b"own", spoil=self.spoil(random.choice([0, 0.2])), said=said,
                            secret=random.choice([b"", b"another secret", SECRET[:-1]]))
        if session.is_in:
            raise Fault(f"{name}: is let in without the secret")
        session.leave()

    def session(self):
        """With the secret: what somebody may send who has it."""
        random = self.random
        self.volume = random.choice([b"own", b"own", b"reserved", b"own.40kept"])
        session = Initiator(self.port, self.name, self.volume, isid=random.randrange(1, 4))
        session.spoil = self.spoil(random.choice([0, 0.1, 0.5, 1]))
        session.stream.settimeout(0.05)
        for _ in range(random.randrange(1, 40)):
            kind = random.choice(["command"] * 6 + ["nop", "task", "text", "data", "snack", "logout", "login", "any"])
            sn = (session.tag, self.value(4), session.cmd_sn, session.exp_stat_sn)
            session.tag += 1
            try:
                if kind == "command":
                    opcode = random.choice(self.COMMANDS)
                    if opcode == 0x5F and self.volume == b"reserved":
                        continue
                    length = random.choice([0, 0, 8, 24, 36, 512, 4096, 8192])
                    cdb = bytes([opcode]) + random.choice([random.randbytes(15), bytes(15), struct.pack(
                        ">BIBHB", 0, random.randrange(128), 0, length // 512, 0)])
                    if random.random() < 0.5:
                        session.command(cdb, length=length, lun=random.choice([0, 0, 0, 1, 255]))
                    else:
                        session.command(cdb, out=self.parameters(opcode, length))
                elif kind == "data":
                    session.send(pdu(5, random.choice([0x80, 0]), random.randbytes(512), words=(*sn, 0, *sn[:3])))
                elif kind == "any":
                    session.send(pdu(random.randrange(64), self.value(1), random.randbytes(random.randrange(64)),
                                     words=[self.value(4) for _ in range(8)]))
                else:
                    opcode = {"nop": 0x40, "task": 2, "text": 4, "snack": 0x10, "logout": 6, "login": 0x43}[kind]
                    data = random.choice([b"", b"SendTargets=All\0", random.randbytes(32)]) if kind in ("nop", "text") else b""
                    flags = 0x80 | (random.choice([1, 2, 3, 5, 6, 7, 8, 127]) if kind == "task" else random.randrange(3))
                    session.send(pdu(opcode, flags, data, words=sn))
                    session.cmd_sn += kind in ("text", "logout")
            except TimeoutError:
                pass
        session.leave()

    def parameters(self, opcode, length):
        random = self.random
        if opcode == 0x5F:
            return struct.pack(">QQIBBH", random.randrange(4), random.randrange(4), 0, random.randrange(16), 0, 0)
        if opcode == 0x42:
            return struct.pack(">HHIQII", 22, 16, 0, self.value(8), self.value(4), 0)
        if opcode in (0x15, 0x55, 0x83):
            return bytes(random.choice([self.value(1), 0, random.randrange(32)]) for _ in range(length or 24))
        return random.randbytes(length) or b"x" * 512

    def attack(self):
        attack = self.random.choice([self.login, self.session])
        try:
            attack()
        except (OSError, ValueError):
            pass
        return attack.__name__


class Reservations:
    """Persistent reservations of one unit, as SPC-4 (5.13) has them."""

    KINDS = {1: "write", 3: "all", 5: "write", 6: "all", 7: "write", 8: "all"}

    def __init__(self):
        self.keys, self.held, self.is_kept = {}, None, False

    def holds(self, who):
        return bool(self.held) and (who in self.keys if self.held[1] > 6 else self.held[0] == who)

    def remove(self, gone):
        self.keys = {who: key for who, key in self.keys.items() if who not in gone}
        if self.held and (not self.keys if self.held[1] > 6 else self.held[0] in gone):
            self.held = None

    def may(self, who, does):
        if not self.held or self.holds(who) or self.held[1] >= 5 and who in self.keys:
            return True
        return self.KINDS[self.held[1]] == "write" and does == "read"

    def out(self, who, action, key, new, kind, keeps):
        mine = self.keys.get(who)
        if action in (0, 6):
            if action == 0 and (mine or 0) != key:
                return CONFLICT
            if mine is None and not new:
                self.is_kept = bool(keeps)
                return GOOD
            if new:
                self.keys[who] = new
            else:
                self.remove({who})
            self.is_kept = bool(keeps)
            return GOOD
        if mine is None or mine != key:
            return CONFLICT
        if action == 1:
            if self.held and not (self.holds(who) and self.held[1] == kind):
                return CONFLICT
            self.held = self.held or (who, kind)
        elif action == 2:
            if self.holds(who):
                if self.held[1] != kind:
                    return CHECK
                self.held = None
        elif action == 3:
            self.keys, self.held = {}, None
        else:
            takes_all = bool(self.held) and self.held[1] > 6 and new == 0
            takes_held = takes_all or bool(self.held) and self.held[1] < 7 and self.keys[self.held[0]] == new
            if new == 0 and not takes_all:
                return CHECK
            if not takes_held and new not in self.keys.values():
                return CONFLICT
            self.remove({other for other, theirs in self.keys.items() if other != who and (takes_all or theirs == new)})
            if takes_held:
                self.held = (who, kind)
        return GOOD


class Hosts:
    """Hosts that share a unit; each answer is compared with the model."""

    def __init__(self, port, random):
        self.port, self.random, self.model, self.steps = port, random, Reservations(), 0
        self.hosts = {}
        self.generation_was = None

    def host(self, nth):
        if nth not in self.hosts:
            self.hosts[nth] = Initiator(self.port, b"iqn.2026-11.hosts:%d" % nth, b"shared", isid=9)
        return self.hosts[nth]

    def step(self):
        random, model = self.random, self.model
        nth = random.randrange(3)
        host = self.host(nth)
        what = random.choice(["out"] * 5 + ["read", "write", "look", "leave"])
        self.steps += 1
        if what == "out":
            action = random.choice([0, 0, 6, 1, 1, 2, 3, 4, 5] if random.random() < 0.7 else [0, 1, 4])
            key = random.choice([model.keys.get(nth, 0)] * 5 + [random.randrange(4)])
            new = random.randrange(4) if action in (0, 6) else random.choice([*model.keys.values(), 0, 3])
            kind, keeps = random.choice([*model.KINDS, *([model.held[1]] * 4 if model.held else [])]), random.randrange(2)
            shown = f"host {nth}: action {action}, key {key}, new key {new}, type {kind}, APTPL {keeps}; before " \
                    f"{model.keys} {model.held}"
            wanted = model.out(nth, action, key, new, kind, keeps)
            if (status := host.reserve_out(action, key, new, kind, keeps)[0]) != wanted:
                raise Fault(f"{shown}: status {status:#x}, and it should be {wanted:#x}")
        elif what == "leave":
            self.hosts.pop(nth).leave()
        elif what == "look":
            self.look(nth)
        else:
            status = host.read(0)[0] if what == "read" else host.write(0, bytes(512))
            if (status == GOOD) != model.may(nth, what) or status not in (GOOD, CONFLICT):
                raise Fault(f"host {nth} would {what}: status {status:#x}; {model.keys} {model.held}")

    def look(self, nth=0):
        """What the target says of all of it."""
        _, told = self.host(nth).reserve_in(0)
        keys = sorted(struct.unpack(f">{len(told) // 8 - 1}Q", told[8:8 + (len(told) - 8) // 8 * 8]))
        _, told = self.host(nth).reserve_in(1)
        held = told[8 + 13] & 15 if len(told) >= 24 else None
        if keys != sorted(self.model.keys.values()) or held != (self.model.held[1] if self.model.held else None):
            raise Fault(f"the target tells of keys {keys}, held {held}; the model {self.model.keys} {self.model.held}")

    def restarted(self):
        self.hosts.clear()
        if not self.model.is_kept:
            self.model = Reservations()
        self.look()


def attacks(nth, port, random, end):
    attacker, counts, slowest = Attacker(nth, port, random), {}, 0
    while time.monotonic() < end:
        name = attacker.attack()
        counts[name] = counts.get(name, 0) + 1
        try:
            slowest = max(slowest, honest_visit(port, attacker.name, b"own"))
        except Fault as fault:
            raise Fault(f"after {name}, attack {sum(counts.values())}: {fault}") from None
    return f"attacks {counts}, served again after {slowest * 1000:.0f} ms at most"


def hosts_walk(hosts, end):
    while time.monotonic() < end:
        for _ in range(20):
            hosts.step()
    for host in hosts.hosts.values():
        host.leave()
    return hosts.model, hosts.steps


def work(daemon, random):
    minutes = number("INITIATORS_MINUTES", 30)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    accounts = os.path.join(os.environ["WORK"], "accounts")
    with open(os.open(accounts, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f'[[initiator]]\nuser = "{USER.decode()}"\nsecret = "{SECRET.decode()}"\n'
                   '[target]\nuser = "storage"\nsecret = "another secret of it"\n')
    one = daemon("--iscsi", f"127.0.0.1:{port}", "--iscsi-accounts", accounts, "--insecure")
    one.pool("2G")
    for name in ("own", "reserved", "shared"):
        one.root(f"zfs create -V 16M -b 4K tank/{name}")
    first = Initiator(port, b"iqn.2026-11.honest:1", b"own", isid=5)
    before = random.randbytes(MIB)
    for block in range(0, MIB // 512, 64):
        first.write(block, before[block * 512:block * 512 + 32768])
    first.leave()
    one.root("zfs snapshot tank/own@kept")
    hosts, count = Hosts(port, random), 0
    for turn in range(ROUNDS):
        holder = Host(port, b"iqn.2026-11.honest:1", b"reserved", 5)
        if turn:
            keys = holder.reserve_in(0)[1]
            if keys[8:16] != struct.pack(">Q", 42):
                raise Fault(f"a reservation that was to be kept is not: {keys.hex()}")
        else:
            assert holder.reserve_out(0, 0, 42, keeps=1)[0] == GOOD and holder.reserve_out(1, 42, kind=1)[0] == GOOD
        written = {}

        def writes():
            block = random.randrange(1024) * 8
            for at, data in list(written.items())[-3:]:
                if holder.read(at, 8) != (GOOD, data):
                    raise Fault("what is reserved for one was changed by another")
            written.pop(block, None)
            written[block] = random.randbytes(4096)
            if holder.write(block, written[block]) != GOOD:
                raise Fault("the holder of a reservation can't write")

        one.watch(("the holder of a reservation", writes))
        end = time.monotonic() + minutes * 60 / ROUNDS
        seeds = [watched.random.Random(f"{random.random()}") for _ in range(ATTACKERS)]
        pipes = [in_process(lambda nth=nth, seed=seed: attacks(nth, port, seed, end)) for nth, seed in enumerate(seeds)]
        walking = in_process(lambda: hosts_walk(hosts, end))
        left = {walking, *pipes}
        while left:
            one.check()
            for pipe in list(left):
                if pipe.poll(0.2):
                    is_well, told = pipe.recv()
                    if not is_well:
                        one.check()
                        raise Fault(told)
                    left.remove(pipe)
                    if pipe is walking:
                        hosts.model, hosts.steps = told
                    else:
                        say(told)
                        count += 1
        one.rest()
        for block, data in written.items():
            if holder.read(block, 8) != (GOOD, data):
                raise Fault("what is reserved for one was changed by another")
        holder.leave()
        kept = Initiator(port, b"iqn.2026-11.honest:1", b"own.40kept", isid=5)
        for block in range(0, MIB // 512, 64):
            if kept.read(block, 64) != (GOOD, before[block * 512:block * 512 + 32768]):
                raise Fault("a snapshot was changed")
        kept.leave()
        say(f"round {turn + 1}: the holder came again {holder.again} times; {hosts.steps} steps with reservations; {hosts.model.keys} {hosts.model.held}, kept: "
            f"{hosts.model.is_kept}")
        hosts.hosts.clear()
        hosts.look()
        one.restart()
        hosts.restarted()


watched.run("initiators", work)
