"""web.py: hostile clients of HTTP, all of it: HTTP_STEPS (50000) requests, four clients at a time.

Every command of /v1/openapi.json with fields of any kind, with a token that may change everything (on a pool of its
own), with one that may only look, with a wrong one and without; heads, bodies and connections that are wrong in any
way; streams that nobody reads or that are left. Without a token nothing but the page and the description is answered;
with one that only looks nothing changes, and no content of a file is told. Answers come within STALL_S.
"""

import json
import os
import socket
import time
from urllib.parse import quote

import watched
from watched import STALL_S, Fault, in_process, number

CLIENTS = 4
LOOK, CHANGE = "look" + "a" * 40, "change" + "b" * 40
# Answers that a server of sound mind gives; 503: there is no room now.
# REFUSED: before any right is looked at: not a request, too long, no room.
REFUSED = {400, 414, 431, 503}
STATUSES = {200, 400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 431, 501, 503, 505}


class Client:
    def __init__(self, one, nth, random, document, secret):
        self.port, self.path, self.nth, self.random, self.secret = one.port, one.path("http"), nth, random, secret
        self.folder, self.counts, self.statuses, self.slowest = one.folder, {}, {}, 0
        self.source = f"127.0.0.{2 + nth}"
        self.verbs = {path[4:]: methods for path, methods in document["paths"].items() if path.startswith("/v1/")}

    def connect(self, unix=False):
        stream = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        stream.settimeout(STALL_S)
        if not unix:
            stream.bind((self.source, 0))
        stream.connect(self.path if unix else ("127.0.0.1", self.port))
        return stream

    def answer(self, stream, sent, most=4 << 20):
        """What is answered, or as much of it as there is after a second: its status, and all of it."""
        begun, got = time.monotonic(), b""
        try:
            stream.sendall(sent)
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            while len(got) < most and (more := stream.recv(65536)):
                if not got:
                    self.slowest = max(self.slowest, time.monotonic() - begun)
                got += more
                if time.monotonic() - begun > 1:
                    break
                stream.settimeout(1)
        except ConnectionResetError:
            pass
        except TimeoutError:
            if not got:
                raise
        finally:
            stream.close()
        if self.secret in got:
            raise Fault(f"a secret is told: {sent[:500]}")
        words = got[:100].split(b" ", 2)
        status = int(words[1]) if len(words) > 2 and words[0].startswith(b"HTTP/1") and words[1].isdigit() else None
        self.statuses[status] = self.statuses.get(status, 0) + 1
        return status, got

    def head(self, method, target, token=None, **headers):
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += [f"Authorization: Bearer {token}"] if token else []
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    # Values of fields.

    def text(self, pool):
        random = self.random
        return random.choice([
            pool, f"{pool}/fs", f"{pool}/fs@kept", f"{pool}/vol", f"{pool}:/", f"{pool}/fs:/secret", f"{pool}/fs:/x", "-r",
            "--disks=/etc", "-d/etc", "--key=x=file:/etc/shadow", "--config=/etc/passwd", "", "\0", "a" * 5000, "ü\u202e",
            "../../etc/passwd", "all", "name", "none", "on", "off", "1", "-1", "0", "18446744073709551616", "1E", "1e400",
            "a=b", "compression=on", "org.cenote:serve=on", "keylocation=file:///etc/shadow", "@", "#", "/", "//", "*",
            f"{self.folder}/scrap/{random.choice('ab')}", "%n", "{}", "null", "[" * 100])

    def field(self, schema, pool):
        random, kind = self.random, schema.get("type") if isinstance(schema, dict) else None
        if random.random() < 0.1:
            kind = random.choice(["string", "boolean", "array", "integer", "object", "null"])
        elif choices := schema.get("oneOf") or schema.get("anyOf"):
            return self.field(random.choice(choices), pool)
        elif "const" in schema or "enum" in schema:
            return schema.get("const") or random.choice(schema["enum"])
        if isinstance(kind, list):
            kind = random.choice(kind)
        if kind == "object":
            known = schema.get("properties") or {"a": {"type": "array"}}
            required = schema.get("required", [])
            return {name: self.field(of, pool) for name, of in known.items() if name in required or random.random() < 0.3}
        if kind == "array":
            return [self.field(schema.get("items", {"type": "string"}), pool) for _ in range(random.choice([0, 1, 1, 2, 50]))]
        return {"boolean": random.choice([True, False]), "integer": random.choice([0, 1, -1, 3, 1 << 63, 1e300]),
                "null": None}.get(kind, self.text(pool))

    def fields(self, verb, pool):
        post = self.verbs[verb].get("post", {})
        schema = post.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        known = schema.get("properties", {})
        required = schema.get("required", [])
        chosen = [name for name in known if name in required or self.random.random() < 0.15]
        fields = {name: self.field(known[name], pool) for name in chosen}
        if self.random.random() < 0.05:
            fields[self.text(pool)] = 1
        # A client that leaves ends these; they are not to be many at once.
        if verb == "zpool/events":
            fields.pop("order", None)
        return fields

    def query(self, fields):
        pairs = []
        for name, value in fields.items():
            for one in value if isinstance(value, list) else [value]:
                one = one if isinstance(one, str) else json.dumps(one)
                pairs.append(f"{quote(name)}={quote(one)}")
        return "?" + "&".join(pairs) if pairs else ""

    # The last request.
    sent = b""

    def request(self, verb, pool, token, **headers):
        self.sent = self.made(verb, pool, token, **headers)
        return self.sent

    def made(self, verb, pool, token, **headers):
        """A command, as somebody who can speak HTTP would ask for it."""
        fields = self.fields(verb, pool)
        accept = self.random.choice(["application/json", "text/event-stream", "application/octet-stream", "*/*"])
        if self.random.random() < 0.4:
            return self.head("GET", f"/v1/{verb}{self.query(fields)}", token, Accept=accept, **headers)
        content = json.dumps(fields).encode()
        if self.random.random() < 0.1:
            target = f"/v1/{verb}{self.query(fields)}"
            return self.head("POST", target, token, Content_Type="application/octet-stream", Accept=accept,
                             Content_Length=100, **headers) + b"x" * 100
        return self.head("POST", f"/v1/{verb}", token, Content_Type="application/json", Accept=accept,
                         Content_Length=len(content), **headers) + content

    # Kinds of clients.

    def strangers(self):
        """No token, or a wrong one; a browser at the socket."""
        random = self.random
        token = random.choice([None, "", "x", LOOK[:-1], CHANGE + "x", LOOK.upper(), "a" * 5000, "look"])
        verb, unix = random.choice(list(self.verbs)), self.nth == 0
        headers = {"Origin": "http://elsewhere"} if unix else {}
        sent = self.request(verb, "tank", token, **headers)
        if random.random() < 0.2:
            sent = self.head("GET", random.choice(["/metrics", "/metrics/influx", "/v1/none", "/v1/zfs", "/v1/"]), token,
                             **headers)
        if random.random() < 0.2:
            sent = self.head("GET", random.choice(["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/shadow", "//etc/passwd",
                                                   "/v1/../../etc/passwd", "/index.html/../secret", "/\\..\\x"]), token,
                             **headers)
        status, got = self.answer(self.connect(unix), sent)
        if status not in REFUSED | {401} or b"root:" in got:
            raise Fault(f"without a token: status {status} for {sent[:300]}")

    def lookers(self):
        """A token that may only look."""
        verb = self.random.choice(list(self.verbs))
        sent = self.request(verb, "tank", LOOK)
        status, _ = self.answer(self.connect(), sent)
        if sent.startswith(b"POST") and "get" not in self.verbs[verb] and status not in REFUSED | {403}:
            raise Fault(f"a token that may only look: status {status} for {sent[:500]}")
        self.sane(status, sent)

    def changers(self):
        """A token that may do everything, on a pool that may be lost."""
        verb = self.random.choice(list(self.verbs))
        # Those that would reach beyond that pool, with no name at all.
        if verb in ("cp", "volume/cp", "tunable", "inject", "zpool/upgrade", "zpool/export", "zpool/import", "zpool/create",
                    "zpool/destroy", "zpool/scrub", "zpool/trim", "zpool/initialize", "zfs/unmount", "zfs/mount", "zfs/unload-key"):
            return
        sent = self.request(verb, "scrap", CHANGE)
        self.sane(self.answer(self.connect(), sent)[0], sent)

    def broken(self):
        """Heads and bodies that are wrong."""
        random, token = self.random, self.random.choice([LOOK, CHANGE, None])
        head = self.head("POST", "/v1/zfs/list", token, Content_Type="application/json", Content_Length=2)
        sent = random.choice([
            lambda: head + b"[" * 100_000, lambda: head + b"{}", lambda: head.replace(b"POST", b"\0\xff"),
            lambda: self.head("POST", "/v1/zfs/list", token, Content_Length=1 << 62) + b"{}",
            lambda: self.head("POST", "/v1/zfs/list", token, Content_Length=-1) + b"{}",
            lambda: self.head("POST", "/v1/zfs/list", token, Transfer_Encoding="chunked") + b"ffffffffffffffff\r\n{}",
            lambda: self.head("POST", "/v1/zfs/list", token, Transfer_Encoding="chunked", Content_Length=5) + b"0\r\n\r\nGET /",
            lambda: self.head("GET", "/" + "x" * random.choice([100, 70_000, 200_000]), token),
            lambda: self.head("GET", "/v1/zfs/list", token, **{f"X-{nth}": "y" * 100 for nth in range(random.randrange(2000))}),
            lambda: self.head(random.choice(["PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PRI"]), "/v1/zfs/list", token),
            lambda: self.head("GET", "*", token), lambda: self.head("GET", "http://elsewhere/v1/zfs/list", token),
            lambda: head[:random.randrange(len(head))], lambda: random.randbytes(random.randrange(2000)),
            lambda: b"\x16\x03\x01\x02\x00\x01" + random.randbytes(512), lambda: head.replace(b"\r\n", b"\n") + b"{}",
            lambda: self.head("GET", "/v1/zfs/list", token, Upgrade="h2c", HTTP2_Settings="AAA") + b"PRI * HTTP/2.0\r\n\r\n",
            lambda: self.head("POST", "/v1/zfs/list", token, Content_Type="application/json", Content_Length=9 << 20)
            + b'{"names":["' + b"a" * (9 << 20),
            lambda: self.head("POST", "/v1/zfs/list", token, Content_Type="application/json", Content_Length=500_013)
            + b'{"names":[' + b",".join([b'"a"'] * 125_000),
            lambda: self.head("GET", "/v1/zfs/list?" + "names=a&" * 8000, token)])()
        if sent and random.random() < 0.3:
            sent = bytearray(sent[:100_000])
            for _ in range(random.randrange(1, 8)):
                sent[random.randrange(len(sent))] = random.randrange(256)
            sent = bytes(sent)
        stream = self.connect()
        try:
            stream.sendall(sent)
            # It is all that will come.
            stream.shutdown(socket.SHUT_WR)
        except OSError:
            stream.close()
            return
        status, _ = self.answer(stream, b"")
        if status is not None:
            self.sane(status, sent)

    def leavers(self):
        """Asks for much, and leaves; or asks many times at once."""
        verb = self.random.choice(["zpool/iostat", "zpool/events", "zpool/wait", "zfs/list", "zpool/status", "kstat"])
        target = f"/v1/{verb}" + {"zpool/events": "?order=await&after=1000000"}.get(verb, "")
        stream = self.connect()
        head = self.head("GET", target, LOOK, Accept="text/event-stream")
        if self.random.random() < 0.5:
            head = head.replace(b"Connection: close\r\n", b"") * self.random.randrange(1, 30)
        stream.sendall(head)
        time.sleep(self.random.choice([0, 0.01, 0.1]))
        stream.close()

    def sane(self, status, sent):
        if status not in STATUSES:
            raise Fault(f"status {status} for {sent[:500]}")

    def run(self, steps):
        # The first is root, and so a proxy at the socket in the file system.
        if self.nth:
            os.setgroups([])
            os.setgid(32000 + self.nth)
            os.setuid(32000 + self.nth)
        kinds = [self.strangers] if not self.nth else [self.strangers, self.lookers, self.lookers, self.changers, self.broken, self.leavers]
        for _ in range(steps):
            kind = self.random.choice(kinds)
            self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1
            try:
                kind()
            except TimeoutError:
                raise Fault(f"{kind.__name__}: no answer within {STALL_S} s to {self.sent[:400]}") from None
            except ConnectionError:
                pass
        if self.nth and steps > 500 and not self.statuses.get(200):
            raise Fault(f"no command was carried out, so nothing is shown: {self.statuses}")
        return f"{self.counts}, statuses {self.statuses}, the slowest answer began after {self.slowest * 1000:.0f} ms"


