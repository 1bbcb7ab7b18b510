//! Vdevs that hold data are removed from the daemon's pools.

use std::fs;

use crate::serve::bench::{Bench, zdb_finds_nothing};

#[test]
fn a_removal_goes_on_in_the_background_is_canceled_and_is_waited_for() {
    let mut bench = Bench::new(&["a", "b", "c"]);
    bench.done("zpool create -m none tank a b c");
    (1..4).for_each(|seed| bench.fill(seed));
    bench.done("tunable zfs_removal_suspend_progress=1 zfs_remove_max_segment=65536");
    bench.done("zpool remove tank a");
    let status = bench.done("zpool status tank");
    assert!(status.contains("remove: Evacuation of ") && status.contains(" in progress since "), "{status}");
    assert!(status.contains("copied out of ") && status.contains("% done"), "{status}");
    assert!(bench.fails("zpool remove tank a").contains("removal for this vdev is already in progress."));
    assert!(bench.fails("zpool checkpoint tank").contains("device removal in progress"));
    bench.fill(4);
    bench.done("zpool remove -s tank");
    assert!(bench.done("zpool status tank").contains(" canceled on "));
    bench.done("zpool remove tank a");
    // The command waits for the removal, which the daemon still holds suspended.
    bench.done("tunable zfs_removal_suspend_progress=0");
    bench.done("zpool wait -t remove tank");
    let status = bench.done("zpool status tank");
    assert!(status.contains("remove: Removal of vdev 0 copied ") && !status.contains("  a  "), "{status}");
    bench.fill(5);
    bench.signal(rustix::process::Signal::TERM);
    fs::remove_file(bench.path("d/a")).unwrap();
    zdb_finds_nothing(&bench.path("d"), "tank");
}
