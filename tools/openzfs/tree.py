"""The text files of a source tree: a plain folder, or a revision in a git directory."""
import os
import re
import subprocess

# Where OpenZFS keeps what is compared.
FOLDERS = ("cmd/zfs", "cmd/zpool", "include", "man/man4", "man/man8", "module")
TEXT = re.compile(r"\.(c|h|[48](\.in)?)$|^META$")
# Code of other systems, which has no counterpart here.
OTHER_SYSTEMS = re.compile(r"/os/freebsd/")


class Unreadable(Exception):
    """There are no sources that can be compared."""


class Tree:
    """Path to text, comments included."""

    def __init__(self, files):
        self.files = files

    def __getitem__(self, path):
        return self.files.get(path, "")

    def code(self, path):
        """A C file without comments, with adjacent string literals joined."""
        return plain_c(self[path])

    def below(self, prefix, suffix):
        return sorted(p for p in self.files if p.startswith(prefix) and p.endswith(suffix))

    def version(self):
        found = re.search(r"^Version:\s*(\S+)", self["META"], re.M)
        return found[1] if found else "of unknown version"


def plain_c(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"(?m)(^|\s)//.*$", " ", text)
    return re.sub(r'"\s*\n?\s*"', "", text)


def wanted(path):
    is_here = path == "META" or path.startswith(tuple(f + "/" for f in FOLDERS))
    return is_here and TEXT.search(path) and not OTHER_SYSTEMS.search(path)


def of_folder(root):
    files = {}
    for folder in ("",) + FOLDERS:
        for at, folders, names in os.walk(os.path.join(root, folder)):
            if not folder:
                folders.clear()
            for name in names:
                path = os.path.relpath(os.path.join(at, name), root)
                if wanted(path):
                    with open(os.path.join(at, name), encoding="utf-8", errors="replace") as file:
                        files[path] = file.read()
    return checked(Tree(files), root)


def of_git(git_dir, revision):
    """Objects that the git directory lacks are left out: a stored copy may have no large files."""
    git = ["git", f"--git-dir={git_dir}"]
    listed = subprocess.run(git + ["ls-tree", "-r", "-z", revision], capture_output=True)
    if listed.returncode:
        raise Unreadable(f"{git_dir}: {listed.stderr.decode().strip()}")
    blobs = {}
    for row in listed.stdout.decode().split("\0"):
        kind, _, path = row.partition("\t")
        if path and " blob " in kind and wanted(path):
            blobs[path] = kind.split()[2]
    asked = "".join(blob + "\n" for blob in blobs.values()).encode()
    given = subprocess.run(git + ["cat-file", "--batch"], input=asked, check=True, capture_output=True).stdout
    files, at = {}, 0
    for path in blobs:
        end = given.index(b"\n", at)
        head = given[at:end].split()
        at = end + 1
        if head[1] != b"missing":
            size = int(head[2])
            files[path] = given[at:at + size].decode("utf-8", "replace")
            at += size + 1
    return checked(Tree(files), f"{git_dir} {revision}")


def checked(tree, place):
    if not tree["cmd/zfs/zfs_main.c"] or not tree["module/zcommon/zfeature_common.c"]:
        raise Unreadable(f"{place}: no sources of OpenZFS")
    return tree
