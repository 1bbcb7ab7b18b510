"""users.py: local users with no rights but those of their files: USERS_STEPS (100000) operations, and commands.

Two users do everything that the kernel has for files, also as root of a user namespace, with files of root, of each
other and their own. All is done in a twin in tmpfs, too (`twin.py`), which says what they may: it is a fault if
something succeeds that is refused there for lack of rights, and if the trees differ afterwards. Others keep the
daemon's socket busy: commands of all verbs, as lines and as requests whose fields are wrong; wrong and endless
requests, idle connections, full pipes. No secret is told, no snapshot comes or goes, no door opens, and nobody takes
more room than the quota.
"""

import json
import os
import socket
import struct
import subprocess
import time

import twin
import watched
from watched import As, Fault, captured, command, exactly, exchange, heed_version, in_process, number, protocol, say

ONE, TWO, THREE = 31001, 31002, 31003
# Command lines from which the program makes requests of verbs; fields of these are then changed.
REQUESTS = """zfs list -r -t all -o name,used tank|zfs get -r all tank|zfs create -o quota=1G tank/shared/x
zfs create -V 8M tank/shared/v|zfs destroy -r tank/shared|zfs destroy tank/shared@kept|zfs snapshot -r tank/shared@new
zfs bookmark tank/shared@kept tank/shared#kept|zfs hold tag tank/shared@kept|zfs release tag tank/shared@kept
zfs rollback -r tank/shared@kept|zfs clone tank/shared@kept tank/clone|zfs promote tank/shared
zfs rename tank/shared tank/other|zfs set compression=on tank/shared|zfs set mountpoint=/etc/cron.d tank/shared
zfs inherit compression tank/shared|zfs allow -u 31003 create,mount tank/shared|zfs unallow -e tank/shared
zfs allow tank/shared|zfs unload-key -a|zfs change-key -i tank/shared|zfs mount tank/shared|zfs unmount -f tank/shared
zfs mount -a|zfs userspace tank/shared|zfs holds -r tank/shared@kept|zfs diff tank/shared@kept|zfs wait tank/shared
zfs send tank/shared@kept|zfs receive tank/received|zpool list tank|zpool status -v tank|zpool get all tank
zpool set delegation=off tank|zpool scrub tank|zpool trim tank|zpool offline tank FILE|zpool clear tank
zpool checkpoint tank|zpool export -f tank|zpool destroy -f tank|zpool reguid tank|zpool create -f new FILE
zpool add -f tank FILE|zpool attach -f tank FILE FILE|zpool replace tank FILE FILE|zpool split tank half
zpool import -f -d FILE|zpool history tank|zpool events|zpool sync tank|zpool initialize tank|zpool upgrade -a
cat tank/shared:/secret|ls tank/shared:/|stat tank/shared:/secret|du tank/shared:/|find tank/shared:/
mkdir tank/shared:/made|rm -r tank/shared:/secret|volume clients|arcstat|kstat|inject|tunable
tunable zfs_arc_max=67108864|verify tank|scan tank/shared:/"""
BATCH = 25
QUOTA_MIB = 64


def walk(trees, seed, count, secret):
    """Steps of one user, in both trees: differences, and what was done."""
    random, told, done = watched.random.Random(seed), [], 0
    for _ in range(count):
        what = twin.chosen(random)
        if is_known(what, trees[1]):
            continue
        here, there = (twin.perform(tree, what) for tree in trees)
        if what[0] == "copy" and here == ("ok", 0) and there[0] in twin.DENIALS:
            # An immutable file was opened, and nothing written: see `is_known`.
            continue
        done += here[0] == "ok"
        if secret in repr(here[1]).encode() and secret not in repr(there[1]).encode():
            told.append(("a secret is told", what, here, there))
        elif here[0] == "ok" and there[0] in twin.DENIALS:
            told.append(("more than the twin allows", what, here, there))
        elif (here[0] == "ok") != (there[0] == "ok"):
            # From here on the trees differ.
            told.append(("another outcome", what, here, there))
            break
        elif here[0] == "ok" and what[0] in ("read", "getxattr") and here[1] != there[1]:
            told.append(("something else is read", what, here, there))
    return told, done


