"""A daemon that is watched, for the parts of `proof/hostile`: users, delegated, guests, initiators, http.

While a part attacks, probes of root's and of honest clients go on, each in a thread of its own. A probe that takes
longer than STALL_S (5) seconds, memory beyond BOUND_MIB (1024), the daemon's end, or a panic is a fault. After the
part, when everybody has left, the daemon must be idle, with the threads and descriptors that it had before.
"""

import ctypes
import functools
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from multiprocessing.connection import Pipe

STALL_S = float(os.environ.get("STALL_S", 5))
BOUND_MIB = int(os.environ.get("BOUND_MIB", 1024))
MEMORY_MIB = 384
# What threads and descriptors may remain more than before: pools of threads grow, and shrink late.
SLACK = 40
# A process of another user finds no modules of Python below root's home any more.
LIBC = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20


class Fault(AssertionError):
    """What must not happen."""


def say(*words):
    print(time.strftime("%T "), *words, flush=True)


def number(name, default):
    return float(os.environ.get(name, default))


def seeded(part):
    """The choices of a part, which SEED repeats."""
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
    say(f"{part}: seed {seed}")
    return random.Random(f"{part} {seed}")


class Answer:
    """What a command came to: its exit status (None: refused before it ran, or no answer), and its output."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    @property
    def text(self):
        return self.out.decode(errors="replace")

    @property
    def why(self):
        return self.err.decode(errors="replace").strip()

    def has(self, secret):
        return secret in self.out or secret in self.err


def captured(lines):
    """What the program itself sends a daemon for command lines, which find this process at the socket: requests, as
    values, and how many streams come with them. So the proofs speak the program's version."""
    found = []
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = os.path.join(folder, "socket")
        listener.bind(path)
        listener.listen()
        listener.settimeout(20)
        for line in lines:
            with subprocess.Popen(
                    ["cenote", *line.split()], executable=os.path.join(os.environ["WORK"], "cenote"), cwd="/",
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    env={"CENOTE_SOCKET": path}) as client:
                stream, _ = listener.accept()
                with stream:
                    data, fds, _, _ = socket.recv_fds(stream, 4, 16)
                    for fd in fds:
                        os.close(fd)
                    asked = json.loads(exactly(stream, struct.unpack("<I", data)[0]))
                client.wait(20)
            if not asked["asking"]:
                raise Fault(f"`{line}` is no request of a verb")
            found.append((asked, len(fds)))
    return found


class Protocol:
    """The program's requests, of which parts are replaced."""

    def __init__(self):
        (self.sample, self.streams), = captured(["zfs list"])
        # Older versions take command lines, too.
        self.has_lines = "argv" in self.sample

    def request(self, asking=None, argv=(), cwd="/", env=()):
        """A verb's request, by default `zfs list`; or a command line."""
        line = json.loads(json.dumps(self.sample))
        if argv:
            line["asking"], line["argv"] = None, [list(os.fsencode(word)) for word in argv]
        elif asking is not None:
            line["asking"] = asking
        line.get("here", line)["cwd"] = list(os.fsencode(cwd))
        line.get("here", line)["env"] = [[name, list(os.fsencode(value))] for name, value in env]
        return json.dumps(line).encode()


@functools.cache
def protocol():
    return Protocol()


def command(path, argv, env=(), cwd="/", patience_s=120):
    """Has a daemon run a command line, itself if it takes any."""
    if not protocol().has_lines:
        return program(path, argv, env, cwd, patience_s)
    return exchange(path, protocol().request(None, argv, cwd, env), patience_s)


def exchange(path, line, patience_s=120, is_right=True):
    """Sends a request, which may have the right form, and awaits the answer; one that does not come within the
    patience is left."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as source:
        said, status, end = {kind: b"" for kind in range(1, 8)}, None, time.monotonic() + patience_s
        streams = [source.fileno(), out.fileno(), err.fileno()][:protocol().streams]
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(patience_s)
            try:
                stream.connect(path)
                socket.send_fds(stream, [struct.pack("<I", len(line))], streams)
                stream.sendall(line)
            except (BrokenPipeError, ConnectionResetError):
                pass  # Refused before it was read; the answer says why.
            try:
                while status is None:
                    stream.settimeout(max(0.001, end - time.monotonic()))
                    kind, length = struct.unpack("<BI", exactly(stream, 5))
                    content = exactly(stream, length)
                    if kind == 0:
                        status = content[0]
                    else:
                        said[kind] += content
            except ConnectionError:
                pass
        if is_right:
            heed_version(said[3])
        out.seek(0)
        err.seek(0)
        # Answers and parts of verbs' requests are output; notes and failures are messages.
        return Answer(status, said[1] + said[5] + said[7] + out.read(),
                      said[2] + said[3] + said[4] + said[6] + err.read())


def heed_version(refusal):
    """A daemon that refuses the form of a right request leaves nothing proved."""
    if b"another version" in refusal or b"a request comes with" in refusal:
        raise Fault(f"the daemon does not know the program's requests: {refusal.decode(errors='replace')}")


def program(path, argv, env=(), cwd="/", patience_s=120):
    """Runs the program itself as the daemon's client: verbs go there as requests. Its user must be able to run it."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as source:
        if cwd != "/" and os.access(cwd, os.X_OK):
            # Only processes of users do this, which have one thread.
            os.chdir(cwd)
        actions = [(os.POSIX_SPAWN_DUP2, file.fileno(), at) for at, file in enumerate((source, out, err))]
        # Without pipes, also those of `subprocess`: a process that is forked meanwhile would keep them open.
        pid = os.posix_spawn(os.path.join(os.environ["WORK"], "cenote"), argv, {"CENOTE_SOCKET": path, **dict(env)},
                             file_actions=actions)
        os.chdir("/")
        end, pause_s = time.monotonic() + patience_s, 0.001
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.02)
        out.seek(0)
        err.seek(0)
        answer = Answer(os.waitstatus_to_exitcode(ended[1]), out.read(), err.read())
    heed_version(answer.err)
    return answer


