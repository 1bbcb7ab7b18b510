#!/usr/bin/env python3
"""Makes scripts of random commands, and compares what two runs of one printed (see `commands`).

    commands.py make SEED [COUNT]    a script: a command a line; the same for the same seed
    commands.py compare MODULE CENOTE SCRIPT   differences; exit status 1 if there are any

A script works on pool `p` of files in the working folder. Names are those that earlier commands may have
made, seldom others, so that most commands work and many are refused for a reason."""
import difflib, random, re, sys

R = random.Random()
pick = R.choice


def chance(share):
    return R.random() < share


def some(options, share=0.3):
    """Each option by chance, as text."""
    return " ".join(o for o in options if chance(share))


FILESYSTEMS = ["p", "p/a", "p/b", "p/a/x", "p/a/y", "p/a/x/deep", "p/b/c", "p/clone", "p/clone2", "p/new"]
VOLUMES = ["p/v", "p/a/v", "p/sv"]
SNAPS = ["s1", "s2", "s3", "s4", "r"]
MARKS = ["m1", "m2"]
BAD_NAMES = ["p/none", "nopool", "nopool/a", "p//a", "p/a/", "/p/a", "p/a b", "p/a@", "p/@s", "p/a@s@t",
    "p/a#",
    "p/a@s/b", "p/a%b", "''", "p/" + "n" * 250, "p/" + "n" * 256, "p/a@" + "s" * 256, "p/.", "p/..",
        "p/../a", "p/a/./b",
    "p/$x", "p/ä", "p/a#m#n", "p/a@s#m", "p/a,b", "'p/a '", "p/-a", "p/a*", "@", "#m", "p@", "p/a@%",
        "p/a@s%", "9p",
    "p/$ORIGIN", "p/a:b", "p/a.b_c-d", "p/" + "/".join("d" * 50), "p/a\\nb", "mirror", "p/%recv"]


def fs():
    return pick(FILESYSTEMS) if chance(0.9) else pick(BAD_NAMES)


def ds():
    return pick(VOLUMES) if chance(0.2) else fs()


def snap():
    return f"{ds()}@{pick(SNAPS)}" if chance(0.95) else pick(BAD_NAMES)


def mark():
    return f"{ds()}#{pick(MARKS)}"


def anything():
    return pick([ds, ds, ds, snap, snap, mark])()


SIZES = ["none", "0", "1M", "5m", "10M", "20M", "100M", "1G", "1.5M", "16384", "10MB", "10MiB", "1k", "1KB",
    "-1", "abc",
    "1X", "1e3", "''", "17E", "99999999999999999999", "auto", "1.5.2M", "0x100000", " 5M", "+5M", "5 M",
        "1b", "512", "1000000",
    "1.3K", ".5G", "15.9E", "None", "NONE"]
