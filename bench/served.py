"""A daemon to be measured, and what bench/desk and bench/send need around it. WORK is their folder, with the
pools' disks; the daemon alone answers on its socket.
"""
import os, signal, subprocess, sys, tempfile, time

here = os.path.dirname(os.path.abspath(__file__))
cenote = os.environ.get("CENOTE", f"{here}/../target/release/cenote")
work = tempfile.mkdtemp(prefix="cenote-bench.")
os.environ["CENOTE_SOCKET"] = f"{work}/socket"
os.mkdir(f"{work}/disks")


def run(*words, **more):
    return subprocess.run(words, check=True, **({"stdout": subprocess.DEVNULL} | more))


def answers(*words):
    return subprocess.run(words, capture_output=True).returncode == 0


def wait_for(what, why="the file system is not mounted"):
    until = time.monotonic() + 60
    while not what():
        if time.monotonic() > until:
            log = f"{work}/log"
            sys.exit(f"{why}: {open(log).read() if os.path.exists(log) else ''}")
        time.sleep(0.02)


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as caches:
        caches.write("3")


def start(*options):
    """Starts the daemon; returns it when it answers."""
    with open(f"{work}/log", "a") as log:
        daemon = subprocess.Popen(
            [cenote, "serve", "-d", f"{work}/disks", "--state", f"{work}/pools.json", *options],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    # Without a daemon's socket, commands would open the pool themselves.
    wait_for(lambda: os.path.exists(f"{work}/socket"), "the daemon has no socket")
    wait_for(lambda: answers(cenote, "zpool", "list"), "the daemon does not answer")
    return daemon


def stop(daemon):
    daemon.send_signal(signal.SIGTERM)
    daemon.wait()


def make_pool(name, size, mountpoint, *options):
    """A pool on one file, mounted and without compression."""
    disk = f"{work}/disks/{name}"
    run("truncate", "-s", size, disk)
    run(cenote, "zpool", "create", "-O", "compression=off", *options, "-O", f"mountpoint={mountpoint}", name, disk)
    wait_for(lambda: os.path.ismount(mountpoint))
