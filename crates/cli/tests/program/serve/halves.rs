//! Pools that are split, and that get a new guid, while in use.

use std::fs;

use rustix::process::Signal;

use crate::serve::bench::{Bench, can_mount, zdb_finds_nothing};

#[test]
fn a_pool_in_use_is_split() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b", "c", "d", "e"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank mirror a b mirror c d log e"));
    fs::write(bench.path("mnt/file"), vec![7; 3_000_000]).unwrap();
    fs::File::open(bench.path("mnt/file")).unwrap().sync_all().unwrap();
    let shown = bench.done("zpool split -n tank half c");
    assert_eq!(shown, "would create 'half' with the following layout:\n\n\thalf\n\t  b\n\t  c\n");
    assert!(bench.fails("zpool split tank half a b").contains("at most one disk from each mirror"));
    assert!(bench.fails("zpool split tank half e").contains("at most one disk from each mirror"));
    assert!(bench.fails("zpool split tank tank").contains("Unable to split tank: pool already exists"));
    let root = bench.text("root");
    bench.done(&format!("zpool split -o comment=other -R {root} tank half c"));
    assert_eq!(bench.done("zpool list -H -o name"), "half\ntank\n");
    assert_eq!(bench.done("zpool get -H -o value comment half").trim(), "other");
    let altroots = bench.done("zpool get -H -o value,source altroot half tank");
    assert_eq!(altroots, format!("{root}\tlocal\n-\tdefault\n"));
    assert_eq!(bench.done("zpool list -H -o altroot half tank"), format!("{root}\n-\n"));
    let status = bench.done("zpool status tank");
    assert!(!status.contains("mirror") && status.contains("logs"), "{status}");
    let status = bench.done("zpool status half");
    assert!(!status.contains("mirror") && !status.contains("logs"), "{status}");
    // The two pools diverge.
    let copy = bench.path(&format!("root{mnt}/file"));
    assert!(fs::read(&copy).unwrap() == vec![7; 3_000_000]);
    fs::write(&copy, b"half").unwrap();
    fs::write(bench.path("mnt/file"), b"tank").unwrap();
    assert!(bench.fails("zpool split tank more").contains("Source pool must be composed only of mirrors"));

    let guid = |bench: &Bench| bench.done("zpool get -H -o value guid tank");
    let before = guid(&bench);
    bench.done("zpool reguid tank");
    assert_ne!(guid(&bench), before);
    bench.done("zpool reguid -g 12345 tank");
    assert_eq!(guid(&bench).trim(), "12345");
    assert!(bench.fails("zpool reguid -g 12345 half").contains("exists already"));
    assert!(bench.done("zpool events -H tank").contains("sysevent.fs.zfs.pool_reguid"));
    bench.done("zfs create tank/later");
    bench.signal(Signal::TERM);
    for pool in ["tank", "half"] {
        zdb_finds_nothing(&bench.path("d"), pool);
        let mut program = bench.program();
        program.env("CENOTE_SOCKET", "").args(["-d", ".", "cat", &format!("{pool}:/file")]);
        assert_eq!(program.output().unwrap().stdout, pool.as_bytes());
    }
}
