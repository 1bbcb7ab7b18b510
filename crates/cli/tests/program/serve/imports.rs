//! Imports into the daemon that change the pool first.

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