VALUES = {
    "compression": ["on", "off", "lz4", "gzip", "gzip-1", "gzip-9", "gzip-10", "zstd", "zstd-19", "zstd-20",
        "zstd-fast",
        "zstd-fast-10", "zstd-fast-11", "zstd-fast-1000", "zle", "lzjb", "bad", "LZ4", ""],
    "atime": ["on", "off", "yes", "ON", "1", ""], "relatime": ["on", "off"],
    "checksum": ["on", "off", "sha256", "fletcher2", "fletcher4", "blake3", "noparity", "edonr", "skein",
        "sha512", "crc"],
    "dedup": ["on", "off", "verify", "sha256", "sha256,verify", "blake3", "fletcher4", "edonr",
        "edonr,verify", "skein,verify"],
    "recordsize": ["512", "4k", "128K", "1M", "16M", "32M", "1000", "256", "0", "128KB", "131072", "x"],
    "volblocksize": ["8K", "16K", "512"], "copies": ["1", "2", "3", "4", "0", "two"],
    "readonly": ["on", "off"], "exec": ["on", "off"], "setuid": ["on", "off"], "devices": ["on", "off"],
    "canmount": ["on", "off", "noauto", "maybe"],
    "mountpoint": ["none", "legacy", "/mnt/z1", "/mnt/z2", "relative", "/", "/mnt/../z", "''", "inherit"],
    "snapdir": ["hidden", "visible", "disabled", "x"], "snapdev": ["hidden", "visible"],
    "aclinherit": ["discard", "noallow", "restricted", "passthrough", "passthrough-x", "secure"],
    "aclmode": ["discard", "groupmask", "passthrough", "restricted"], "acltype": ["off", "posix", "nfsv4",
        "posixacl", "noacl"],
    "xattr": ["on", "off", "sa", "dir"], "primarycache": ["all", "none", "metadata"],
    "secondarycache": ["all", "none", "metadata"], "prefetch": ["all", "none", "metadata"],
    "logbias": ["latency", "throughput"], "sync": ["standard", "always", "disabled"],
    "redundant_metadata": ["all", "most", "some", "none"], "dnodesize": ["legacy", "auto", "1k", "16k",
        "32k", "2K"],
    "special_small_blocks": ["0", "4K", "128K", "1M", "2M", "1000", "256", "16M"],
    "filesystem_limit": ["none", "1", "3", "10", "-1", "x", "18446744073709551615"],
        "snapshot_limit": ["none", "0", "2", "10"],
    "quota": SIZES, "refquota": SIZES, "reservation": SIZES, "refreservation": SIZES, "volsize": SIZES,
    "volmode": ["default", "full", "geom", "dev", "none"], "vscan": ["on", "off"], "nbmand": ["on", "off"],
    "overlay": ["on", "off"], "sharenfs": ["off", "''"], "sharesmb": ["off"], "zoned": ["on", "off"],
    "version": ["1", "4", "5", "6", "current"], "direct": ["standard", "always", "disabled"],
    "casesensitivity": ["sensitive", "mixed", "insensitive"], "normalization": ["none", "formC"],
        "utf8only": ["on", "off"],
    "context": ["none"], "mlslabel": ["none", "x"], "longname": ["on", "off"], "encryption": ["off", "on",
        "aes-256-gcm"],
    "keyformat": ["none", "passphrase"], "keylocation": ["prompt", "none"], "pbkdf2iters": ["100000", "1"],
    "used": ["1"], "available": ["1"], "type": ["filesystem"], "creation": ["0"], "guid": ["1"],
        "origin": ["p@s1"], "mounted": ["yes"],
    "written": ["0"], "clones": ["x"], "userrefs": ["1"], "compressratio": ["1.00x"],
        "defer_destroy": ["on"], "objsetid": ["1"],
    "redact_snaps": ["x"], "receive_resume_token": ["x"], "snapshots_changed": ["1"], "written@s1": ["1"],
        "userused@0": ["1"],
    "userquota@root": ["1M", "none", "10", "x", "0"], "userquota@1000": ["1M", "none", "20M"],
        "userquota@user": ["1M"],
    "userquota@nobodyknows": ["1M"], "groupquota@1000": ["5M", "none"], "groupobjquota@0": ["1000"],
        "userobjquota@1000": ["10", "1k", "none"],
    "projectquota@1": ["10M", "none"], "projectobjquota@1": ["5"], "projectquota@x": ["1M"],
        "projectquota@-1": ["1M"], "userquota@": ["1M"],
    "defaultuserquota": ["1M"],
    "user:p": ["v", "some words", "", "x" * 100], "com.x:y": ["1"], "BAD:x": ["1"], "a:b:c": ["1"],
        "user:é": ["1"], ":x": ["1"], "x:": ["1"],
    "user:big": ["b" * 8192], "u:" + "n" * 255: ["1"], "nonsense": ["1"], "name": ["x"],
        "iscsioptions": ["x"], "jailed": ["on"],
    "special:x y": ["1"], "compress": ["on"], "rdonly": ["on"], "recsize": ["4K"], "reserv": ["1M"],
        "refreserv": ["1M"], "avail": ["1"],
    "refer": ["1"], "mountpoint ": ["x"], "Compression": ["on"], "volthreading": ["on", "off"],
        "stmf_sbd_lu": ["x"],
}
COMMON = ["compression", "atime", "quota", "refquota", "reservation", "refreservation", "recordsize",
    "copies", "canmount",
    "user:p", "com.x:y", "readonly", "volsize", "snapshot_limit", "filesystem_limit", "userquota@1000",
        "mountpoint", "sync"]


def prop():
    return pick(COMMON) if chance(0.5) else pick(list(VALUES))


def quoted(text):
    return "'" + text + "'" if not text.startswith("'") and re.search(r"[ *;$é]|^$", text) else text


def setting():
    name = prop()
    return quoted(name + "=" + pick(VALUES[name]).strip("'")) if chance(0.97) else pick(
        ["atime", "=on", "atime=", "atime==on", "=", "atime=on,exec=on"])


def options(least=0, most=2):
    return " ".join("-o " + setting() for _ in range(R.randint(least, most)))


