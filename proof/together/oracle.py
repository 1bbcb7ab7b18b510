"""What each cell of a dataset may hold, while clients write, snapshots are taken, rollbacks run and daemons die.

A cell is a block of a volume or a file; one client writes it, one write at a time. The oracle keeps the set of
values that it may hold. An acknowledged, durable write leaves one value; a write without an answer adds one; a
rollback puts the snapshot's sets in place, with what was written while it ran.

A file is written under another name first. If a rollback comes between, the new name may get what the snapshot has
under the other one, which may be a part: such a cell may hold `ANY` until it is written again, or read after a stop.
"""

import threading


ANY = "anything"


class Cells:
    def __init__(self, name, is_volume):
        self.name, self.lock = name, threading.RLock()
        self.torn = set() if is_volume else {ANY}  # what a rollback may make of a write under way
        self.values = {}  # cell: values that it may hold
        self.writing = {}  # cell: the value of the write under way
        self.snapshots = {}  # snapshot: its cells' values
        self.taking = {}  # the same of snapshots that are being taken
        self.back_to, self.since = None, {}  # the snapshot of a rollback under way; values written since it began
        self.rollbacks = 0

    def get(self, cell):
        return self.values.setdefault(cell, {None})

    def begin_write(self, cell, values):
        """Answers what `end_write` needs."""
        with self.lock:
            values = set(values)
            self.writing[cell] = values
            self.values[cell] = self.get(cell) | values
            for taken in self.taking.values():
                taken[cell] = taken.get(cell, {None}) | values
            if self.back_to:
                self.since.setdefault(cell, set()).update(values | self.torn)
            return self.rollbacks, self.back_to

    def end_write(self, cell, begun, value):
        """`value` is durable in the cell; not called for a write that got no answer."""
        with self.lock:
            self.writing.pop(cell, None)
            if begun == (self.rollbacks, None) and not self.back_to:
                self.values[cell] = {value}

    def failed_write(self, cell):
        with self.lock:
            self.writing.pop(cell, None)

    def begin_snapshot(self, snapshot):
        with self.lock:
            self.taking[snapshot] = {cell: set(values) for cell, values in self.values.items()}

    def end_snapshot(self, snapshot, done):
        with self.lock:
            taken = self.taking.pop(snapshot)
            if done is not False:
                self.snapshots[snapshot] = taken

    def begin_rollback(self, snapshot):
        with self.lock:
            self.back_to = snapshot
            self.since = {cell: set(values) | self.torn for cell, values in self.writing.items()}

    def end_rollback(self, done):
        """`done`: whether it succeeded; `None`: nobody knows."""
        with self.lock:
            old, self.back_to = self.snapshots.get(self.back_to, {}), None
            self.rollbacks += 1
            if done is False:
                return
            for cell in set(self.values) | set(old):
                back = old.get(cell, {None}) | self.since.get(cell, set())
                self.values[cell] = back if done else back | self.get(cell)

    def check(self, cell, value, where):
        with self.lock:
            may = self.get(cell)
            if value not in may and ANY not in may:
                return f"{where} {self.name} {cell!r}: {value!r} is none of {sorted(may, key=repr)[:6]}"

    def settle(self, cell, value):
        """After a restart, what is read is what is there."""
        with self.lock:
            self.values[cell] = {value}
