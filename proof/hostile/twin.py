"""What local users try with files, for `users.py`: one operation, done alike in two trees.

`trees` has the tree that is attacked, and beside it a twin in tmpfs, which says what the kernel itself allows. Each
operation answers a word: "ok" with what was seen, or the name of an error. The victims are root's and another user's.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import struct
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)
GROUP = 41000
GETFLAGS, SETFLAGS, GETXATTR, SETXATTR, GETVERSION = 0x80086601, 0x40086602, 0x801C581F, 0x401C5820, 0x80087601
IMMUTABLE, APPEND, NODUMP, NOATIME = 0x10, 0x20, 0x40, 0x80
DENIALS = {"EACCES", "EPERM"}
# user::rw- user:UID:r-- group::--- mask::r-- other::---
ACL = lambda uid: struct.pack("<I" + "HHI" * 5, 2, 1, 6, 0xFFFFFFFF, 2, 4, uid, 4, 0, 0xFFFFFFFF, 16, 4, 0xFFFFFFFF,
                              32, 0, 0xFFFFFFFF)
# Version 2, all of CAP_SETUID, effective.
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 7, 0, 0, 0)


def plant(tree, users, secret):
    """Makes the tree as it is at the begin."""
    for path, _, names in os.walk(tree):
        for name in names:
            set_flags(os.path.join(path, name), 0)
    for name in os.listdir(tree):
        path = os.path.join(tree, name)
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)

    def file(name, mode, uid=0, gid=0, content=b"content\n"):
        path = os.path.join(tree, name)
        with open(path, "wb") as made:
            made.write(content)
        os.chown(path, uid, gid)
        os.chmod(path, mode)
        return path

    def folder(name, mode, uid=0, gid=0):
        os.mkdir(os.path.join(tree, name))
        os.chown(os.path.join(tree, name), uid, gid)
        os.chmod(os.path.join(tree, name), mode)

    one, two = users
    file("secret", 0o600, content=secret)
    folder("private", 0o700)
    file("private/inside", 0o666, content=secret)
    path = file("readable", 0o644)
    for name in ("user.note", "trusted.note", "security.note"):
        os.setxattr(path, name, b"root's")
    folder("sticky", 0o1777)
    file("sticky/roots", 0o644)
    file("sticky/twos", 0o666, two, two)
    file("setid", 0o4755)
    file("setgid", 0o2777, 0, GROUP)
    file("capable", 0o755)
    os.setxattr(os.path.join(tree, "capable"), "security.capability", CAPABILITY)
    os.setxattr(file("granted", 0o640), "system.posix_acl_access", ACL(one))
    folder("group", 0o2770, 0, GROUP)
    file("group/ours", 0o660, 0, GROUP)
    folder("open", 0o777)
    file("open/roots", 0o600, content=secret)
    os.symlink("../secret", os.path.join(tree, "open/link"))
    for name, uid in (("one", one), ("two", two)):
        folder(name, 0o755, uid, uid)
        file(f"{name}/own", 0o644, uid, uid)
        file(f"{name}/setid", 0o6755, uid, uid)
    set_flags(file("immutable", 0o666), IMMUTABLE)
    set_flags(file("append", 0o666), APPEND)


PLACES = ["", "secret", "private", "private/inside", "readable", "sticky", "sticky/roots", "sticky/twos", "setid",
          "setgid", "capable", "granted", "group", "group/ours", "open", "open/roots", "open/link", "one", "one/own",
          "one/setid", "two", "two/own", "two/setid", "immutable", "append", *(
              f"{folder}/{name}" for folder in ("open", "sticky", "one", "two", "group", "private", "one/x")
              for name in "xyz")]


def set_flags(path, flags):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW) if stat.S_IFMT(os.lstat(path).st_mode) in (
        stat.S_IFREG, stat.S_IFDIR) else None
    if fd is not None:
        try:
            fcntl.ioctl(fd, SETFLAGS, struct.pack("<Q", flags))
        except OSError:
            if flags:
                raise
        finally:
            os.close(fd)


def attribute(path, name):
    """An attribute's value, or the name of the error."""
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno)).encode()


def seen(tree):
    """All that matters of a tree's state."""
    found = {}
    for path, folders, names in os.walk(tree):
        for name in [".", *folders, *names] if path == tree else [*folders, *names]:
            full = os.path.normpath(os.path.join(path, name))
            now = os.lstat(full)
            attributes = {name: attribute(full, name) for name in os.listxattr(full, follow_symlinks=False)}
            content, flags = None, None
            if stat.S_ISREG(now.st_mode) or stat.S_ISDIR(now.st_mode):
                fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW)
                flags = struct.unpack("<Q", fcntl.ioctl(fd, GETFLAGS, bytes(8)))[0] & (IMMUTABLE | APPEND)
                content = os.pread(fd, 65536, 0) if stat.S_ISREG(now.st_mode) else None
                os.close(fd)
            elif stat.S_ISLNK(now.st_mode):
                content = os.readlink(full)
            links = now.st_nlink if not stat.S_ISDIR(now.st_mode) else 0
            size = now.st_size if stat.S_ISREG(now.st_mode) else 0
            found[os.path.relpath(full, tree)] = (oct(now.st_mode), now.st_uid, now.st_gid, links, size, now.st_rdev,
                                                  content, sorted(attributes.items()), flags)
    return found


def checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def with_fd(path, flags, work):
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        return work(fd)
    finally:
        os.close(fd)


def in_namespace(work):
    """What a user can do who is root in a user namespace."""
    reader, writer = os.pipe()
    uid, gid = os.getuid(), os.getgid()
    pid = os.fork()
    if pid == 0:
        try:
            checked(LIBC.unshare(0x10000000 | 0x00020000))
            for name, line in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(line)
            said = repr(work())
        except OSError as error:
            said = f"!{errno.errorcode.get(error.errno, error.errno)}"
        os.write(writer, said.encode()[:4000])
        os._exit(0)
    os.close(writer)
    said = b""
    while more := os.read(reader, 4096):
        said += more
    os.close(reader)
    os.waitpid(pid, 0)
    if said.startswith(b"!"):
        name = said[1:].decode()
        raise OSError(getattr(errno, name, errno.EIO), name)
    return said


def handle(path):
    known = ctypes.create_string_buffer(8 + 128)
    struct.pack_into("<Ii", known, 0, 128, 0)
    checked(LIBC.name_to_handle_at(-100, path.encode(), known, ctypes.byref(ctypes.c_int()), 0))
    return known


def by_handle(tree, known):
    return with_fd(tree, os.O_RDONLY, lambda fd: os.read(checked(LIBC.open_by_handle_at(fd, known, os.O_RDONLY)), 99))


def write_mapped(path, data):
    def work(fd):
        with mmap.mmap(fd, 8) as mapped:
            mapped[:len(data)] = data
            mapped.flush()
    return with_fd(path, os.O_RDWR, work)


def temporary(path, other):
    def work(fd):
        os.write(fd, b"temporary")
        checked(LIBC.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, other.encode(), 0x400))
    return with_fd(path, os.O_TMPFILE | os.O_RDWR, work)


def chosen(random):
    """An operation: its name and arguments, without the tree."""
    place, other = random.choice(PLACES), random.choice(PLACES)
    mode = random.choice([0o644, 0o666, 0o777, 0o4755, 0o2755, 0o6777, 0, 0o1777])
    uid = random.choice([0, 31001, 31002, GROUP, -1])
    name = random.choice(["user.note", "user.x", "trusted.note", "trusted.x", "security.note", "security.capability",
                          "system.posix_acl_access", "system.posix_acl_default", "system.nfs4_acl", "system.x", "x",
                          "system.", "os2.x", "user.", "security.ima", "trusted.overlay.opaque", "system.root"])
    value = random.choice([b"", b"x", b"x" * 1000, ACL(31001), CAPABILITY, struct.pack("<I", 2)])
    flags = random.choice([0, IMMUTABLE, APPEND, NODUMP, NOATIME, IMMUTABLE | NODUMP, 0x80000, 0x20000000, 1 << 31])
    opened = random.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC,
                            os.O_WRONLY | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDONLY | os.O_NOATIME])
    number = random.choice([0x801C581F, 0xC0185879, 0x4004667F, 0x00005401, 0x80184540, 0xC0481273, 0xC020660B,
                            0x40086602, 0x80108907, random.getrandbits(32)])
    return random.choice([
        ("open", place, opened), ("open", place, opened), ("write", place, random.choice([b"x", b"y" * 5000])),
        ("write", place, b"z"), ("read", place), ("read", place), ("list", place), ("stat", place),
        ("make", place, mode), ("mkdir", place, mode & 0o777), ("rmdir", place), ("unlink", place), ("unlink", place),
        ("rename", place, other, random.choice([0, 0, 1, 2, 4])), ("rename", place, other, 0),
        ("link", place, other), ("link", place, other), ("symlink", place, other), ("chmod", place, mode),
        ("chmod", place, mode), ("chown", place, uid, random.choice([uid, GROUP])), ("truncate", place, random.choice([0, 3, 9])),
        ("touch", place, random.choice([None, (1, 1)])), ("mknod", place, random.choice([stat.S_IFIFO, stat.S_IFCHR,
                                                                                         stat.S_IFBLK, stat.S_IFSOCK])),
        ("setxattr", place, name, value, random.choice([0, 1, 2])), ("setxattr", place, name, value, 0),
        ("getxattr", place, name), ("removexattr", place, name), ("setflags", place, flags), ("setflags", place, flags),
        ("setfsx", place, flags & 0x1FF, random.choice([0, 7])), ("ioctl", place, number, random.randbytes(64)),
        ("allocate", place, random.choice([0, 1, 3, 16])), ("copy", place, other), ("map", place), ("tmpfile", place, other),
        ("handle", place), ("forged", random.randbytes(random.choice([8, 12, 20])), random.choice([1, 0x81, 2])),
        ("namespace", random.choice(["bind", "mount", "umount", "chown", "mknod", "xattr", "capability", "remount",
                                     "handle", "read", "setflags"]), place, other)])


