"""Shared by proof/ha and proof/ha-sites: daemons, a client over NBD, a witness."""
import os, random, shutil, signal, socket, struct, subprocess, sys, tempfile, time

top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
program = os.environ.get("CENOTE", f"{top}/target/release/cenote")
rounds, lease = int(os.environ.get("ROUNDS", "30")), os.environ.get("LEASE", "3 s")
work = os.environ.get("WORK") or tempfile.mkdtemp()
os.makedirs(work, exist_ok=True)
BLOCK, BLOCKS = 4096, 4096
children, ends = [], []


def say(text):
    print(time.strftime("%T"), text, flush=True)


def skip(why):
    say(f"skipped: {why}")
    sys.exit(0)


def start(name, words, **more):
    log = open(f"{work}/{name}.txt", "ab")
    child = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **more)
    children.append(child)
    return child


def until(what, is_so, limit=60):
    begun = time.monotonic()
    while not is_so():
        if time.monotonic() - begun > limit:
            raise SystemExit(f"FAILED: {what}: not within {limit} s")
        time.sleep(0.02)


def listens(port, host="127.0.0.1"):
    def there():
        try:
            socket.create_connection((host, port), 1).close()
            return True
        except OSError:
            return False
    return there


class Nbd:
    """A client of one volume: as much of the protocol as the proof needs."""

    def __init__(self, path, export):
        self.to = socket.socket(socket.AF_UNIX)
        self.to.settimeout(5)
        self.to.connect(path)
        if self.take(18)[:8] != b"NBDMAGIC":
            raise OSError("no NBD server")
        self.to.sendall(struct.pack(">I", 3))
        name = export.encode()
        go = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        self.to.sendall(b"IHAVEOPT" + struct.pack(">II", 7, len(go)) + go)
        while True:
            _, _, answer, length = struct.unpack(">QIII", self.take(20))
            self.take(length)
            if answer == 1:
                return
            if answer & 0x80000000:
                raise OSError("refused")

    def take(self, count):
        data = b""
        while len(data) < count:
            more = self.to.recv(count - len(data))
            if not more:
                raise OSError("closed")
            data += more
        return data

    def ask(self, command, flags, offset, length, data=b""):
        self.to.sendall(struct.pack(">IHHQQI", 0x25609513, flags, command, 7, offset, length) + data)
        magic, error, _ = struct.unpack(">IIQ", self.take(16))
        if magic != 0x67446698 or error:
            raise OSError(f"error {error}")

    def write(self, block, data):
        self.ask(1, 1, block * BLOCK, BLOCK, data)

    def read(self, block):
        self.ask(0, 0, block * BLOCK, BLOCK)
        return self.take(BLOCK)


class Machine:
    """A daemon, in a network namespace if one is given."""

    def __init__(self, name, place_list, witness, space=()):
        self.name, self.folder, self.daemon, self.space = name, f"{work}/{name}", None, list(space)
        os.makedirs(self.folder, exist_ok=True)
        disks = ", ".join(f'"{place}"' for place in place_list)
        with open(f"{self.folder}/ha.toml", "w") as file:
            file.write(f'node = "{name}"\nwitness = "{witness}"\nlease = "{lease}"\n')
            file.write(f'[[pool]]\nname = "tank"\ndisks = [{disks}]\n')
        os.chmod(f"{self.folder}/ha.toml", 0o600)
        self.nbd = f"{self.folder}/nbd"

    def start(self, *more):
        words = [*self.space, program, "serve", "-d", self.folder, "--socket", f"{self.folder}/sock", "--nbd", f"unix:{self.nbd}",
                 "--memory", "256M", *more]
        self.daemon = start(self.name, words, env={**os.environ, "ZFS_HOSTID": f"0x{self.name * 4}"})
        until("the daemon starts", lambda: self.run("tunable", check=False).returncode == 0)

    def run(self, *words, check=True):
        env = {**os.environ, "CENOTE_SOCKET": f"{self.folder}/sock"}
        done = subprocess.run([program, *words], env=env, capture_output=True, text=True)
        if check and done.returncode:
            raise SystemExit(f"FAILED: {' '.join(words)}: {done.stderr}")
        return done

    def has(self):
        return "\thas it\t" in self.run("ha", "status", "-H", check=False).stdout


class Client:
    """Writes to whichever daemon has the volume, and knows every acknowledged block."""

    def __init__(self, machines):
        self.machines, self.at, self.acked, self.count = machines, None, {}, 0

    def attempt(self, limit):
        """One acknowledged write, from any daemon."""
        begun = time.monotonic()
        while True:
            for machine in self.machines:
                try:
                    if self.at is None:
                        self.at = Nbd(machine.nbd, "tank/v")
                    self.count += 1
                    block = random.randrange(BLOCKS)
                    data = struct.pack(">QQ", self.count, block) * (BLOCK // 16)
                    self.unsure = (block, data)
                    self.at.write(block, data)
                    self.acked[block] = data
                    self.unsure = None
                    return time.monotonic()
                except OSError:
                    self.at = None
                    # It may have been made, as any write without an answer.
                    if getattr(self, "unsure", None):
                        self.acked.pop(self.unsure[0], None)
                        self.unsure = None
                if time.monotonic() - begun > limit:
                    raise SystemExit(f"FAILED: no daemon takes a write within {limit} s")
            time.sleep(0.01)

    def check(self):
        for block, data in self.acked.items():
            if self.at.read(block) != data:
                raise SystemExit(f"FAILED: block {block} is not as it was acknowledged")


def etcd(space=(), host="127.0.0.1"):
    if not shutil.which("etcd"):
        os.makedirs(f"{work}/witness", exist_ok=True)
        return f"{work}/witness"
    client, peer = free(), free()
    urls = [f"http://{host}:{port}" for port in (client, peer)]
    start("etcd", [*space, "etcd", "--data-dir", f"{work}/etcd", "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
                   "--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1], "--initial-cluster",
                   f"default={urls[1]}"])
    until("etcd", listens(client, host))
    return f"etcd://{host}:{client}/cenote"


def free():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def end_all():
    for child in children:
        child.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()
    for end in ends:
        end()
    if "WORK" not in os.environ:
        shutil.rmtree(work, ignore_errors=True)