COLUMNS = ["name", "used", "available", "referenced", "type", "origin", "mountpoint", "volsize",
    "compression", "quota",
    "refreservation", "user:p", "creation", "guid", "userrefs", "clones", "written", "logicalused", "space",
        "usedbysnapshots",
    "all", "bad", "NAME", "avail", "refer", "usedsnap", "usedds", "createtxg", "written@s1",
        "userused@root", "userquota@1000",
    "mounted", "canmount", "keystatus", "defer_destroy", "snapshot_count", "filesystem_count", "objsetid",
        "version", "encryptionroot", ""]
TYPES = ["filesystem", "volume", "snapshot", "bookmark", "all", "fs", "vol", "snap", "bad",
    "filesystem,snapshot", "vol,bookmark",
    "snapshot,", "", "all,fs", "fs,bad"]


def many(of, most=3):
    return ",".join(pick(of) for _ in range(R.randint(1, most)))


def z_list():
    words = ["zfs list", some(["-H", "-p", "-r"])]
    if chance(0.6): words.append("-o " + quoted(many(COLUMNS)))
    if chance(0.5): words.append("-t " + quoted(pick(TYPES)))
    if chance(0.3): words.append(pick(["-s ", "-S "]) + quoted(pick(COLUMNS)))
    if chance(0.1): words.append("-s name -S used")
    if chance(0.25): words.append("-d " + pick(["0", "1", "2", "-1", "x", "''", "1x", "99999999999"]))
    words += [anything() for _ in range(pick([0, 1, 1, 1, 2, 3]))]
    return words


def z_get():
    words = ["zfs get", some(["-H", "-p", "-r"])]
    if chance(0.3): words.append("-s " + quoted(many(["local", "default", "inherited", "temporary",
        "received", "none", "bad", ""], 3)))
    if chance(0.4): words.append("-o " + quoted(many(["name", "property", "value", "received", "source",
        "all", "bad", ""], 4)))
    if chance(0.3): words.append("-t " + quoted(pick(TYPES)))
    if chance(0.2): words.append("-d " + pick(["0", "1", "2", "-1", "x"]))
    names = [prop() if chance(0.8) else pick(COLUMNS + ["all,name", "space"]) for _ in range(R.randint(1, 3))]
    if chance(0.15): names = ["all"] if chance(0.5) else [prop(), "all"]
    words.append(quoted(",".join(names)))
    words += [anything() for _ in range(pick([0, 1, 1, 1, 2]))]
    return words


def z_create():
    if chance(0.25):
        target = pick(VOLUMES) if chance(0.8) else ds()
        sizes = ["8M", "10M", "1M", "8K", "0", "1G", "10000", "4M", "-5", "x", "5.5M", "100G"]
        return ["zfs create", some(["-s", "-p", "-n", "-v", "-P", "-u"], 0.25), options(0, 1), pick(["-V ",
            "-b 8k -V ", "-b 512 -V ", "-b 3k -V ", "-b 256k -V "]) + pick(sizes), target]
    return ["zfs create", some(["-p", "-n", "-v", "-P", "-u", "-s"], 0.2), options(), fs()]


def z_set():
    return ["zfs set", some(["-u"], 0.1), " ".join(setting() for _ in range(pick([1, 1, 1, 2, 3]))),
            " ".join(anything() if chance(0.3) else ds() for _ in range(pick([1, 1, 1, 1, 2])))]


def z_inherit():
    return ["zfs inherit", some(["-r", "-S"]), quoted(prop()),
        " ".join(ds() if chance(0.85) else snap() for _ in range(pick([1, 1, 2])))]


def z_snapshot():
    return [pick(["zfs snapshot", "zfs snap"]), some(["-r"]), options() if chance(0.3) else "",
            " ".join(snap() for _ in range(pick([1, 1, 1, 2])))]


def z_destroy():
    flags = some(["-r", "-R", "-n", "-v", "-p", "-d", "-f"], 0.3)
    if chance(0.6):
        names = pick(["s1", "s2", "s3", "s1%s3", "s2%", "%s2", "%", "s1,s2", "s3,s1%s2", "s1,nosuch",
            "nosuch", "s3%s1", "s1%nosuch",
            "nosuch%s3", "s1,", ",s1", "s1%%s2", "s1,@s2", "r", "s1%s2%s3", "", "s1,s1"])
        return ["zfs destroy", flags, f"{ds()}@{names}"]
    if chance(0.2): return ["zfs destroy", flags, mark()]
    return ["zfs destroy", flags, ds() if chance(0.8) else "p"]


