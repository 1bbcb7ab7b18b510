"""delegated.py: users walk at random through verbs and properties, with rights that change: DELEGATED_STEPS (100000).

Each epoch root delegates other permissions below tank/home. The users try everything, there and elsewhere: to read a
file of root's as a key, to gain a program with set-id bits, to reach what is not theirs. `rights.py` says what each
command takes; one that succeeds without that is a fault. So is any change of the datasets that nobody was given, a
secret in any output, and anything mounted that root did not ask for, also while root's commands run at the same time.
"""

import collections
import json
import os
import stat
import threading
import time

import watched
from rights import NEVER, OF_CREATION, Rights, above, permission_for
from watched import As, Fault, command, number, program, say

UIDS = {30001: (40001,), 30002: (40001, 40002), 30003: ()}
EPOCH = 1000
# How long users and root race at the begin of each epoch.
RACE_S = number("RACE_S", 1)
PERMISSIONS = """allow bookmark change-key clone create destroy diff hold load-key mount promote receive release rename
rollback send share snapshot userprop groupquota groupused userquota userused projectquota projectused aclinherit aclmode
acltype atime canmount checksum compression copies dedup devices exec filesystem_limit logbias mountpoint overlay
primarycache quota readonly recordsize redundant_metadata refquota refreservation reservation secondarycache setuid
sharenfs snapdir snapshot_limit snapdev special_small_blocks sync volmode volsize xattr encryption keyformat keylocation
pbkdf2iters version""".split()
# Everything that is not of zfs: never for users.
OTHERS = """zpool export tank|zpool destroy tank|zpool create other FILE|zpool set delegation=off tank|zpool import -d DIR
zpool history tank|zpool scrub tank|zpool add tank FILE|zpool offline tank FILE|zpool split tank x|zpool reguid tank
zpool upgrade -a|zpool events|zpool checkpoint tank|zpool clear tank|zpool trim tank|zpool initialize tank|zpool sync
cat tank/victim:/secret|ls tank/victim:/|cp SECRET tank/home:/x|cp tank/victim:/secret /tmp|rm tank/victim:/secret
mkdir tank/home:/x|find tank/victim:/|du tank/victim:/|stat tank/victim:/secret|volume cp tank/vol -|verify tank
scan tank/victim:/|inject list|tunable zfs_txg_timeout=1|trace record tank|zfs mount -a|zfs mount tank/keyed
zfs unmount tank/victim|zfs unmount -a|zfs load-key -a|zfs unload-key -a|--disks DIR zfs list|zfs list --disks DIR
zpool status --disks DIR|--disks DIR zpool import tank"""
OTHERS = [line.strip() for line in OTHERS.replace("\n", "|").split("|")]


def run_as(path, argv, env, cwd, way=command):
    answer = way(path, argv, env=env, cwd=cwd)
    return answer.status, answer.out, answer.err