def is_known(what, tree):
    """Whether the kernel does it otherwise than in the twin, and nothing follows from that."""
    if what[0] == "chown" and what[2:] == (-1, -1):
        # FUSE's kernel leaves set-id bits to the file system, which only takes them where a file changes.
        return True
    if not isinstance(what[1], str) or os.path.basename(os.path.realpath(f"{tree}/{what[1]}")) not in (
            "immutable", "append"):
        return False
    # They can be opened and mapped, not changed: docs/mount.md says why; and room is allowed for. A default ACL that
    # no file has is removed without asking anybody.
    return what[0] in ("open", "make", "map") or what[0] == "allocate" and what[2] < 2 or \
        what[0] in ("setxattr", "removexattr") and what[2] == "system.posix_acl_default"


def control(tree, random_seed, secret):
    """What nobody may do in `.zfs`: what succeeded all the same."""
    random = watched.random.Random(random_seed)
    folder, kept = f"{tree}/.zfs/snapshot", f"{tree}/.zfs/snapshot/kept"
    succeeded = []
    for name, work in {
        "mkdir": lambda: os.mkdir(f"{folder}/mine"), "rmdir": lambda: os.rmdir(kept),
        "rename": lambda: os.rename(kept, f"{folder}/other"), "unlink": lambda: os.unlink(f"{kept}/secret"),
        "read": lambda: open(f"{kept}/secret", "rb").read(), "inside": lambda: open(f"{kept}/private/inside").read(),
        "write": lambda: open(f"{kept}/readable", "w"), "chmod": lambda: os.chmod(f"{kept}/one/own", 0o777),
        "chown": lambda: os.chown(folder, os.getuid(), -1), "xattr": lambda: os.setxattr(folder, "user.x", b"x"),
        "system": lambda: os.setxattr(f"{kept}/readable", "system.x", b"x"), "make": lambda: open(f"{folder}/x", "w"),
        "link": lambda: os.link(f"{kept}/one/own", f"{tree}/open/linked"), "zfs": lambda: os.rmdir(f"{tree}/.zfs"),
        "shares": lambda: os.mkdir(f"{tree}/.zfs/shares/x"), "flags": lambda: twin.set_flags(f"{kept}/readable", 16),
    }.items():
        if random.random() < 0.5:
            try:
                work()
                succeeded.append(name)
            except OSError:
                pass
    return succeeded


def doors(pid, folder, mounts):
    """Everything of the daemon that is not for users: what of it opens."""
    found = []
    for path in [f"/proc/{pid}/{name}" for name in ("mem", "environ", "maps", "fd", "root/etc", "cwd/x", "stack", "io")] + [
            f"{folder}/{name}" for name in ("pools.json", "http-token", "connections", "disks/a")] + mounts:
        for flags in (os.O_RDONLY, os.O_RDWR):
            try:
                os.close(os.open(path, flags))
                # Others may see which pools there are.
                if flags != os.O_RDONLY or os.path.basename(path) not in ("pools.json", "connections"):
                    found.append((path, flags))
            except OSError:
                pass
    for path in (f"{folder}/nbd", f"{folder}/http", f"{folder}/vhost/tank/vol"):
        with socket.socket(socket.AF_UNIX) as stream:
            try:
                stream.connect(path)
                found.append((path, "connect"))
            except OSError:
                pass
    for name, work in {"kill": lambda: os.kill(pid, 0), "file": lambda: open(f"{folder}/x", "w"),
                       "rename": lambda: os.rename(f"{folder}/socket", f"{folder}/s"),
                       "unlink": lambda: os.unlink(f"{folder}/socket"),
                       "umount": lambda: twin.checked(twin.LIBC.umount2(f"{folder}/mnt".encode(), 2))}.items():
        try:
            work()
            found.append((name, "done"))
        except OSError:
            pass
    return found


def hoard(tree, turn):
    """Takes room, in attributes and names, that has to be given within the next txg: MiB, and whether there was any."""
    path = f"{tree}/one/hoard{turn}"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        for nth in range(8 << 4):
            os.setxattr(path, f"user.n{nth}", os.urandom(65000))
    except OSError:
        return False
    return True


