"""tools/upstream.known: why an item is absent here, or exists only here.

A line is `absent KIND ITEM: reason` or `own KIND PATTERN: reason`; `#` begins a comment.
"""
import fnmatch


class Known:
    """Reasons by kind and item."""

    def __init__(self):
        self.absent, self.patterns = {}, []

    def own(self, kind, item):
        rows = (row for row in self.patterns if row[0] == kind and fnmatch.fnmatch(item, row[1]))
        return next(rows, (None,) * 3)[2]


def read(path):
    known = Known()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        subject, colon, reason = line.partition(": ")
        words = subject.split(" ", 2)
        if not colon or not reason.strip() or len(words) != 3 or words[0] not in ("absent", "own"):
            raise SystemExit(f"upstream: {path}:{number}: not `absent|own KIND ITEM: reason`")
        if words[0] == "own":
            known.patterns.append((words[1], words[2], reason))
        elif (words[1], words[2]) in known.absent:
            raise SystemExit(f"upstream: {path}:{number}: {words[1]} {words[2]} has a reason already")
        else:
            known.absent[words[1], words[2]] = reason
    return known
