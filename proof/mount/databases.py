"""Crash habits of embedded databases for `proof/mount/loads`.

    databases.py fill KIND DIR NOTES ROUND   commits rows until killed, and notes each when it is committed
    databases.py check KIND DIR NOTES        the database is sound and has every noted row, else exit status 1

KIND: sqlite-delete, sqlite-wal, lmdb.
"""

import os
import random
import sqlite3
import sys

ROWS = 20


def row(number):
    return random.Random(number).randbytes(number % 3000)


class Sqlite:
    def __init__(self, folder, mode):
        self.db = sqlite3.connect(f"{folder}/{mode}.sqlite", isolation_level=None, timeout=60)
        self.db.execute(f"pragma journal_mode={mode}")
        # With a rollback journal a commit ends with the removal of the journal, which FULL does not sync.
        self.db.execute("pragma synchronous=extra")
        self.db.execute("create table if not exists kept (n integer primary key, row blob)")

    def commit(self, numbers):
        self.db.execute("begin")
        self.db.executemany("insert into kept values (?, ?)", [(n, row(n)) for n in numbers])
        self.db.execute("commit")

    def all(self):
        found = self.db.execute("pragma integrity_check").fetchone()[0]
        assert found == "ok", found
        return dict(self.db.execute("select n, row from kept"))


class Lmdb:
    def __init__(self, folder):
        import lmdb

        self.db = lmdb.open(f"{folder}/lmdb", map_size=1 << 30)

    def commit(self, numbers):
        with self.db.begin(write=True) as change:
            for n in numbers:
                change.put(b"%d" % n, row(n))

    def all(self):
        with self.db.begin() as look:
            return {int(key): value for key, value in look.cursor()}


def main():
    what, kind, folder, notes = sys.argv[1:5]
    db = Lmdb(folder) if kind == "lmdb" else Sqlite(folder, kind.removeprefix("sqlite-"))
    if what == "fill":
        number = int(sys.argv[5]) * 10_000_000
        out = os.open(notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        while True:
            numbers = range(number, number + random.randrange(1, ROWS))
            db.commit(numbers)
            os.write(out, b"".join(b"%d\n" % n for n in numbers))
            number = numbers.stop
    have = db.all()
    with open(notes, encoding="ascii") as told:
        told = [int(line) for line in told]
    wrong = [n for n in told if have.get(n) != row(n)]
    print(f"{kind}: {len(told)} rows acknowledged, {len(wrong)} lost or wrong")
    sys.exit(bool(wrong))


main()