class Walk:
    def __init__(self, one, random):
        self.one, self.random, self.rights = one, random, Rights()
        self.secret = b"s3cret" + random.randbytes(12).hex().encode()
        self.file = one.path("secret")
        with open(self.file, "wb") as file:
            file.write(self.secret + b"\n")
        os.chmod(self.file, 0o600)
        for name in ("taken", "taken/a", "taken/b", "taken/c"):
            os.mkdir(one.path(name))
        one.pool("4G")
        one.root("zfs set atime=off tank")
        one.root("zfs create -o setuid=off tank/home")
        for place in ("victim", "victim/below", "suid", "other"):
            one.root(f"zfs create tank/{place}")
        one.root("zfs set atime=off tank/other")
        one.root("zfs create -V 16M tank/vol")
        one.root(f"zfs create -o encryption=on -o keyformat=passphrase -o keylocation=file://{self.file} tank/keyed")
        self.write("victim/secret", self.secret, 0o600)
        self.write("suid/program", b"#!/bin/true\n", 0o4755)
        for name in ("victim@kept", "suid@kept", "keyed@kept", "vol@kept"):
            one.root(f"zfs snapshot tank/{name}")
        for uid in UIDS:
            one.root(f"zfs create tank/home/u{uid}")
            os.chown(one.path("mnt", "home", f"u{uid}"), uid, uid)
        self.is_key_known = self.was_key_known = False
        self.make_keyed()
        self.workers = {uid: As(uid, gids) for uid, gids in UIDS.items()}
        self.done, self.refused, self.stricter, self.epochs = {}, 0, {}, 0
        self.is_locked = False
        # What went before a fault.
        self.lately = collections.deque(maxlen=120)
        self.look()
        self.kept = self.untouchable()
        self.mounted = self.mounts()

    def make_keyed(self):
        # Whether a user has set a key that users know; an older dataset may still have one, under another name.
        self.was_key_known |= self.is_key_known
        self.is_key_known = False
        self.one.root("zfs create -o encryption=on -o keyformat=passphrase "
                      f"-o keylocation=file://{self.file} tank/home/k")
        self.rights.made("tank/home/k", 0)

    def write(self, name, content, mode):
        path = self.one.path("mnt", name)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)

    # What root sees.

    def look(self):
        listed = self.one.root("zfs list -Hp -t all -o name,type,origin")
        rows = [line.split("\t") for line in listed.splitlines()]
        self.types = {name: kind for name, kind, _ in rows}
        self.origins = {name: origin for name, _, origin in rows if origin not in ("-", "")}
        is_of = lambda *kinds: [name for name, kind in self.types.items() if kind in kinds]
        self.heads, self.snapshots = is_of("filesystem", "volume"), is_of("snapshot")

    def untouchable(self):
        """Everything of the datasets that are nobody's but root's."""
        properties = "type,guid,creation,origin,mountpoint,canmount,setuid,quota,compression,keystatus,userrefs"
        names = [name for name in self.types if not name.startswith("tank/home") and name != "tank"]
        listed = self.one.root(f"zfs get -Hp -o name,property,value,source {properties} {' '.join(names)}")
        local = self.one.root(f"zfs get -Hp -s local -o name,property,value all {' '.join(names)}")
        pool = self.one.root("zpool get -Hp -o property,value delegation,bootfs tank")
        return {*names, *listed.splitlines(), *local.splitlines(), *pool.splitlines()}

    def mounts(self):
        with open("/proc/self/mounts") as table:
            rows = [line.split() for line in table]
        return sorted((row[1], "nosuid" in row[3].split(",")) for row in rows if row[1].startswith(self.one.folder))

    def inspect(self, what):
        """What must be so at any time."""
        self.look()
        if (now := self.untouchable()) != self.kept:
            raise Fault(f"{what}: what nobody was given is not as it was: {sorted(now ^ self.kept)}")
        for where, is_safe in self.mounts():
            if where not in [place for place, _ in self.mounted]:
                raise Fault(f"{what}: something is mounted at {where} that root did not ask for")
            if where.startswith(self.one.path("mnt", "home")) and not is_safe and not self.may_be_set_id:
                raise Fault(f"{what}: programs with set-id bits are heeded at {where}")
        locked = self.one.root("zfs get -Hp -o value keystatus tank/home/k") if "tank/home/k" in self.heads else ""
        if self.is_locked and not self.is_key_known and "unavailable" not in locked and "tank/home/k" in self.heads:
            raise Fault(f"{what}: somebody has loaded a key from a file that is root's")
        self.is_locked = "unavailable" in locked
        for where in ("victim/secret", "suid/program"):
            if os.stat(self.one.path("mnt", where)).st_uid != 0:
                raise Fault(f"{what}: {where} is another's")
        told = json.loads(self.one.root("zfs allow -j tank/home"))["datasets"]
        told += [one for head in self.heads for one in json.loads(self.one.root(f"zfs allow -j {head}"))["datasets"]]
        told = {one["dataset"]: {
            (entry["reach"], entry["type"], entry["id"] if entry["id"] is not None else entry["name"], name)
            for entry in one["permissions"] for name in entry["permissions"]} for one in told}
        model = {name: grants for name, grants in self.rights.grants.items() if grants}
        if told != model:
            more = {name: grants - model.get(name, set()) for name, grants in told.items()}
            less = {name: grants - told.get(name, set()) for name, grants in model.items()}
            more, less = ({name: grants for name, grants in one.items() if grants} for one in (more, less))
            raise Fault(f"{what}: other rights than were given: more {more}, less {less}")

    # Epochs.

    def delegate(self):
        """Root takes everything back, and delegates something else."""
        random, one = self.random, self.one
        for head in [head for head in self.heads if "tank/home" in above(head)]:
            for kind, option in (("user", "-u"), ("group", "-g")):
                for who in {grant[2] for grant in self.rights.of(head) if grant[1] == kind}:
                    one.root(f"zfs unallow {option} {who} {head}")
            one.try_root("zfs", "unallow", "-e", head)
            one.try_root("zfs", "unallow", "-c", head)
            for name in {grant[2] for grant in self.rights.of(head) if grant[1] == "set"}:
                one.root(f"zfs unallow -s {name} {head}")
        self.rights.grants.clear()
        for name in random.sample(["@a", "@b", "@c"], 2):
            names = random.sample(PERMISSIONS, 4) + random.sample(["@a", "@b", "@c"], 1)
            one.root(f"zfs allow -s {name} {','.join(names)} tank/home")
            self.rights.allow("tank/home", [None], "set", name, names)
        for uid in UIDS:
            place = random.choice(["tank/home", f"tank/home/u{uid}", f"tank/home/u{uid}"])
            if place not in self.heads:
                place = "tank/home"
            names = random.sample(PERMISSIONS, random.choice([3, 20, 40, 60])) + random.sample(["@a", "@b", "@c"], 1)
            # Without these little can be done.
            names += [name for name in ("create", "mount", "snapshot", "destroy", "rename") if random.random() < 0.7]
            kind, who = random.choice([("user", uid), ("user", uid), ("group", (*UIDS[uid], 40001)[0]),
                                       ("everyone", None), ("create", None)])
            option = {"user": f"-u {who}", "group": f"-g {who}", "everyone": "-e", "create": "-c"}[kind]
            reach = random.choice(["", "", "-l", "-d"]) if kind != "create" else ""
            one.root(f"zfs allow {reach} {option} {','.join(names)} {place}")
            reaches = {"": ["local", "descendent"], "-l": ["local"], "-d": ["descendent"]}[reach]
            self.rights.allow(place, [None] if kind == "create" else reaches, kind, who, names)
        self.may_be_set_id = any(grant[3] == "setuid" for of in self.rights.grants.values() for grant in of)

    def epoch(self):
        """Root tidies up, so that there is not ever more; the daemon starts again; other rights."""
        self.epochs += 1
        for name in [name for name in self.snapshots if name.startswith("tank/home")]:
            for line in self.one.root(f"zfs holds -H {name}").splitlines():
                self.one.root(f"zfs release {line.split(chr(9))[1]} {name}")
        if self.epochs > 1:
            for head in [head for head in self.heads if head.startswith("tank/home/") and head.count("/") == 2]:
                # Some go with others.
                self.one.try_root("zfs", "destroy", "-R", "-f", head)
        self.look()
        for gone in [name for name in self.rights.grants if name not in self.heads]:
            self.rights.gone(gone)
        self.is_locked = False
        if "tank/home/k" not in self.heads:
            self.make_keyed()
        for prop in ("mountpoint", "canmount", "readonly", "quota", "refquota", "reservation", "sync", "exec"):
            self.one.try_root("zfs", "inherit", prop, "tank/home")
        # A file system that could not be destroyed may have it from somebody who was allowed to set it.
        self.one.try_root("zfs", "inherit", "-r", "setuid", "tank/home")
        self.one.root("zfs set setuid=off tank/home")
        for uid in UIDS:
            if f"tank/home/u{uid}" not in self.heads:
                self.one.root(f"zfs create tank/home/u{uid}")
                self.rights.made(f"tank/home/u{uid}", 0)
                os.chown(self.one.path("mnt", "home", f"u{uid}"), uid, uid)
        for head in ("tank/home", *(f"tank/home/u{uid}" for uid in UIDS)):
            self.one.try_root("zfs", "mount", head)
        self.look()
        self.rights.grants = {name: grants for name, grants in self.rights.grants.items() if name in self.heads}
        self.mounted = self.mounts()
        self.lately.append(f"epoch {self.epochs}: mounted: {[place for place, _ in self.mounted]}")
        self.delegate()
        self.race()
        self.race_names()
        self.inspect("at the begin of an epoch")

    def race(self):
        """A user moves a file system, and makes others, while root's commands about another one run."""
        if not RACE_S:
            return
        uid = self.random.choice(list(UIDS))
        place, taken = f"tank/home/u{uid}", self.one.path("taken", "a")
        names = ["mountpoint", "create", "mount", "destroy"]
        self.one.root(f"zfs allow -u {uid} {','.join(names)} {place}")
        is_over = []

        def repeat(lines, run):
            while not is_over:
                for line in lines:
                    run(line.split())

        asks = lambda words: self.one.try_root(*words)
        loops = [(["zfs set atime=off tank/other"], asks)] * 2
        racers = [As(uid, UIDS[uid]) for _ in range(2)]
        for racer, lines in zip(racers, (
                [f"zfs set mountpoint={taken} {place}", f"zfs inherit mountpoint {place}"],
                [f"zfs create -o mountpoint={taken} {place}/race", f"zfs destroy {place}/race"])):
            loops.append((lines, lambda words, racer=racer: racer.call(run_as, self.one.socket, ["cenote", *words], [], "/")))
        threads = [threading.Thread(target=repeat, args=loop) for loop in loops]
        for thread in threads:
            thread.start()
        end, hit = time.monotonic() + RACE_S, False
        while time.monotonic() < end and not hit:
            hit = any(where == taken for where, _ in self.mounts())
            time.sleep(0.005)
        is_over.append(1)
        for thread in threads:
            thread.join()
        for racer in racers:
            racer.end()
        if hit:
            raise Fault(f"{taken}, where user {uid} has moved a file system to, was mounted by root's command about "
                        "another dataset, which ran at the same time")
        # Nor by one about what is above it, to which its mount point does not belong.
        self.one.try_root("zfs", "destroy", f"{place}/race")
        self.workers[uid].call(run_as, self.one.socket, ["cenote", "zfs", "create", "-o", f"mountpoint={taken}",
                                                         f"{place}/race"], [], "/")
        # A file system that a user made read-only takes no new mount points.
        self.one.try_root("zfs", "inherit", "mountpoint", "tank/home")
        if any(where == taken for where, _ in self.mounts()):
            raise Fault(f"{taken}, which user {uid} has chosen for {place}/race, was mounted by root's `zfs inherit "
                        "mountpoint tank/home`")
        self.one.try_root("zfs", "destroy", f"{place}/race")
        self.one.try_root("zfs", "inherit", "mountpoint", place)
        self.one.root(f"zfs unallow -u {uid} {place}")
        self.rights.unallow(place, ["local", "descendent"], "user", uid, None)
        # Until now a mount point of the user's may have kept it from being mounted.
        self.one.try_root("zfs", "mount", place)
        self.mounted = self.mounts()
        self.look()

    def race_names(self):
        """A user may set properties of one dataset, and rename it and another one. Between the check of a command's
        rights and its work, the name must not pass to the other one."""
        uid = self.random.choice(list(UIDS))
        home = f"tank/home/u{uid}"
        if not RACE_S or self.rights.may(uid, UIDS[uid], (f"{home}/race/theirs", "head", "userprop")):
            return
        for name in ("race", "race/mine", "race/theirs"):
            self.one.root(f"zfs create -o canmount=off {home}/{name}")
        self.one.root(f"zfs allow -u {uid} rename,create,mount {home}/race")
        self.one.root(f"zfs allow -l -u {uid} userprop {home}/race/mine")
        theirs = self.one.root(f"zfs get -Hp -o value guid {home}/race/theirs").strip()
        is_over, counts = [], {}

        def repeat(racer, lines):
            while not is_over:
                for line in lines:
                    words = ["cenote", *line.replace("AT", f"{home}/race").split()]
                    status, _, _ = racer.call(run_as, self.one.socket, words, [], "/")
                    counts[line, status] = counts.get((line, status), 0) + 1

        lines = (["zfs rename AT/mine AT/away", "zfs rename AT/theirs AT/mine", "zfs rename AT/mine AT/theirs",
                  "zfs rename AT/away AT/mine"], ["zfs set org.example:race=mine AT/mine"],
                 ["zfs set org.example:race=mine AT/mine"])
        racers = [As(uid, UIDS[uid]) for _ in lines]
        threads = [threading.Thread(target=repeat, args=of) for of in zip(racers, lines)]
        for thread in threads:
            thread.start()
        time.sleep(RACE_S)
        is_over.append(1)
        for thread in threads:
            thread.join()
        for racer in racers:
            racer.end()
        guids = dict(line.split("\t") for line in self.one.root(f"zfs list -Hp -r -o name,guid {home}/race").splitlines())
        for name in self.one.root(f"zfs get -H -r -s local -o name org.example:race {home}/race").split():
            if guids[name] == theirs:
                raise Fault(f"user {uid} has set a property of another dataset ({name}), which had the name of its own "
                            f"for a moment: {counts}")
        self.one.root(f"zfs destroy -r {home}/race")
        self.look()

    # Steps: words, needs, and what the model is to note if it succeeds.

    def head(self):
        random = self.random
        if random.random() < 0.15:
            return random.choice(["tank", "tank/victim", "tank/victim/below", "tank/suid", "tank/keyed", "tank/vol",
                                  "tank/home", "tank/none", "tank/other"])
        own = [head for head in self.heads if head.startswith(f"tank/home/u{self.uid}")]
        if own and random.random() < 0.7:
            return random.choice(own)
        return random.choice([head for head in self.heads if head.startswith("tank/home")])

    def child(self):
        return f"{self.head()}/{self.random.choice('abcd')}"

    def snapshot(self):
        own = [name for name in self.snapshots if name.startswith(f"tank/home/u{self.uid}")]
        if self.snapshots and self.random.random() < 0.8:
            return self.random.choice(own if own and self.random.random() < 0.7 else self.snapshots)
        return f"{self.head()}@{self.random.choice('xyz')}"

    def value(self, prop):
        random = self.random
        return random.choice({
            "mountpoint": [self.one.path("taken", random.choice("abc")), "/etc/cron.d", "none", "legacy", "/root"],
            "keylocation": [f"file://{self.file}", "prompt", "file:///etc/shadow"],
            "compression": ["on", "lz4", "zstd"], "quota": ["1G", "none"], "refquota": ["1G", "none"],
            "reservation": ["1M", "none"], "recordsize": ["16K", "128K"], "canmount": ["on", "off", "noauto"],
            "volsize": ["8M", "16M"], "acltype": ["posix", "off"], "xattr": ["sa", "on"], "copies": ["1", "2"],
            "sharenfs": ["on", "off"], "snapdir": ["visible", "hidden"], "userquota@30001": ["1G", "none"],
            "groupquota@40001": ["1G", "none"], "checksum": ["on", "sha256"], "sync": ["standard", "disabled"],
            "org.cenote:serve": ["on"], "org.cenote:iscsi.lun": ["cluster:0"],
            "org.cenote:iscsi.reservations": ["v1_0"], "org.example:note": ["mine"]}.get(prop, ["on", "off"]))

    def typed(self):
        """A property as somebody may type it, with a value."""
        random = self.random
        prop = random.choice(["mountpoint", "setuid", "setuid", "devices", "exec", "canmount", "keylocation", "quota",
                              "refquota", "reservation", "compression", "recordsize", "readonly", "atime", "volsize",
                              "acltype", "xattr", "copies", "sharenfs", "snapdir", "userquota@30001", "checksum", "sync",
                              "groupquota@40001", "org.cenote:serve", "org.cenote:iscsi.lun", "org.example:note",
                              "org.cenote:iscsi.reservations"])
        value = self.value(prop)
        typed = {"compression": "compress", "recordsize": "recsize", "readonly": "rdonly"}.get(prop, prop)
        typed = random.choice([prop, prop, prop, typed, prop.upper(), prop.title()])
        return typed, value

    def options(self, most=2):
        return [self.typed() for _ in range(self.random.choice([0, 0, 1, most]))]

    def making(self, name, options):
        """Needs of making a dataset, and those above that are missing."""
        parent = name.rpartition("/")[0]
        while parent and parent not in self.heads:
            parent = parent.rpartition("/")[0]
        needs = [(parent or "tank", "head", "create"), (parent or "tank", "head", "mount")]
        for prop, value in options:
            permission = permission_for(prop, value)
            if permission == NEVER or permission not in OF_CREATION:
                needs.append((parent or "tank", "child", permission))
        return needs

    def below(self, head):
        return [name for name in self.heads if name == head or name.startswith(head + "/")]

    def destroying(self, names):
        kind = lambda name: "snapshot" if "@" in name else "head"
        return [(name.split("#")[0], kind(name), permission) for name in names for permission in ("destroy", "mount")]

    def step_create(self, _):
        random, name, options = self.random, self.child(), self.options()
        words = ["zfs", "create", *random.choice([[], [], ["-p"], ["-u"], ["-V", "8M", "-s"]])]
        if random.random() < 0.1:
            options += [("encryption", "on"), ("keyformat", "passphrase"), ("keylocation", f"file://{self.file}")]
        if random.random() < 0.1:
            options += [("encryption", "on"), ("keyformat", "passphrase")]
            words += ["--key", f"{name}=file:{random.choice([self.file, '/etc/shadow'])}"]
            return words + self.typed_options(options) + [name], [(name, "head", NEVER)], None
        if "-p" in words and random.random() < 0.5:
            name += "/" + random.choice("abcd")
        return words + self.typed_options(options) + [name], self.making(name, options), ("made",)

    @staticmethod
    def typed_options(options):
        return [word for prop, value in options for word in ("-o", f"{prop}={value}")]

    def step_clone(self, _):
        origin, name, options = self.snapshot(), self.child(), self.options()
        if self.random.random() < 0.2:
            origin = self.random.choice(["tank/suid@kept", "tank/victim@kept"])
        # As in OpenZFS, what is given locally does not reach snapshots.
        needs = [(origin.split("@")[0], "snapshot", "clone"), *self.making(name, options)]
        return ["zfs", "clone", *self.typed_options(options), origin, name], needs, ("made",)

    def step_destroy(self, uid):
        random, target = self.random, self.random.choice([self.head(), self.head(), self.snapshot()])
        words = ["zfs", "destroy", *random.choice([[], [], ["-r"], ["-R"], ["-d"], ["-f"]])]
        if target in ("tank", "tank/home"):
            everything = [name for name in self.types if name.split("@")[0] in self.below(target)]
            if self.rights.lacks(uid, UIDS[uid], self.destroying(everything)):
                return [*words, target], [(target, "head", NEVER)], None
            # It may be granted, and would end this epoch.
            target = self.snapshot()
        names = [target]
        if "@" not in target and len(words) > 2 and words[2] in ("-r", "-R"):
            names = [name for name in self.types if name.split("@")[0] in self.below(target)] or [target]
        return [*words, target], self.destroying(names), ("look",)

    def step_snapshot(self, _):
        head, options = self.head(), self.random.choice([[], [("org.example:note", "x")], [("org.cenote:serve", "x")]])
        heads = [head]
        words = ["zfs", "snapshot", *self.typed_options(options)]
        if self.random.random() < 0.2:
            words, heads = [*words, "-r"], self.below(head) or [head]
        needs = [(name, "head", "snapshot") for name in heads]
        needs += [(head, "head", permission_for(prop, value)) for prop, value in options]
        return [*words, f"{head}@{self.random.choice('wxyz')}"], needs, ("look",)

    def step_rollback(self, _):
        name = self.snapshot()
        return ["zfs", "rollback", *self.random.choice([[], ["-r"], ["-R"]]), name], \
            [(name.split("@")[0], "head", "rollback")], ("look",)

    def step_promote(self, _):
        name = self.random.choice([*self.origins, self.head()])
        needs = [(name, "head", "promote")]
        if name in self.origins:
            needs.append((self.origins[name].split("@")[0], "snapshot", "promote"))
        return ["zfs", "promote", name], needs, ("look",)

    def step_rename(self, _):
        old, new = self.head(), self.child()
        if self.random.random() < 0.3:
            old = self.snapshot()
            new = old.split("@")[0] + "@" + self.random.choice("xyz")
            return ["zfs", "rename", old, new], [(old, "snapshot", "rename")], ("look",)
        if old in ("tank", "tank/home"):
            return ["zfs", "rename", old, new], [(old, "head", NEVER)], None
        needs = [(old, "head", "rename"), *self.making(new, [])]
        return ["zfs", "rename", *self.random.choice([[], ["-u"], ["-p"]]), old, new], needs, ("renamed", old, new)

    def step_bookmark(self, _):
        name = self.snapshot()
        return ["zfs", "bookmark", name, name.split("@")[0] + "#" + self.random.choice("xyz")], \
            [(name.split("@")[0], "head", "bookmark")], None

    def step_set(self, _):
        target = self.random.choice([self.head(), self.head(), self.head(), self.snapshot()])
        options = self.options() or [self.typed()]
        kind = "snapshot" if "@" in target else "head"
        return ["zfs", "set", *(f"{prop}={value}" for prop, value in options), target], \
            [(target, kind, permission_for(prop, value)) for prop, value in options], None

    def step_inherit(self, _):
        head, (prop, _) = self.head(), self.typed()
        heads, words = [head], ["zfs", "inherit", *self.random.choice([[], ["-S"]])]
        if self.random.random() < 0.2:
            words, heads = [*words, "-r"], self.below(head) or [head]
        permission = permission_for(prop, "prompt")
        return [*words, prop, head], [(name, "head", permission) for name in heads], None

    def step_hold(self, _):
        verb, name = self.random.choice(["hold", "release"]), self.snapshot()
        return ["zfs", verb, "tag", name], [(name.split("@")[0], "head", verb)], None

    def step_keys(self, _):
        head = self.random.choice(["tank/keyed", "tank/home/k", self.head()])
        place = self.random.choice([["-L", f"file://{self.file}"], ["--key", f"{head}=file:{self.file}"], [],
                                    ["--key", f"{head}=env:SECRET"], ["--key", f"{head}=pass:wrongwrong"]])
        words = self.random.choice([["load-key"], ["load-key", "-n"], ["load-key", "-r"], ["unload-key"],
                                    ["change-key", "-l"], ["change-key", "-i"],
                                    ["change-key", "-o", f"keylocation=file://{self.file}"],
                                    ["change-key", "-o", "org.cenote:serve=on"]])
        if words[0] == "unload-key":
            place = []
        needs = [(head, "head", "change-key" if words[0] == "change-key" else "load-key")]
        takes_file = any(self.file in word for word in words + place)
        # With -r there may be no key to load; `inspect` sees whether one was.
        if words[-1] != "-r" and (words[0] == "load-key" or takes_file) or "org.cenote:serve=on" in words:
            # The key lies in a file that users can't read, unless one of them has changed it.
            is_set = self.is_key_known or self.was_key_known and head != "tank/home/k"
            is_known = is_set and words[0] == "load-key" and head.startswith("tank/home")
            needs = [(head, "head", "load-key" if is_known and "pass:" in " ".join(place) else NEVER)]
        note = ("key",) if words[0] == "change-key" and "pass:" in " ".join(place) else None
        return ["zfs", *words, *[word for word in place if words[0] == "load-key" or word != "-L"], head], needs, note

    def step_allow(self, uid):
        random, head = self.random, self.head()
        names = random.sample(PERMISSIONS, random.randrange(1, 4)) + random.choice([[], ["@a"], ["@d"]])
        kind, who, option = random.choice([
            ("user", uid, ["-u", str(uid)]), ("user", 30002, ["-u", "30002"]), ("group", 40002, ["-g", "40002"]),
            ("everyone", None, ["-e"]), ("create", None, ["-c"]), ("set", "@d", ["-s", "@d"]),
            ("set", "@a", ["-s", "@a"])])
        reach = random.choice(["", "-l", "-d"]) if kind in ("user", "group", "everyone") else ""
        reaches = {"": ["local", "descendent"], "-l": ["local"], "-d": ["descendent"]}[reach]
        reaches = reaches if kind in ("user", "group", "everyone") else [None]
        words = [*([reach] if reach else []), *option, ",".join(names), head]
        if random.random() < 0.4:
            needs = [(head, "head", "allow" if kind == "user" and who == uid else NEVER)]
            return ["zfs", "unallow", *words], needs, ("unallow", head, reaches, kind, who, names)
        needs = [(head, "head", name) for name in ["allow", *names]]
        if "allow" in names:
            needs.append((head, "head", NEVER))
        return ["zfs", "allow", *words], needs, ("allow", head, reaches, kind, who, names)

    def step_look(self, _):
        """What everybody may do; only a secret would be a fault."""
        name = self.random.choice([self.head(), self.snapshot(), "tank"])
        line = self.random.choice(["zfs get all", "zfs list -r -t all", "zfs allow", "zfs get -r keylocation",
                                   "zpool status -v", "zpool get all", "zfs holds", "zfs list -j -o all"])
        return [*line.split(), name], [], None

    def step_owners(self, _):
        verb, name = self.random.choice([("userspace", "userused"), ("groupspace", "groupused"),
                                         ("projectspace", "projectused")])
        head = self.head()
        return ["zfs", verb, head], [(head, "head", name)], None

    def step_diff(self, _):
        name = self.snapshot()
        return ["zfs", "diff", name], [(name.split("@")[0], "snapshot" if "@" in name else "head", "diff")], None

    def step_other(self, _):
        line = self.random.choice(OTHERS).replace("SECRET", self.file).replace("DIR", self.one.path("disks"))
        return line.replace("FILE", self.one.path("disks", "a")).split(), [("tank", "head", NEVER)], None

    def settle(self, note, uid):
        """Notes which datasets have come and gone, and so have their grants."""
        known = set(self.heads)
        self.look()
        if note[0] == "renamed" and note[1] not in self.heads and note[1] in known and note[2] in self.heads:
            self.rights.renamed(*note[1:])
            known = {note[2] + name[len(note[1]):] if note[1] in above(name) else name for name in known}
        for gone in known - set(self.heads):
            self.rights.gone(gone)
        for new in sorted(set(self.heads) - known):
            self.rights.made(new, uid)

    def delegated(self, name):
        """What was delegated at a dataset and above it, for people."""
        return {place: sorted(map(str, self.rights.of(place))) for place in above(name) if self.rights.of(place)}

    def step(self):
        steps = [self.step_create, self.step_clone, self.step_destroy, self.step_snapshot, self.step_set,
                 self.step_set, self.step_inherit, self.step_rename, self.step_rollback, self.step_promote,
                 self.step_bookmark, self.step_hold, self.step_keys, self.step_allow, self.step_look,
                 self.step_owners, self.step_diff, self.step_other]
        self.uid = uid = self.random.choice(list(UIDS))
        words, needs, note = self.random.choice(steps)(uid)
        # Steps are only judged where there is something to do.
        lacks = self.rights.lacks(uid, UIDS[uid], needs)
        env, cwd = [("NO_COLOR", "1")], self.random.choice(["/", "/root", self.one.folder])
        # As a request of the verb, which the program makes, and as a command line.
        way = self.random.choice([program, command])
        status, out, err = self.workers[uid].call(run_as, self.one.socket, ["cenote", *words], env, cwd, way)
        shown = f"user {uid} {sorted(UIDS[uid])}: {' '.join(words)}"
        self.lately.append(f"{status} {shown}: {err.decode(errors='replace').strip()[:160]}")
        if self.secret in out or self.secret in err:
            raise Fault(f"{shown}: a secret is told")
        if status is None and b"denied" not in err:
            raise Fault(f"{shown}: no answer ({err.decode()})")
        why = err.decode(errors="replace").strip()
        # A file system that a refused command unmounted is not mounted again for users, and this is told, too.
        is_refused = any(line.startswith(("cannot ", "cenote: cannot ")) for line in why.splitlines())
        is_done = status == 0 or not is_refused and (
            "may only be mounted by root" in why or "that is for root" in why)
        if not is_done:
            self.refused += 1
            if b"panic" in err:
                raise Fault(f"{shown}: {why}")
            if lacks is None and "permission denied" in why.lower():
                verb = " ".join(words[:2])
                self.stricter[verb] = self.stricter.get(verb, 0) + 1
            if note and note[0] in ("made", "look", "renamed"):
                # It may have done a part of it.
                self.settle(note, uid)
            return
        told = (out + err).decode(errors="replace").strip()[:300]
        if lacks:
            raise Fault(f"{shown}: it succeeds ({told}) without {lacks}; delegated: {self.delegated(lacks[0])}")
        verb = " ".join(words[:2])
        self.done[verb] = self.done.get(verb, 0) + 1
        if note and note[0] == "key":
            self.is_key_known = True
        elif note and note[0] in ("allow", "unallow"):
            getattr(self.rights, note[0])(*note[1:])
        elif note:
            self.settle(note, uid)