class Commands:
    """A user at the socket."""

    def __init__(self, path, random, openapi, secret, file, asked):
        self.path, self.random, self.secret, self.file, self.asked, self.kept = path, random, secret, file, asked, []
        with open(openapi) as document:
            paths = json.load(document)["paths"]
        self.verbs = {name[4:].replace("/", " "): methods for name, methods in paths.items() if name.startswith("/v1/")}
        # By kind, and by exit status; None: there was none.
        self.counts = {}

    def word(self):
        return self.random.choice([
            "tank", "tank/shared", "tank/shared@kept", "tank:/", "tank/shared:/secret", self.file, "-r", "-a", "-f", "-v",
            "--json", "--disks=" + os.path.dirname(self.file), "--key=tank=file:" + self.file, "--rewind", "--checkpoint",
            "--txg=5", "--replay", "on", "compression=on", "name", "all", "/etc/shadow", "--", "", "\0", "-" * 50,
            "x" * 3000, "--threads=1024", "--cache=1E", "file://" + self.file, "@", "*", "../..", "-o", "-p", "-H"])

    def step(self):
        kind = self.random.choice(["line"] * 6 + ["request"] * 6 + ["raw", "raw", "idle", "pipe", "large", "streams"])
        status = None
        try:
            status = getattr(self, kind)()
        except (ConnectionError, TimeoutError):
            pass
        counts = self.counts.setdefault(kind, {})
        counts[status] = counts.get(status, 0) + 1

    def line(self):
        verb = self.random.choice([*self.verbs, "serve", "guard", "mount", "rescue", "dump", "top", "completions", "demo"])
        words = [*verb.split(), *(self.word() for _ in range(self.random.randrange(5)))]
        if not protocol().has_lines:
            # The program would read them here, with the user's rights.
            return self.request()
        answer = command(self.path, ["cenote", *words], cwd=self.random.choice(["/", "/root", "/etc"]),
                         env=[("NO_COLOR", "1"), ("CENOTE_DISKS", "/")], patience_s=10)
        looks = (self.looks(verb) or any(word in ("-h", "--help") for word in words)
                 or verb in ("top", "tunable", "zfs allow", "zfs mount", "kstat", "arcstat", "completions"))
        return self.judged(words, answer, looks)

    def judged(self, what, answer, looks):
        if answer.has(self.secret):
            raise Fault(f"a secret is told to {what}")
        if answer.status == 0 and not looks:
            raise Fault(f"a user without rights: {what} succeeds: {answer.text[:300]}")
        return answer.status

    def looks(self, verb):
        return "get" in self.verbs.get(verb, {})

    def request(self):
        """A verb's request, of which some fields are others."""
        random, asked = self.random, json.loads(json.dumps(self.random.choice(self.asked)))
        for _ in range(random.choice([0, 0, 1, 1, 2, 8])):
            asked["request"] = self.changed(asked["request"])
        if random.random() < 0.1:
            asked["verb"] = random.choice([*self.verbs, self.word()])
        has_keys = random.random() < 0.1
        if has_keys:
            key = [list(random.randbytes(32)), None]
            asked["keys"] = random.choice([{"tank": [key]}, {self.word(): [key] * 99}, {self.word(): []}, [], None])
        asked["command"] = random.choice([asked["command"], "x\n" * 999, self.word()])
        # Those that show or change, as their words say.
        looks = self.looks(asked["verb"]) or asked["verb"] in ("tunable", "zfs allow", "zfs mount", "kstat", "arcstat")
        cwd = random.choice(["/", "/root", os.path.dirname(self.file)])
        answer = exchange(self.path, protocol().request(asked, cwd=cwd), patience_s=10, is_right=not has_keys)
        return self.judged(asked, answer, looks)

    def changed(self, value):
        """A value of JSON, with another value somewhere in it."""
        random = self.random
        if isinstance(value, dict) and value and random.random() < 0.95:
            name = random.choice([*value])
            if random.random() < 0.1:
                return {other: of for other, of in value.items() if other != name}
            return {**value, name: self.changed(value[name])}
        if isinstance(value, list) and value and random.random() < 0.8:
            at = random.randrange(len(value))
            return [*value[:at], self.changed(value[at]), *value[at + 1:]]
        return random.choice([
            None, True, False, 0, 1, -1, 3.5, (1 << 64) - 1, 1 << 64, self.word(), self.word(), self.word(), [], {},
            [self.word()] * 3, list(self.word().encode()), {self.word(): self.word()}, [[[[]]]], {"all": {}}, {"at": 0}])

    def connect(self):
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(5)
        stream.connect(self.path)
        return stream

    def raw(self):
        """Anything that is no request."""
        random = self.random
        line = protocol().request()
        with self.connect() as stream, open(os.devnull, "r+b") as null:
            json_bytes = random.choice([
                b"", b"{}", b"[" * 60000, random.randbytes(500), line.replace(b'"version": ', b'"version": 9'),
                line.replace(b"null", b"[[65535,65535],[0,0]]"), line.replace(b"null", b"[" * 500), line[:-1], line * 2,
                line.replace(b'"verb": ', b'"verb": ["a"], "verb": '), line.replace(b'"request": {', b'"request": {' * 5000),
                b'{"files": 4294967295, ' + line.replace(b'"files"', b'"file"')[1:],
                protocol().request(cwd="\0" * 9000, env=[("A", b"\0")] * 999)])
            length = random.choice([len(json_bytes)] * 3 + [0, 1, 65536, 65537, 1 << 24, (1 << 32) - 1])
            fds = [null.fileno()] * random.choice([3, 3, 3, 0, 1, 2, 4, 100])
            socket.send_fds(stream, [struct.pack("<I", length)[:random.choice([4, 4, 4, 1])]], fds)
            stream.sendall(json_bytes)
            if random.random() < 0.5:
                stream.shutdown(socket.SHUT_WR)
                stream.recv(65536)

    def idle(self):
        """Says nothing, for a while."""
        self.keep(self.connect())

    def pipe(self):
        """A command whose output nobody takes."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 65536)
        except BlockingIOError:
            pass
        # As a line, and as a verb that writes to the stream itself.
        lines = [protocol().request(one) for one in self.asked if one["verb"] in ("zfs get", "zfs send")]
        if protocol().has_lines:
            lines.append(protocol().request(argv=["cenote", "zfs", "get", "all"]))
        line = self.random.choice(lines)
        stream = self.connect()
        with open(os.devnull, "rb") as null:
            streams = [null.fileno(), writer, writer][:protocol().streams]
            socket.send_fds(stream, [struct.pack("<I", len(line))], streams)
        stream.sendall(line)
        os.close(writer)
        os.close(reader)
        self.keep(stream)

    def keep(self, stream):
        self.kept.append(stream)
        while len(self.kept) > 200:
            self.kept.pop(0).close()

    def large(self):
        with self.connect() as stream, open(os.devnull, "r+b") as null:
            body = protocol().request()[:-1] + b', "more": [' + b"[1]," * 4_000_000
            socket.send_fds(stream, [struct.pack("<I", len(body))], [null.fileno()] * protocol().streams)
            stream.sendall(body)

    def streams(self):
        """Streams of every kind: what is not the user's must not be written."""
        with self.connect() as stream, open("/etc/hostname", "rb") as file, open(os.devnull, "r+b") as null:
            line = protocol().request()
            out = self.random.choice([file.fileno(), stream.fileno(), null.fileno()])
            socket.send_fds(stream, [struct.pack("<I", len(line))], [null.fileno(), out, out][:protocol().streams])
            stream.sendall(line)
            kind, length = struct.unpack("<BI", exactly(stream, 5))
            if kind == 3:
                heed_version(exactly(stream, length))