def z_rename():
    flags = some(["-r", "-p", "-u", "-f"], 0.2)
    if chance(0.4): return ["zfs rename", flags, snap(), pick([snap(), "@" + pick(SNAPS), pick(SNAPS), fs(),
        "s9"])]
    return ["zfs rename", flags, ds(), pick([ds(), ds(), snap(), "q/a", "p/a/x/new", "p/new/deeper/still",
        "p/b/moved"])]


def z_clone():
    return ["zfs clone", some(["-p", "-u"], 0.15), options(0, 1), snap(), pick(["p/clone", "p/clone2",
        "p/a/cl", "p/cv", ds(), "p/none/clone", "q/x"])]


def z_promote(): return ["zfs promote", ds() if chance(0.5) else pick(["p/clone", "p/clone2", "p/a/cl",
    "p/cv", "p@s1"])]
def z_rollback(): return ["zfs rollback", some(["-r", "-R", "-f"], 0.35), snap() if chance(0.9) else ds()]
def z_hold(): return ["zfs hold", some(["-r"]), pick(["k1", "k2", "''", "t" * 260, "'a b'", ".x", "é",
    "a%b"]) if chance(0.3) else pick(["k1", "k2"]), " ".join(snap() for _ in range(pick([1, 1, 2])))]
def z_release(): return ["zfs release", some(["-r"]), pick(["k1", "k2", "none"]),
    " ".join(snap() for _ in range(pick([1, 1, 2])))]
def z_holds(): return ["zfs holds", some(["-r", "-H", "-p"]), snap() if chance(0.9) else ds()]
def z_bookmark(): return ["zfs bookmark", pick([snap(), snap(), mark()]), pick([mark(),
    "'#" + pick(MARKS) + "'", "p/a#m1", ds(), "m1"])]
def z_diff(): return ["zfs diff", some(["-F", "-H", "-h"], 0.2), snap(), pick([snap(), ds(), ""])]
def z_upgrade(): return ["zfs upgrade", pick(["", "-v", "-a", "-r p", ds(), "-V 5 p/a", "-V 9 p", "-V x p",
    "-V 4 p/a", "-a p", "-r", "-V 5 -a"])]


def z_space():
    return [pick(["zfs userspace -n", "zfs groupspace -n", "zfs projectspace -n"]), some(["-H", "-p", "-i"],
        0.25),
            pick(["", "", "-o name,used", "-o type,name,used,quota,objused,objquota", "-o bad",
                "-o name,name", "-t posixuser", "-t all", "-t bad", "-s used", "-S used", "-S name -s used",
                "-s bad", "-t smbuser,posixgroup"]),
            anything()]


def z_allow():
    who = pick(["-u user", "-g user", "-e", "-c", "-s @set", "user", "everyone", "1000", "nobodyknows",
        "-u 1000,root", "-g root", "group user", "-s set", "user user"])
    what = pick(["create,mount", "snapshot", "@set", "compression", "bad", "create", "destroy,mount",
        "userprop", "send", "@nosuch", "quota,used", ""])
    command = pick(["zfs allow", "zfs unallow"])
    return [command, some(["-l", "-d", "-r"], 0.15), who, quoted(what),
        ds()] if chance(0.7) else ["zfs allow", ds()]


def write():
    file = pick(["f1", "f2", "dir/f3"])
    where = pick(["p", "p/a", "p/b", "p/a/x", "p/clone"])
    content = f"head -c {pick([100, 300000, 2000000])} /dev/urandom > /{where}/{file}"
    owner = f"chown {pick(['0:0', '1000:1000', '1001:7'])} /{where}/{file}"
    mounted = f"grep -q ' /{where} ' /proc/mounts"
    return [f"if {mounted}; then mkdir -p /{where}/dir; {content}; {owner}; fi 2>/dev/null"]


def remove():
    return [f"rm -rf /{pick(['p', 'p/a', 'p/b', 'p/a/x'])}/{pick(['f1', 'f2', 'dir'])} 2>/dev/null"]