def work(daemon, random):
    steps = int(number("HTTP_STEPS", 50_000)) // CLIENTS
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    work_folder = os.environ["WORK"]
    tokens = os.path.join(work_folder, "tokens")
    with open(os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"look {LOOK}\nchange {CHANGE}\n")
    unix = os.path.join(work_folder, "http", "http")
    one = daemon("--http", f"127.0.0.1:{port}", "--http", f"unix:{unix}", "--http-tokens", tokens, "--insecure")
    one.port = port
    secret = b"s3cret" + random.randbytes(12).hex().encode()
    one.pool("1G")
    os.mkdir(one.path("scrap"))
    for name in "ab":
        with open(one.path("scrap", name), "wb") as disk:
            disk.truncate(256 << 20)
    one.root(f"zpool create -m {one.path('scraps')} scrap {one.path('scrap', 'a')}")
    for pool in ("tank", "scrap"):
        one.root(f"zfs create {pool}/fs")
        one.root(f"zfs create -V 16M {pool}/vol")
    with open(one.path("mnt", "fs", "secret"), "wb") as file:
        file.write(secret)
    one.root("zfs snapshot tank/fs@kept")

    def state():
        return (one.root("zfs list -Hp -r -t all -o name,guid,creation tank"), one.root("zfs get -Hp -r -s local all tank"),
                one.root("zpool get -Hp all tank"), one.root("tunable"),
                os.path.exists(one.path("mnt", "fs", "secret")), sorted(os.listdir(one.path("mnt", "fs"))))

    def settled():
        # Figures of space move by themselves.
        listed, local, pool, tunables, *files = state()
        moving = ("\tallocated", "\tfree", "\tcapacity", "\tfragmentation", "\tload_guid", "\tbcloneused", "\tbclonesaved")
        pool = [line for line in pool.splitlines() if not any(word in line for word in moving)]
        return [listed, local, pool, tunables, *files]

    document = json.loads(Client(one, 0, random, {"paths": {}}, secret).answer(
        socket.create_connection(("127.0.0.1", port), STALL_S), b"GET /v1/openapi.json HTTP/1.0\r\n\r\n")[1].split(b"\r\n\r\n", 1)[1])
    before = settled()
    seeds = [watched.random.Random(f"{random.random()}") for _ in range(CLIENTS)]
    honest = Client(one, 50, random, document, secret)

    def asks():
        status, _ = honest.answer(honest.connect(), honest.head("GET", "/v1/zpool/list", LOOK))
        if status not in (200, 503):
            raise Fault(f"an honest client is answered {status}")

    one.watch(("an honest client", asks))
    def unchanged():
        if (now := settled()) != before:
            differ = [(one, other) for one, other in zip(before, now) if one != other]
            raise Fault(f"something changed that nobody may change: {differ}")

    clients = [Client(one, nth, seeds[nth], document, secret) for nth in range(CLIENTS)]
    one.until_all([in_process(lambda client=client: client.run(steps)) for client in clients], unchanged)
    one.rest()


watched.run("http", work)
