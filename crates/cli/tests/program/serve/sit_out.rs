//! Properties of vdevs: disks that sit out reads, limits of errors, notes.

use std::fs;

use crate::serve::bench::{Bench, zdb_finds_nothing};

#[test]
fn a_disk_sits_out_reads_until_it_is_told_otherwise() {
    let bench = Bench::new(&["a", "b", "c"]);
    bench.done("zpool create -O mountpoint=none tank raidz1 a b c");
    bench.done("zfs set primarycache=metadata tank");
    bench.fill(7);
    bench.done("zpool sync tank");
    let reads = || bench.done("zpool get -Hpo value read_ops tank c").trim().parse::<u64>().unwrap();
    bench.done("zpool set sit_out=on tank c");
    assert_eq!(bench.done("zpool get -Ho value sit_out tank c").trim(), "on");
    let before = reads();
    let content = bench.run(&["cat", "tank:/7"]).stdout;
    assert!(content == fs::read(bench.path("d/file")).unwrap());
    assert_eq!(reads(), before, "it is not read");
    assert!(bench.fails("zpool set sit_out=on tank b").contains("as it has parity"));
    bench.done("zpool set sit_out=off tank c");
    let content = bench.run(&["cat", "tank:/7"]).stdout;
    assert!(content == fs::read(bench.path("d/file")).unwrap());
    assert!(reads() > before);
    assert_eq!(bench.done("zpool get -Ho value autosit tank raidz1-0").trim(), "off");
    bench.done("zpool set autosit=on tank raidz1-0");
    bench.done("zpool set io_n=25 tank c");
    bench.done("zpool set org.me:bay=7 tank c");
    bench.done("zpool set comment=noisy tank c");
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    assert_eq!(bench.done("zpool get -Ho value autosit tank raidz1-0").trim(), "on");
    let kept = bench.done("zpool get -Ho value io_n,org.me:bay,comment tank c");
    assert_eq!(kept.split_whitespace().collect::<Vec<_>>(), ["25", "7", "noisy"]);
    bench.done("zpool set io_n=none tank c");
    bench.done("zpool set comment= tank c");
    let kept = bench.done("zpool get -Ho value io_n,comment tank c");
    assert_eq!(kept.split_whitespace().collect::<Vec<_>>(), ["-", "-"]);
    bench.done("zpool export tank");
    zdb_finds_nothing(&bench.path("d"), "tank");
}