def misc():
    return [pick(["zfs", "zpool", "zfs nosuch", "zpool nosuch", "zfs get", "zfs set", "zfs list -x",
        "zfs list -o", "zfs create", "zfs destroy",
        "zfs snapshot", "zfs rename p/a", "zfs rename", "zfs clone p@s1", "zfs clone", "zfs promote",
            "zfs promote p/a p/b", "zfs rollback", "zfs rollback p@s1 p@s2",
        "zfs hold k1", "zfs hold", "zfs holds", "zfs release k1", "zfs bookmark", "zfs bookmark p@s1",
            "zfs diff", "zfs diff p/a", "zfs inherit", "zfs inherit atime",
        "zfs inherit all p", "zfs userspace", "zfs allow", "zfs unallow", "zfs get all p/none", "zfs mount",
            "zfs mount -a", "zfs unmount p/a", "zfs umount p/none",
        "zfs mount p/a", "zfs mount p/v", "zfs mount p/a@s1", "zfs unmount -a", "zfs unmount",
            "zfs share p/a", "zfs unshare p/a", "zfs load-key p", "zfs unload-key p",
        "zfs change-key p", "zfs load-key -a", "zfs version | wc -l", "zfs wait p/a",
            "zfs wait -t deleteq p/a", "zfs wait p/none",
        "zfs project p", "zfs project -d nofile", "zfs unallow p", "zfs set atime=on", "zfs set p",
            "zfs list -d", "zfs get -s", "zfs list -t", "zfs get -o", "zfs -h >/dev/null",
            "zfs help >/dev/null", "zfs list -h"])]


def v():
    return pick(["d0", "d1", "d2", "d3", "d4", "d5", "small", "none"])


def path():
    return v() if chance(0.15) else "$D/" + v()


POOL_VALUES = {"comment": ["hello", "", "x" * 40, "'a b'"], "autotrim": ["on", "off", "x"],
    "autoexpand": ["on", "off"], "autoreplace": ["on", "off"],
    "failmode": ["wait", "continue", "panic", "x"], "delegation": ["on", "off"], "listsnapshots": ["on",
        "off"], "listsnaps": ["on", "off"], "multihost": ["on", "off"],
    "bootfs": ["p/a", "p/none", "", "p/v", "p@s1"], "cachefile": ["none", "relative"], "readonly": ["on"],
        "ashift": ["12", "9", "17", "8", "x"], "size": ["1"],
    "version": ["28", "5000", "1", "x"], "altroot": ["/x"], "feature@lz4_compress": ["enabled", "disabled",
        "on"], "feature@nosuch": ["enabled"], "feature@edonr": ["enabled"],
    "dedup_table_quota": ["auto", "none", "1M", "x"], "compatibility": ["off", "legacy", "nosuch",
        "openzfs-2.1-linux"], "user:p": ["v", ""], "a:b": ["1"], "nonsense": ["1"], "bcloneused": ["1"],
        "guid": ["1"], "name": ["x"], "load_guid": ["1"]}
POOL_PROPS = list(POOL_VALUES) + ["all", "health", "free", "freeing", "leaked", "fragmentation", "capacity",
    "allocated", "expandsize", "checkpoint", "dedupratio", "maxblocksize", "maxdnodesize", "used",
    "feature@async_destroy", "unsupported@x", "bclonesaved", "bcloneratio", "dedup_table_size",
    "last_scrubbed_txg", "cap,free"]


def zp_set():
    name = pick(list(POOL_VALUES))
    if chance(0.2): return ["zpool set", pick(["comment=x", "path=x", "allocating=off", "allocating=on",
        "checksum_n=5", "failfast=off", "user:v=1", "bad=1", "io_n=x", "slow_io_n=4", "noalloc=on"]), "p",
        pick(["mirror-0", "$D/d0", "d0", "root-0", "none", "all-vdevs"])]
    return ["zpool set", quoted(name + "=" + pick(POOL_VALUES[name]).strip("'")), pick(["p", "p", "p",
        "nopool", "p/a", "p p", ""])]


def zp_get():
    extra = pick(["p"] * 6 + ["", "nopool", "p nopool", "p all-vdevs", "p mirror-0", "p $D/d0", "p root-0",
        "p d9", "p/a"])
    name = pick(POOL_PROPS) if "-" not in extra else pick(["all", "size", "state", "allocating", "path",
        "read_errors", "comment", "user:v", "bad", "ashift,asize", "parent,children", "removing", "name",
        "guid"])
    return ["zpool get", some(["-H", "-p"]), pick(["", "", "-o name,value", "-o all", "-o bad",
        "-o property,source"]), name, extra]


def zp_list():
    return ["zpool list", some(["-H", "-p", "-v", "-P", "-L", "-g"], 0.2), "-o " + pick(["name,size",
        "name,health,altroot", "all", "bad", "name,capacity,fragmentation,dedupratio",
        "name,comment,ashift,autotrim", "feature@lz4_compress,name", "cap,frag,dedup,free,alloc",
        "user:p"]) if chance(0.6) else "", pick(["p", "", "nopool", "p nopool", "p p", "p/a"])]