def all_counted(counts):
    """What was done at the socket must not have been refused throughout: then it would show nothing."""
    every = {}
    for of_one in counts:
        for kind, statuses in of_one.items():
            for status, count in statuses.items():
                every.setdefault(kind, {}).setdefault(status, 0)
                every[kind][status] += count
    for kind in ("line", "request"):
        statuses = every.get(kind, {})
        if sum(statuses.values()) > 200 and (not statuses.get(0) or not statuses.get(1)):
            raise Fault(f"no {kind} at the socket was carried out, or none was refused for lack of rights: {every}")
    return every


def at_the_socket(uid, make, end):
    """A process of a user, until then."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    commands = make()
    while time.monotonic() < end():
        commands.step()
    return commands.counts


def work(daemon, random):
    steps = int(number("USERS_STEPS", 100_000))
    folder = os.path.join(os.environ["WORK"], "users")
    one = daemon("--vhost-user", f"{folder}/vhost", "--nbd", f"unix:{folder}/nbd", "--http", f"unix:{folder}/http")
    one.pool("2G", "-O", "acltype=posix", "-O", "xattr=sa")
    one.root("zfs create tank/shared")
    one.root("zfs create -V 16M tank/vol")
    one.root(f"zfs set userquota@{ONE}={QUOTA_MIB}M tank/shared")
    secret = b"s3cret" + random.randbytes(12).hex().encode()
    file = one.path("secret")
    with open(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as made:
        made.write(secret)
    here, there = one.path("mnt", "shared"), one.path("twin")
    twin.mount_twin(there)
    # Both are folders in which anybody makes names.
    trees = (here, there)
    try:
        attack(one, random, steps, trees, secret, file)
    finally:
        subprocess.run(["umount", "-l", there], check=False)
    one.rest()


def settled(one):
    """What no user may change."""
    looks = ("zfs list -Hp -r -t all -o name,guid tank", "zfs get -Hp -r -s local all tank", "zfs allow -j tank/shared",
             "zpool get -Hp -o property,value delegation,bootfs,autotrim tank", "tunable", "inject")
    with open("/proc/self/mounts") as table:
        return [*(one.root(line) for line in looks), [line for line in table if one.folder in line]]


def attack(one, random, steps, trees, secret, file):
    os.chmod(trees[0], 0o777)
    plant = lambda: [twin.plant(tree, (ONE, TWO), secret) for tree in trees]
    plant()
    one.root("zfs snapshot tank/shared@kept")
    kept = settled(one)
    workers = [As(ONE, [ONE, twin.GROUP]), As(TWO, [TWO])]
    here = trees[0]
    with open(f"{here}/../probe", "wb") as readable:
        readable.write(bytes(65536))

    def reads():
        with open(f"{here}/../probe", "rb") as readable:
            os.posix_fadvise(readable.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            readable.read()

    one.watch(("root's reads", reads))
    with open("/proc/self/mounts") as table:
        devices = [line.split()[0] for line in table if line.split()[1].startswith(one.folder)]
    devices = [device for device in devices if device.startswith("/dev/")]
    for worker in workers:
        found = worker.call(doors, one.process.pid, one.folder, devices)
        if found:
            raise Fault(f"user {worker.uid} gets in: {found}")
    openapi = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "openapi.json")
    end = time.monotonic() + 1e9
    seed = random.random()
    over = one.path("over")
    lines = (line.replace("FILE", one.path("disks", "a")) for line in REQUESTS.replace("\n", "|").split("|"))
    asked = [line["asking"] for line, _ in captured(lines)]
    make = lambda: Commands(one.socket, watched.random.Random(seed), openapi, secret, file, asked)
    socketeers = [in_process(lambda uid=uid: at_the_socket(uid, make, lambda: 0 if os.path.exists(over) else end))
                  for uid in (THREE, THREE + 1)]
    counts, others, done = [], {}, 0
    for step in range(0, steps, BATCH):
        worker = random.choice(workers)
        told, count = worker.call(walk, trees, f"{random.random()}", BATCH, secret)
        done += count
        differ = [item for item in told if item[0] != "another outcome"]
        if differ:
            raise Fault(f"user {worker.uid}: {differ}")
        for _, what, ours, theirs in told:
            key = (what[0], *[word for word in what[1:] if isinstance(word, str) and "." in word], ours[0], theirs[0])
            others[key] = others.get(key, 0) + 1
        states = [twin.seen(tree) for tree in trees] if not told else [0, 0]
        if states[0] != states[1]:
            differ = {name: (states[0].get(name), states[1].get(name)) for name in {*states[0], *states[1]}
                      if states[0].get(name) != states[1].get(name)}
            raise Fault(f"after a batch of user {worker.uid}: other than the twin: {differ}")
        if told or random.random() < 0.1:
            plant()
        if step % (BATCH * 40) == 0:
            succeeded = worker.call(control, here, f"{random.random()}", secret)
            if succeeded:
                raise Fault(f"user {worker.uid} in .zfs: {succeeded}")
            if (now := settled(one)) != kept:
                raise Fault(f"something changed that users may not change: {[*zip(kept, now)]}")
        for pipe in socketeers:
            if pipe.poll():
                raise Fault(f"a user at the socket: {pipe.recv()}")
        one.check()
    turns = 0
    while workers[0].call(hoard, here, turns):
        # Quotas are checked against the use as of the last txg.
        one.root("zpool sync tank")
        turns += 1
        if 8 * turns > 2 * QUOTA_MIB:
            raise Fault(f"{8 * turns} MiB of attributes with a quota of {QUOTA_MIB} MiB")
    open(over, "w").close()
    for pipe in socketeers:
        is_well, told = pipe.recv()
        if not is_well:
            raise Fault(told)
        counts.append(told)
    for worker in workers:
        worker.end()
    say(f"{steps} operations, {done} done in both trees; other outcomes without more rights: {others}")
    say(f"attributes with a quota of {QUOTA_MIB} MiB: {8 * turns} MiB; at the socket: {all_counted(counts)}")


watched.run("users", work)