def perform(tree, what):
    """Does it; answers "ok" and what was seen, or an error's name."""
    try:
        return "ok", operation(tree, *what)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno)), None
    except ValueError as error:
        return str(error), None


def operation(tree, what, *arguments):
    at = lambda place: os.path.join(tree, place) if place else tree
    path = at(arguments[0]) if isinstance(arguments[0], str) else None
    rest = arguments[1:]
    match what:
        case "open":
            return with_fd(path, rest[0], lambda fd: None)
        case "write":
            return with_fd(path, os.O_WRONLY, lambda fd: os.write(fd, rest[0]))
        case "read":
            return with_fd(path, os.O_RDONLY, lambda fd: os.read(fd, 65536))
        case "list":
            return sorted(os.listdir(path))
        case "stat":
            return oct(os.stat(path).st_mode)
        case "make":
            return os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, rest[0]))
        case "mkdir":
            return os.mkdir(path, rest[0])
        case "rmdir":
            return os.rmdir(path)
        case "unlink":
            return os.unlink(path)
        case "rename":
            return checked(LIBC.renameat2(-100, path.encode(), -100, at(rest[0]).encode(), rest[1]))
        case "link":
            return os.link(path, at(rest[0]), follow_symlinks=False)
        case "symlink":
            return os.symlink(f"../{rest[0]}", path)
        case "chmod":
            return os.chmod(path, rest[0])
        case "chown":
            return os.chown(path, rest[0], rest[1], follow_symlinks=False)
        case "truncate":
            return os.truncate(path, rest[0])
        case "touch":
            return os.utime(path, rest[0])
        case "mknod":
            return os.mknod(path, rest[0] | 0o666, os.makedev(1, 3))
        case "setxattr":
            return os.setxattr(path, rest[0], rest[1], rest[2])
        case "getxattr":
            return os.getxattr(path, rest[0])
        case "removexattr":
            return os.removexattr(path, rest[0])
        case "setflags":
            return with_fd(path, os.O_RDONLY, lambda fd: fcntl.ioctl(fd, SETFLAGS, struct.pack("<Q", rest[0])) and None)
        case "setfsx":
            fields = struct.pack("<IIIII", rest[0], 0, 0, rest[1], 0) + bytes(8)
            return with_fd(path, os.O_RDONLY, lambda fd: fcntl.ioctl(fd, SETXATTR, fields) and None)
        case "ioctl":
            return with_fd(path, os.O_RDONLY, lambda fd: fcntl.ioctl(fd, rest[0], rest[1]) and None)
        case "allocate":
            return with_fd(path, os.O_WRONLY, lambda fd: checked(LIBC.fallocate(
                fd, rest[0], ctypes.c_long(0), ctypes.c_long(4096))))
        case "copy":
            return with_fd(path, os.O_RDONLY, lambda source: with_fd(at(rest[0]), os.O_WRONLY, lambda to: checked(
                LIBC.copy_file_range(source, None, to, None, ctypes.c_size_t(64), 0)) and None))
        case "map":
            return write_mapped(path, b"mapped")
        case "tmpfile":
            return temporary(path, at(rest[0]))
        case "handle":
            return by_handle(tree, handle(path))
        case "forged":
            known = ctypes.create_string_buffer(struct.pack("<Ii", len(arguments[0]), rest[0]) + arguments[0])
            return by_handle(tree, known)
        case "namespace":
            return in_namespace(lambda: as_root_of_a_namespace(tree, arguments[0], at(rest[0]), at(rest[1])))
    raise ValueError(what)


def as_root_of_a_namespace(tree, what, path, other):
    mount = lambda *words: checked(LIBC.mount(*(word.encode() if isinstance(word, str) else word for word in words)))
    match what:
        case "bind":
            mount(path, os.path.join(tree, "open"), "none", 4096, None)
            return sorted(os.listdir(os.path.join(tree, "open"))) if os.path.isdir(path) else None
        case "mount":
            mount("none", path, "tmpfs", 0, None)
        case "umount":
            checked(LIBC.umount2(tree.encode(), 2))
        case "remount":
            # Suid, dev, read-only as before.
            mount("none", tree, "none", 32, None)
        case "chown":
            os.chown(path, 0, 0)
        case "mknod":
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        case "xattr":
            os.setxattr(path, "trusted.x", b"x")
        case "capability":
            os.setxattr(path, "security.capability", CAPABILITY)
        case "handle":
            return by_handle(tree, handle(path))
        case "read":
            return with_fd(path, os.O_RDONLY, lambda fd: os.read(fd, 65536))
        case "setflags":
            with_fd(path, os.O_RDONLY, lambda fd: fcntl.ioctl(fd, SETFLAGS, struct.pack("<Q", IMMUTABLE)))
    return None


def mount_twin(path):
    os.makedirs(path)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m,mode=777", "tmpfs", path], check=True)