def zp_status():
    return ["zpool status", some(["-v", "-x", "-s", "-D", "-t", "-i", "-p", "-L", "-P", "-e", "-d"], 0.15),
        pick(["p", "p", "p", "", "nopool", "p mirror-0", "p $D/d0", "p/a"])]


def zp_history(): return ["zpool history", some(["-l"], 0.2), pick(["p", "nopool", "p nopool", "p/a"]),
    "| tail -n 5 | cut -c 1-120"]


LAYOUTS = ["", "mirror", "spare", "log", "cache", "special", "dedup", "raidz", "raidz3", "draid",
    "log mirror",
    "special mirror", "spare mirror", "cache mirror", "raidz2", "mirror spare"]


def zp_vdev():
    kind = R.randrange(12)
    n = "-n" if chance(0.2) else ""
    f = some(["-f"], 0.2)
    if kind == 0:
        return ["zpool add", n, f, pick(["p"] * 12 + ["nopool", "p/a"]), pick(LAYOUTS),
            " ".join(path() for _ in range(pick([0, 1, 1, 2, 2, 3])))]
    if kind == 1: return ["zpool attach", f, some(["-s", "-w"], 0.2), "p", path(), path()]
    if kind == 2: return ["zpool detach p", pick([path(), path(), "mirror-0", ""])]
    if kind == 3: return ["zpool offline", some(["-t", "-f"], 0.2), "p", path()]
    if kind == 4: return ["zpool online", some(["-e"], 0.2), "p", path()]
    if kind == 5: return ["zpool replace -w" if chance(0.7) else "zpool replace", f, "p", path(),
        pick([path(), ""])]
    if kind == 6: return ["zpool remove", some(["-w", "-n", "-p", "-s"], 0.2), "p", pick([path(), path(),
        "mirror-0", "mirror-1", "mirror-2", ""])]
    if kind == 7: return ["zpool checkpoint", some(["-d", "-w"], 0.35), pick(["p"] * 5 + ["nopool"])]
    if kind == 8: return ["zpool labelclear", f, path()]
    if kind == 9: return ["zpool split", some(["-n"], 0.7), some(["-R /mnt/alt"], 0.3), "p", pick(["q", "p",
        "mirror", "9x", ""]), pick(["", path(), path() + " " + path()])]
    if kind == 10: return [pick(["zpool initialize -w", "zpool initialize -c", "zpool initialize -s",
        "zpool initialize -u", "zpool trim -w", "zpool trim -c", "zpool trim -s", "zpool trim -r x",
        "zpool trim -r 10M -w", "zpool trim -d -w", "zpool initialize -c -s"]), pick(["p", "p", "nopool"]),
        pick(["", "", path()])]
    return [pick(["zpool clear", "zpool clear -F", "zpool reopen", "zpool reopen -n"]), pick(["p",
        "nopool"]), pick(["", path()])]


