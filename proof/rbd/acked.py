"""Writes numbers with fsync until an error: acked.py FILE LOG [SECONDS]. LOG has the last acknowledged number."""
import os
import struct
import sys
import time

name, log, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 1e9
ends = time.monotonic() + seconds
file = os.open(name, os.O_CREAT | os.O_WRONLY, 0o600)
note = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
number = longest = 0
while time.monotonic() < ends:
    began = time.monotonic()
    try:
        os.pwrite(file, struct.pack("<Q", number + 1), number * 8)
        os.fsync(file)
    except OSError as error:
        print(f"ended after {number}: {error}")
        sys.exit(3)
    longest = max(longest, time.monotonic() - began)
    number += 1
    os.pwrite(note, b"%020d" % number, 0)
print(f"{number} writes, the longest {longest:.1f} s")