def exactly(stream, length):
    got = b""
    while len(got) < length:
        more = stream.recv(length - len(got))
        if not more:
            raise ConnectionResetError(f"{len(got)} of {length} bytes")
        got += more
    return got


def in_process(work):
    """Runs something in a process, which sends whether it went well, and what it returns, or what went wrong."""
    ours, theirs = Pipe()
    if os.fork() == 0:
        try:
            theirs.send((True, work()))
        except BaseException as error:
            theirs.send((False, f"{error}\n{traceback.format_exc()}"))
        os._exit(0)
    theirs.close()
    return ours


class As:
    """A process of a user, which calls functions of its maker: `user.call(function, ...)`."""

    def __init__(self, uid, groups=()):
        self.uid, (self.pipe, theirs) = uid, Pipe()
        self.pid = os.fork()
        if self.pid:
            theirs.close()
            return
        try:
            self.pipe.close()
            os.setgroups(list(groups))
            os.setgid(uid)
            os.setuid(uid)
            # As the user's own processes, of which /proc then belongs to the user.
            LIBC.prctl(4, 1, 0, 0, 0)
            os.chdir("/")
            while work := theirs.recv():
                function, arguments = work
                try:
                    theirs.send((True, function(*arguments)))
                except BaseException:
                    theirs.send((False, traceback.format_exc()))
        except EOFError:
            pass
        finally:
            os._exit(0)

    def call(self, function, *arguments):
        self.pipe.send((function, arguments))
        is_well, result = self.pipe.recv()
        if not is_well:
            raise RuntimeError(f"user {self.uid}: {result}")
        return result

    def end(self):
        self.pipe.send(None)
        os.waitpid(self.pid, 0)


class Probe:
    """Something honest that goes on all the time."""

    def __init__(self, name, work, pause_s=0.1):
        self.name, self.work, self.pause_s = name, work, pause_s
        self.begun, self.slowest, self.count, self.error, self.is_over = None, 0, 0, None, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.is_over:
            self.begun = time.monotonic()
            try:
                self.work()
            except Exception:
                if not self.is_over:
                    self.error = traceback.format_exc()
                return
            self.slowest = max(self.slowest, time.monotonic() - self.begun)
            self.begun = None
            self.count += 1
            time.sleep(self.pause_s)

    def check(self):
        begun = self.begun
        takes = max(self.slowest, time.monotonic() - begun if begun else 0)
        if self.error:
            raise Fault(f"{self.name}: {self.error}")
        if takes > STALL_S:
            raise Fault(f"{self.name} takes {takes:.1f} s")

    def __str__(self):
        return f"{self.name}: {self.count}, the slowest {self.slowest * 1000:.0f} ms"