def zp_misc():
    return [pick(["zpool scrub -w p", "zpool scrub -p p", "zpool scrub -s p", "zpool scrub nopool",
        "zpool scrub -s -p p", "zpool scrub", "zpool scrub -e p", "zpool scrub -C p", "zpool resilver p",
        "zpool reguid p", "zpool reguid nopool",
        "zpool reguid -g 5 p", "zpool sync", "zpool sync p", "zpool sync nopool", "zpool wait p",
            "zpool wait -t scrub p", "zpool wait -t bad p", "zpool wait nopool", "zpool upgrade",
            "zpool upgrade p", "zpool upgrade -v | wc -l", "zpool upgrade -a",
        "zpool upgrade nopool", "zpool upgrade -V 29 p", "zpool upgrade -V 5000 p", "zpool export nopool",
            "zpool export", "zpool destroy nopool", "zpool destroy", "zpool destroy p/a", "zpool import",
            "zpool import nopool", "zpool import p", "zpool import -d $D nosuch",
        "zpool create", "zpool create p $D/d5", "zpool create q", "zpool create q $D/d0",
            "zpool create q $D/none", "zpool create q $D/small", "zpool create mirror $D/d5",
            "zpool create raidz1x $D/d5", "zpool create 9x $D/d5", "zpool create c0x $D/d5",
            "zpool create log $D/d5", "zpool create 'a b' $D/d5",
        "zpool create q mirror $D/d5", "zpool create q raidz $D/d5", "zpool create q mirror $D/d4 $D/d4",
            "zpool create q $D/d4 mirror $D/d5 $D/d3", "zpool create q raidz4 $D/d4 $D/d5",
            "zpool create -o ashift=8 q $D/d5", "zpool create -o bad=1 q $D/d5",
            "zpool create -O bad=1 q $D/d5", "zpool create -O volsize=1M q $D/d5",
        "zpool create -n q $D/d5", "zpool create -n q mirror $D/d4 $D/d5 log $D/d3",
            "zpool create -o version=28 -n q $D/d5", "zpool create -o feature@lz4_compress=off q $D/d5",
            "zpool create -m relative q $D/d5", "zpool create q spare $D/d5", "zpool create q log $D/d5",
            "zpool create q draid $D/d4 $D/d5", "zpool create q draid1:9d:2c $D/d4 $D/d5",
            "zpool create q draid9 $D/d4 $D/d5", "zpool create q cache $D/d5",
            "zpool create " + "q" * 256 + " $D/d5", "zpool create -o comment=" + "x" * 40 + " q $D/d5",
        "zpool create -o compatibility=nosuch q $D/d5", "zpool create -d -o feature@bad=enabled q $D/d5",
            "zpool create -o feature@edonr=maybe q $D/d5", "zpool create -t tmp q /nonexist",
            "zpool create q/a $D/d5", "zpool create q@s $D/d5", "zpool create q%x $D/d5",
            "zpool create -f q mirror $D/small $D/d5 -n",
        "zpool get", "zpool set", "zpool set comment p", "zpool set comment=x", "zpool status nopool",
            "zpool list -o", "zpool add", "zpool add p", "zpool attach p", "zpool attach p $D/d0",
            "zpool detach", "zpool detach p", "zpool offline p", "zpool online", "zpool replace",
            "zpool replace p", "zpool remove", "zpool remove p", "zpool clear", "zpool checkpoint",
            "zpool labelclear", "zpool split p", "zpool split",
        "zpool history | tail -n 2", "zpool iostat nopool", "zpool iostat -x", "zpool iostat p 0",
            "zpool events nopool", "zpool events -x", "zpool initialize", "zpool trim",
            "zpool reopen nopool", "zpool prefetch -t bad p", "zpool ddtprune p", "zpool wait",
            "zpool list -T x", "zpool status -T x p", "zpool list p 0", "zpool list -j p | wc -l",
            "zpool reguid -g x p", "zpool import -a -d $D", "zpool import -D -d $D"])]


def zp_export():
    return [pick(["zpool export p; zpool import -d $D p",
        "zpool export p; zpool import -d $D; zpool import -d $D p", "zpool import -d $D p",
        "zpool export p; zpool import -d $D -N p; zfs mount -a",
        "zpool export p; zpool import -d $D p q2; zpool export q2; zpool import -d $D q2 p"])]


VERBS = [(z_list, 10), (z_get, 10), (z_create, 12), (z_set, 16), (z_inherit, 4), (z_snapshot, 9),
    (z_destroy, 10), (z_rename, 6), (z_clone, 5), (z_promote, 2),
    (z_rollback, 2), (z_hold, 4), (z_release, 3), (z_holds, 2), (z_bookmark, 3), (z_diff, 2), (z_upgrade,
        1), (z_space, 4), (z_allow, 5), (write, 4), (remove, 1),
    (misc, 8), (zp_set, 5), (zp_get, 4), (zp_list, 3), (zp_status, 2), (zp_history, 1), (zp_vdev, 6),
        (zp_misc, 8), (zp_export, 1)]
# State that both must have in common now and then.
LOOK = ["zfs list -H -t all -o name,type,origin,userrefs,quota,volsize,refreservation,mountpoint -r p",
    "zpool status p",
    "zfs get -H -r -s local,received,inherited all p",
        "zfs list -H -o name,used,avail,refer,written -t all -r p"]
DISKS = "for n in 0 1 2 3 4 5; do truncate -s 128M $D/d$n; done; truncate -s 32M $D/small"
BEGIN = ["rm -rf /p /q /mnt/z1 /mnt/z2; rm -f $D/*; " + DISKS,
    "zpool create p mirror $D/d0 $D/d1",
    "zfs create p/a", "zfs create p/b", "zfs create p/a/x", "zfs create -V 8M p/v",
        "zfs create -s -V 8M p/sv", "zfs snapshot -r p@s1"]
