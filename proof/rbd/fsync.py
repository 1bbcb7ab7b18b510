"""Mean and median time of 4 KiB writes with fsync, in ms: fsync.py FILE COUNT."""
import os
import statistics
import sys
import time

file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600)
count = int(sys.argv[2])
times = []
for at in range(count):
    began = time.monotonic()
    os.pwrite(file, os.urandom(4096), at * 4096)
    os.fsync(file)
    times.append((time.monotonic() - began) * 1000)
print(f"{statistics.mean(times):.2f} {statistics.median(times):.2f}")
