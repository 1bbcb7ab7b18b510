//! Imports into the daemon that first change the pool.

use std::fs;

use crate::serve::bench::{Bench, can_mount, zdb_finds_nothing};

#[test]
fn a_pool_that_goes_back_is_open_afterwards() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank a"));
    let file = bench.path("mnt/file");
    fs::write(&file, "before").unwrap();
    bench.done("zpool checkpoint tank");
    fs::write(&file, "after").unwrap();
    let refused = bench.fails("zpool import --rewind-to-checkpoint tank");
    assert!(refused.contains("a pool with that name already exists"), "{refused}");
    bench.done("zpool export tank");
    bench.done("zpool import --rewind-to-checkpoint tank");
    assert_eq!(fs::read_to_string(&file).unwrap(), "before");

    fs::write(&file, "since").unwrap();
    bench.done("zpool export tank");
    bench.done("zpool import -F tank");
    assert_eq!(fs::read_to_string(&file).unwrap(), "since", "it was whole");
    let refused = bench.fails("zpool import -F tank");
    assert!(refused.contains("a pool with that name already exists"), "{refused}");
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

/// As in OpenZFS, also for an exported pool.
#[test]
fn a_pool_without_its_log_device_is_imported_if_that_is_asked_for() {
    let bench = Bench::new(&["a", "b"]);
    bench.done("zpool create -m none tank a log b");
    bench.done("zpool export tank");
    fs::rename(bench.path("d/b"), bench.path("b")).unwrap();
    let refused = bench.fails("zpool import tank");
    assert!(
        refused.contains("log devices are missing") && refused.contains("zpool import -m tank"),
        "{refused}"
    );
    assert!(bench.done("zpool list -H -o name").is_empty());
    bench.done("zpool import -m tank");
    assert!(bench.done("zpool status tank").contains("state: DEGRADED"));
    bench.done("zpool export tank");
    fs::rename(bench.path("b"), bench.path("d/b")).unwrap();
    bench.done("zpool import tank");
    bench.done("verify tank");
}
