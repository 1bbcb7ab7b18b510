"""users.py: local users with no rights but those of their files: USERS_STEPS (100000) operations, and commands.

Two users do everything that the kernel has for files, also as root of a user namespace, with files of root, of each
other and their own. All is done in a twin in tmpfs, too (`twin.py`), which says what they may: it is a fault if
something succeeds that is refused there for lack of rights, and if the trees differ afterwards. Others keep the
daemon's socket busy: commands of all verbs, wrong and endless requests, idle connections, full pipes. No secret is
told, no snapshot comes or goes, no door opens, and nobody takes more room than the quota.
"""

import json
import os
import socket
import struct
import subprocess
import time

import twin
import watched
from watched import As, Fault, command, in_process, number, say

ONE, TWO, THREE = 31001, 31002, 31003
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

    def __init__(self, path, random, openapi, secret, file):
        self.path, self.random, self.secret, self.file, self.kept = path, random, secret, file, []
        with open(openapi) as document:
            paths = json.load(document)["paths"]
        self.verbs = {name[4:].replace("/", " "): methods for name, methods in paths.items() if name.startswith("/v1/")}
        self.counts = {}

    def word(self):
        return self.random.choice([
            "tank", "tank/shared", "tank/shared@kept", "tank:/", "tank/shared:/secret", self.file, "-r", "-a", "-f", "-v",
            "--json", "--disks=" + os.path.dirname(self.file), "--key=tank=file:" + self.file, "--rewind", "--checkpoint",
            "--txg=5", "--replay", "on", "compression=on", "name", "all", "/etc/shadow", "--", "", "\0", "-" * 50,
            "x" * 3000, "--threads=1024", "--cache=1E", "file://" + self.file, "@", "*", "../..", "-o", "-p", "-H"])

    def step(self):
        kind = self.random.choice(["line"] * 12 + ["raw", "raw", "idle", "pipe", "large", "streams"])
        self.counts[kind] = self.counts.get(kind, 0) + 1
        try:
            getattr(self, kind)()
        except (ConnectionError, TimeoutError):
            pass

    def line(self):
        verb = self.random.choice([*self.verbs, "serve", "guard", "mount", "rescue", "dump", "top", "completions", "demo"])
        words = [*verb.split(), *(self.word() for _ in range(self.random.randrange(5)))]
        answer = command(self.path, ["cenote", *words], cwd=self.random.choice(["/", "/root", "/etc"]),
                         env=[("NO_COLOR", "1"), ("CENOTE_DISKS", "/")], patience_s=10)
        if answer.has(self.secret):
            raise Fault(f"a secret is told to {words}")
        looks = ("get" in self.verbs.get(verb, {}) or any(word in ("-h", "--help") for word in words)
                 or verb in ("top", "tunable", "zfs allow", "zfs mount", "kstat", "arcstat", "completions"))
        if answer.status == 0 and not looks:
            raise Fault(f"a user without rights: {words} succeeds: {answer.text[:300]}")

    def connect(self):
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(5)
        stream.connect(self.path)
        return stream

    def raw(self):
        """Anything that is no request."""
        random = self.random
        with self.connect() as stream, open(os.devnull, "r+b") as null:
            json_bytes = random.choice([
                b"", b"{}", b"[" * 60000, b'{"version":2,"argv":[[99]],"cwd":[47],"env":[],"screens":[null,null]}',
                b'{"version":2,"argv":[' + b"[1]," * 20000, random.randbytes(500),
                b'{"version":99,"argv":[],"cwd":[],"env":[],"screens":[null,null]}',
                b'{"version":2,"argv":[],"cwd":[],"env":[],"screens":[[65535,65535],[0,0]]}',
                b'{"version":2,"argv":[[122,102,115],[108,105,115,116]],"cwd":[0],"env":[["A",[0]]],"screens":[null,[0,0]]}'])
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
        line = json.dumps({"version": 2, "argv": [list(b"cenote"), list(b"zfs"), list(b"get"), list(b"all")],
                           "cwd": [47], "env": [], "screens": [None, None]}).encode()
        stream = self.connect()
        with open(os.devnull, "rb") as null:
            socket.send_fds(stream, [struct.pack("<I", len(line))], [null.fileno(), writer, writer])
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
            body = b'{"version":2,"argv":[' + b"[1]," * 4_000_000
            socket.send_fds(stream, [struct.pack("<I", len(body))], [null.fileno()] * 3)
            stream.sendall(body)

    def streams(self):
        """Streams of every kind: what is not the user's must not be written."""
        with self.connect() as stream, open("/etc/hostname", "rb") as file, open(os.devnull, "r+b") as null:
            line = json.dumps({"version": 2, "argv": [list(b"cenote"), list(b"zfs"), list(b"list")], "cwd": [47],
                               "env": [], "screens": [None, None]}).encode()
            out = self.random.choice([file.fileno(), stream.fileno(), null.fileno()])
            socket.send_fds(stream, [struct.pack("<I", len(line))], [null.fileno(), out, out])
            stream.sendall(line)
            stream.recv(4096)


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


def attack(one, random, steps, trees, secret, file):
    os.chmod(trees[0], 0o777)
    plant = lambda: [twin.plant(tree, (ONE, TWO), secret) for tree in trees]
    plant()
    one.root("zfs snapshot tank/shared@kept")
    kept = one.root("zfs list -Hp -r -t all -o name,guid tank")
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
    make = lambda: Commands(one.socket, watched.random.Random(seed), openapi, secret, file)
    socketeers = [in_process(lambda uid=uid: at_the_socket(uid, make, lambda: 0 if os.path.exists(over) else end))
                  for uid in (THREE, THREE + 1)]
    counts, others, done = {}, {}, 0
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
            if one.root("zfs list -Hp -r -t all -o name,guid tank") != kept:
                raise Fault("datasets have come or gone")
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
        counts[str(told)] = 1
    for worker in workers:
        worker.end()
    say(f"{steps} operations, {done} done in both trees; other outcomes without more rights: {others}")
    say(f"attributes with a quota of {QUOTA_MIB} MiB: {8 * turns} MiB; at the socket: {list(counts)}")


watched.run("users", work)
