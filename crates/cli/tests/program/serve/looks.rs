//! Queries of open pools: facts that the engine has in memory cost no disk read.

use std::fs;

use crate::serve::bench::{Bench, can_mount};

/// Bytes that the daemon has read through any system call: the images are in the page cache.
fn read_bytes(bench: &Bench) -> u64 {
    let daemon = bench.daemon.as_ref().unwrap().id();
    let counts = fs::read_to_string(format!("/proc/{daemon}/io")).unwrap();
    let bytes = counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    bytes.parse().unwrap()
}

#[test]
fn what_is_known_of_an_open_pool_is_read_from_no_disk() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a", "b", "c"]);
    bench.done("zpool create -m none tank mirror a b cache c");
    bench.done("zfs create tank/home");
    bench.done("zfs snapshot tank/home@monday");
    bench.done("zpool sync tank");
    let lines = [
        "zfs get all tank/home",
        "zfs list -t all",
        "zpool list -v",
        "zpool get all tank",
        "zpool get all tank all-vdevs",
        "zfs holds tank/home@monday",
    ];
    // Blocks not requested since the pool was created come into the cache.
    lines.iter().for_each(|line| drop(bench.done(line)));
    let read = |line: &str| {
        let before = read_bytes(&bench);
        bench.done(line);
        read_bytes(&bench) - before
    };
    for line in lines {
        let bytes = read(line);
        // The request and the kernel's list of mounts: less than one label of one disk.
        assert!(bytes < 64 << 10, "{line}: {bytes} bytes");
    }
    // Reads of labels are counted.
    let bytes = read("zpool reopen tank");
    assert!(bytes > 256 << 10, "{bytes} bytes");
}