END = ["zpool sync p"] + LOOK + ["zpool destroy -f p", "zpool destroy -f q 2>/dev/null", "rm -rf $D/*"]


def make(seed, count):
    R.seed(seed)
    lines = list(BEGIN)
    verbs, weights = zip(*VERBS)
    # Each script favours some verbs.
    weights = [w * pick([0.3, 1, 1, 3]) for w in weights]
    while len(lines) < count:
        line = " ".join(w for w in R.choices(verbs, weights)[0]() if w)
        lines.append(re.sub("  +", " ", line) if "'" not in line else line)
        if len(lines) % 40 == 0: lines += ["zpool sync p"] + LOOK
    return lines + END


def read(file):
    """A run as a list of (command, out, err, status)."""
    blocks = []
    for line in open(file, errors="replace").read().split("\n"):
        if line.startswith("=== "): blocks.append([line[4:], [], [], None])
        elif line.startswith("o "): blocks[-1][1].append(line[2:])
        elif line.startswith("e "): blocks[-1][2].append(line[2:])
        elif line.startswith("rc "): blocks[-1][3] = line[3:]
    return blocks


SIZE = re.compile(r"^(\d+(?:\.\d+)?)([BKMGTPE]?)$")


def size(token):
    found = SIZE.match(token)
    return found and float(found[1]) * 1024 ** "BKMGTPE".index(found[2] or "B")


TIMES = [r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) ?\w* +\w+ +\d+ +[\d: ]+\d\d\d\d",
    r"\b\w{3} +\w{3} +\d+ +\d+:\d\d +\d{4}", r"\d{4}-\d\d-\d\d[.:0-9]*"]


def plain(line):
    for time in TIMES: line = re.sub(time, "TIME", line)
    line = re.sub(r"\b\d{14,20}\b", "GUID", line)
    line = re.sub(r"\b1[67]\d{8}\b", "STAMP", line)
    line = line.replace("/vdevs/", "").replace("can be opened using", "can be imported using")
    line = re.sub(r"\d\d:\d\d:\d\d|\b[\d.]+x\b", "N", line)
    return re.sub(r"[ \t]+", " ", line).strip()


def same(a, b):
    if a == b: return True
    a, b = re.split(r"[ \t=]+", a), re.split(r"[ \t=]+", b)
    if len(a) != len(b): return False
    for x, y in zip(a, b):
        if x == y: continue
        m, n = size(x), size(y)
        if m is None or n is None or abs(m - n) > max(0.06 * max(m, n), 600 << 10): return False
    return True


def shown(lines):
    """Lines as compared: `status:` and `action:` of `zpool status` are in Cenote's own words."""
    rest, own = [], False
    for line in map(plain, lines):
        own = line.startswith(("status:", "action:")) or own and not line.startswith(("scan:", "config:",
            "see:", "pool:"))
        if line and not own: rest.append(line)
    return rest


def alike(ours, theirs):
    ours, theirs = shown(ours), shown(theirs)
    return len(ours) == len(theirs) and all(map(same, ours, theirs))


def compare(module, cenote):
    bad = 0
    module, cenote = read(module), read(cenote)
    if len(module) != len(cenote):
        print(f"{len(module)} commands of the module, {len(cenote)} of Cenote"); bad = 1
    for a, b in zip(module, cenote):
        failed = [x != "0" for x in (a[3], b[3])]
        parts = ["status"] if failed[0] != failed[1] else []
        # What a command that fails says before is not compared.
        if not all(failed) and not alike(a[1], b[1]): parts.append("out")
        if bool(a[2]) != bool(b[2]): parts.append("err")
        if not parts: continue
        bad += 1
        print(f"--- {a[0][:300]}   [{', '.join(parts)}] {a[3]} {b[3]}")
        for p, at in (("out", 1), ("err", 2)):
            if p in parts or "status" in parts:
                x, y = a[at], b[at]
                if len(x) > 6 and p in parts:
                    d = [l for l in difflib.unified_diff(shown(x), shown(y), lineterm="",
                        n=0) if not l.startswith(("---", "+++", "@@"))]
                    for l in d[:24]: print(f"   {p} {l[:200]}")
                else:
                    for l in x[:12]: print(f"   {p} - {l[:220]}")
                    for l in y[:12]: print(f"   {p} + {l[:220]}")
    print(f"{bad} of {len(module)} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1] == "make":
        print("\n".join(make(int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 250)))
    else:
        sys.exit(compare(sys.argv[2], sys.argv[3]))
