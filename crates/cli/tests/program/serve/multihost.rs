//! Pools with `multihost=on`: a second machine, and heartbeats that fail. The second machine is another
//! hostid here: the daemon's locks come after the watch.

use std::process::Output;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::serve::bench::{Bench, zdb_finds_nothing};

/// A pool of a machine with hostid 11, suspended after two seconds without heartbeats.
fn bench() -> Bench {
    let mut bench = Bench::new(&["a", "b"]);
    bench.signal(Signal::TERM);
    bench.start_as("0x11");
    bench.done("tunable zfs_multihost_interval=100 zfs_multihost_fail_intervals=20");
    bench.done("zpool create -o multihost=on -O mountpoint=none tank mirror a b");
    bench
}

/// A command without a daemon on a machine with this hostid.
fn other(bench: &Bench, hostid: &str, line: &str) -> Output {
    let mut program = bench.program();
    program.env("CENOTE_SOCKET", "").env("ZFS_HOSTID", hostid).args(["-d", "."]);
    program.args(line.split(' ')).output().unwrap()
}

#[track_caller]
fn refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(words), "{said}");
}

#[test]
fn a_second_machine_gets_a_shared_pool_once_the_first_has_left_it() {
    let mut bench = bench();
    assert_eq!(bench.done("zpool get -H -o value,source multihost tank"), "on\tlocal\n");
    bench.fill(1);
    refused(&other(&bench, "0x22", "zfs create tank/x"), "was last in use by");
    // Force does not help against heartbeats.
    let begun = Instant::now();
    let forced = other(&bench, "0x22", "zpool export -f tank");
    refused(&forced, "(hostid=11): its heartbeats were seen");
    refused(&forced, "watching up to 5 s for another machine");
    assert!(begun.elapsed() < Duration::from_secs(5), "the watch ends with the first heartbeat");
    refused(&other(&bench, "0x22", "zpool import -o readonly=on tank"), "its heartbeats were seen");
    refused(&other(&bench, "0", "zpool export -f tank"), "zgenhostid");
    // Looks go on.
    let look = other(&bench, "0x22", "ls tank:/1");
    let said = String::from_utf8_lossy(&look.stderr);
    assert!(look.status.success() && said.contains("may change meanwhile"), "{said}");
    let beats = bench.done("kstat tank/multihost");
    assert!(beats.starts_with("id ") && beats.lines().count() > 10, "{beats}");
    assert_eq!(bench.done("zpool list -H -o health tank"), "ONLINE\n");

    bench.signal(Signal::KILL);
    let begun = Instant::now();
    let taken = other(&bench, "0x22", "zpool export -f tank");
    assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    assert!(begun.elapsed() >= Duration::from_secs(5), "4 s of watching, 1 s of claims");
    // It exported the pool, so it need not wait.
    let begun = Instant::now();
    let again = other(&bench, "0x22", "zfs create tank/x");
    assert!(again.status.success() && begun.elapsed() < Duration::from_secs(4));
    zdb_finds_nothing(&bench.path("d"), "tank");
    assert!(other(&bench, "0x22", "zpool set multihost=off tank").status.success());
    let begun = Instant::now();
    assert!(other(&bench, "0x33", "zfs create tank/y").status.success());
    assert!(begun.elapsed() < Duration::from_secs(4), "without heartbeats nothing is watched");
}

#[test]
fn heartbeats_that_fail_suspend_the_pool_until_it_is_imported_again() {
    let bench = bench();
    bench.fill(1);
    bench.done("zpool sync tank");
    for disk in ["a", "b"] {
        bench.done(&format!("inject tank {disk} --error write,flush"));
    }
    let status = bench.until("zpool status tank", |status| status.contains("ZFS-8000-MM"));
    assert!(status.contains("multihost writes failed or were delayed"), "{status}");
    assert_eq!(bench.done("zpool list -H -o health tank"), "SUSPENDED\n");
    bench.done("inject --clear");
    let refused = bench.fails("zpool clear tank");
    assert!(refused.contains("another machine may have imported the pool"), "{refused}");
    assert!(bench.fails("zfs create tank/x").contains("multihost heartbeats have not succeeded"));
    assert!(bench.done("zpool events").contains("ereport.fs.zfs.io_failure"));
    assert!(bench.fails("zpool export tank").contains("zpool export -f tank"));
    bench.done("zpool export -f tank");
    bench.done("zpool import tank");
    bench.done("zfs create tank/x");
    assert_eq!(bench.done("ls tank:/"), "1\n");
}

#[test]
fn a_pool_that_another_machine_has_taken_over_is_left_alone_even_once_it_is_exported() {
    let mut bench = Bench::new(&["a"]);
    bench.signal(Signal::TERM);
    bench.start_as("0x11");
    bench.done("zpool create -O mountpoint=none tank a");
    bench.signal(Signal::KILL);
    // The other machine's record has it, from an earlier time.
    bench.start_as("0x22");
    assert_eq!(bench.done("zpool list -H"), "");
    assert!(bench.fails("zfs list tank").contains("imported pools: none"));
    let exported = other(&bench, "0x11", "zpool export tank");
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    bench.signal(Signal::TERM);
    bench.start_as("0x22");
    assert_eq!(bench.done("zpool list -H"), "");
    bench.done("zpool import tank");
    assert_eq!(bench.done("zpool list -H -o health tank"), "ONLINE\n");
}

#[test]
fn the_property_needs_a_hostid() {
    let mut bench = Bench::new(&["a"]);
    bench.signal(Signal::TERM);
    bench.start_as("0");
    assert!(bench.fails("zpool create -o multihost=on tank a").contains("non-zero system hostid"));
    bench.done("zpool create -O mountpoint=none tank a");
    assert!(bench.fails("zpool set multihost=on tank").contains("non-zero system hostid"));
    assert_eq!(bench.done("zpool get -H -o value multihost tank"), "off\n");
    assert!(bench.fails("zpool set multihost=maybe tank").contains("multihost"));
}