def walk_on(walk, random, steps):
    one = walk.one
    for step in range(steps):
        if step % EPOCH == 0:
            walk.epoch()
        walk.step()
        if step % 50 == 49:
            # Unrelated commands of root's, which must carry out nothing that was left.
            unrelated = random.choice(["zfs set atime=off tank/other", "zfs snapshot tank/other@root",
                                       "zpool sync tank", "zfs create tank/root"]) if step % 100 != 49 else "zfs list tank"
            one.root(unrelated)
            one.try_root("zfs", "destroy", "tank/other@root")
            one.try_root("zfs", "destroy", "tank/root")
            walk.lately.append(f"after step {step}, root: {unrelated}")
            walk.inspect(f"after step {step}")
            one.check()


def work(daemon, random):
    steps = int(number("DELEGATED_STEPS", 100_000))
    one = daemon()
    walk = Walk(one, random)
    one.watch()
    try:
        walk_on(walk, random, steps)
    except Fault:
        for line in walk.lately:
            say(f"  {line}")
        raise
    if not stat.S_IMODE(os.stat(one.path("secret")).st_mode) == 0o600 or sum(walk.done.values()) < steps // 100:
        raise Fault(f"only {walk.done} of {steps} commands were carried out: the walk shows nothing")
    say(f"{steps} commands in {walk.epochs} epochs: {walk.done} carried out, {walk.refused} refused; stricter than "
        f"the model: {walk.stricter}")
    for worker in walk.workers.values():
        worker.end()
    one.rest()


watched.run("delegated", work)
