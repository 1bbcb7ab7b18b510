//! A RAID-Z of the daemon's pool is expanded by a disk.

use std::fs;

use crate::serve::bench::{Bench, zdb_finds_nothing};

#[test]
fn an_expansion_goes_on_in_the_background_waits_for_disks_and_is_waited_for() {
    let mut bench = Bench::new(&["a", "b", "c", "e", "f"]);
    bench.done("zpool create -m none -o compatibility=openzfs-2.3 tank raidz a b c");
    (1..4).for_each(|seed| bench.fill(seed));
    bench.done("tunable raidz_expand_max_reflow_bytes=1");
    bench.done("zpool attach tank raidz1-0 e");
    let in_progress = "expand: expansion of raidz1-0 in progress since ";
    let status = bench.done("zpool status tank");
    assert!(status.contains(in_progress) && status.contains(" copied at "), "{status}");
    let json = bench.done("zpool status -j --json-int tank");
    assert!(json.contains(r#""raidz_expand_stats""#) && json.contains(r#""SCANNING""#), "{json}");
    assert!(bench.done("zpool get -H -o value raidz_expanding tank raidz1-0").contains("on"));
    assert!(bench.fails("zpool attach tank raidz1-0 f").contains("raidz expansion in progress"));
    assert!(bench.fails("zpool checkpoint tank").contains("raidz expansion in progress"));
    assert!(bench.fails("zpool trim tank").contains("RAID-Z"));
    bench.fill(4);
    bench.done("zpool offline tank b");
    bench.done("tunable raidz_expand_max_reflow_bytes=0");
    bench.fill(5);
    let status = bench.done("zpool status tank");
    assert!(status.contains(in_progress) && status.contains("paused for resilver or clear"), "{status}");
    bench.done("zpool online tank b");
    bench.done("zpool wait -t raidz_expand tank");
    let status = bench.done("zpool status tank");
    assert!(status.contains("expand: expanded raidz1-0 copied "), "{status}");
    bench.done("zpool wait -t scrub tank");
    assert!(bench.done("zpool status tank").contains("with 0 errors"));
    bench.done("zpool attach -w tank raidz1-0 f");
    bench.done("zpool wait tank");
    bench.fill(6);
    bench.signal(rustix::process::Signal::TERM);
    fs::remove_file(bench.path("d/file")).unwrap();
    zdb_finds_nothing(&bench.path("d"), "tank");
}