class Daemon:
    """A daemon in a folder of its own."""

    def __init__(self, part, *options):
        self.program = os.path.realpath(os.environ["CENOTE"])
        self.folder = os.path.join(os.environ["WORK"], part)
        # For users who cannot reach the other place.
        shutil.copy2(self.program, os.path.join(os.environ["WORK"], "cenote"))
        # Of a run that was killed.
        with open("/proc/self/mounts") as table:
            left = [line.split()[1] for line in table if line.split()[1].startswith(self.folder + "/")]
        for place in reversed(left):
            subprocess.run(["umount", "-l", place], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.path("disks"))
        os.chmod(self.folder, 0o755)
        self.options, self.probes, self.peak_mib, self.process = options, [], 0, None

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def start(self):
        self.socket = self.path("socket")
        self.log = open(self.path("serve.txt"), "ab")
        arguments = [self.program, "serve", "--socket", self.socket, "-d", self.path("disks"), "--memory",
                     f"{MEMORY_MIB}M", *self.options]
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.until(lambda: os.path.exists(self.socket) and self.try_root("tunable").status == 0, 60, "starts")

    def until(self, is_so, patience_s, what):
        end = time.monotonic() + patience_s
        while not is_so():
            if time.monotonic() > end or self.process.poll() is not None:
                raise Fault(f"not within {patience_s} s: the daemon {what}\n{self.tail()}")
            time.sleep(0.05)

    def tail(self):
        with open(self.path("serve.txt"), errors="replace") as log:
            return "".join(log.readlines()[-15:])

    def try_root(self, *argv, **more):
        """A command of root's."""
        try:
            return command(self.socket, ["cenote", *argv], **more)
        except (ConnectionRefusedError, FileNotFoundError):
            return Answer(None, b"", b"no daemon")

    def root(self, line, **more):
        """The same, which must succeed: a line without blanks in its words."""
        answer = self.try_root(*line.split(), **more)
        # What others have left may be in the way of what follows.
        if answer.status != 0 and "the change was made, but" not in answer.why:
            raise Fault(f"root's `{line}`: status {answer.status}: {answer.why}")
        return answer.text

    def pool(self, size="2G", *options):
        """Makes a pool of a file."""
        with open(self.path("disks", "a"), "wb") as disk:
            os.fchmod(disk.fileno(), 0o600)
            disk.truncate(int(size[:-1]) << 30)
        words = ["zpool", "create", "-m", self.path("mnt"), *options, "tank", self.path("disks", "a")]
        self.root(" ".join(words))

    def stat(self, field):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(line.split()[1] for line in status if line.startswith(field + ":"))

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def figures(self):
        return (int(self.stat("Threads")), len(os.listdir(f"/proc/{self.process.pid}/fd")))

    def watch(self, *probes):
        """From now on `check` tells of faults. Probes: (name, what is done)."""
        self.before = self.figures()
        named = lambda: self.root("zfs list -H -o name tank")
        self.probes = [Probe(name, work) for name, work in (("root's commands", named), *probes)]

    def check(self):
        if self.process.poll() is not None:
            raise Fault(f"the daemon ended: {self.process.returncode}\n{self.tail()}")
        self.peak_mib = max(self.peak_mib, int(self.stat("VmRSS")) // 1024)
        if self.peak_mib > BOUND_MIB:
            raise Fault(f"{self.peak_mib} MiB of memory")
        for probe in self.probes:
            probe.check()

    def until_all(self, pipes, also=lambda: None):
        """Waits for processes of `in_process`, and says what they tell."""
        left = list(pipes)
        while left:
            self.check()
            also()
            for pipe in list(left):
                if pipe.poll(0.5 / len(left)):
                    is_well, told = pipe.recv()
                    if not is_well:
                        self.check()
                        raise Fault(told)
                    say(told)
                    left.remove(pipe)

    def rest(self):
        """Everybody has left: nothing goes on any more, and nothing is kept."""
        for probe in self.probes:
            probe.is_over = True
        for probe in self.probes:
            probe.thread.join(STALL_S)
        self.check()
        end = time.monotonic() + 60
        while True:
            time.sleep(2)
            before, begun = self.cpu_s(), time.monotonic()
            time.sleep(3)
            busy = (self.cpu_s() - before) / (time.monotonic() - begun)
            now = self.figures()
            is_back = all(now <= before + SLACK for now, before in zip(now, self.before))
            if busy < 0.3 and is_back:
                break
            if time.monotonic() > end:
                raise Fault(f"at rest it computes {busy:.0%}; threads and descriptors {self.before}, now {now}")
        say(f"{'; '.join(map(str, self.probes))}; memory at most {self.peak_mib} MiB; threads and descriptors "
            f"{self.before}, now {now}")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise Fault("it does not end within 60 s of SIGTERM") from None
        if status != 0:
            raise Fault(f"it ended with {status}\n{self.tail()}")
        with open(self.path("serve.txt"), errors="replace") as log:
            panics = [line for line in log if "panic" in line.lower()]
        if panics:
            raise Fault(f"a panic: {panics[:3]}")

    def restart(self):
        self.stop()
        self.start()


def run(part, work):
    """Runs a part; a fault ends it with what the daemon said last, and status 1."""
    daemons = []
    # Whoever ends this program ends its daemons, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("it was ended"))

    def daemon(*options):
        daemons.append(Daemon(part, *options))
        daemons[-1].start()
        return daemons[-1]

    try:
        work(daemon, seeded(part))
        for one in daemons:
            one.stop()
        say(f"{part}: all is well")
    except BaseException as error:
        if not isinstance(error, Fault):
            traceback.print_exc()
        say(f"{part}: FAILED: {error}")
        for one in daemons:
            if one.process and one.process.poll() is None:
                one.process.send_signal(signal.SIGTERM)
                try:
                    one.process.wait(20)
                except subprocess.TimeoutExpired:
                    one.process.kill()
        sys.stdout.flush()
        os._exit(1)
