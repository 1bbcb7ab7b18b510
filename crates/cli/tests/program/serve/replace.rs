//! Devices that replace others in a pool of the daemon.

use std::fs;

use crate::serve::bench::{Bench, can_mount, zdb_finds_nothing};

/// Waits until the pool's status shows this.
#[track_caller]
fn shows(bench: &Bench, wanted: &str) {
    bench.until("zpool status tank", |status| status.contains(wanted));
}

#[test]
fn a_replacement_is_called_off_or_ends_and_a_spare_steps_in() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b", "c", "d"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank mirror a b"));
    let fill = |name: &str, byte: u8| fs::write(bench.path("mnt").join(name), vec![byte; 3_000_000]).unwrap();
    fill("one", 1);
    bench.done("zpool sync tank");
    bench.done("tunable zfs_scan_suspend_progress=1");
    bench.done("zpool replace tank b c");
    let status = bench.done("zpool status tank");
    assert!(
        status.contains("replacing-1") && status.contains("c  ") && status.contains("(resilvering)"),
        "{status}"
    );
    bench.done("zpool detach tank c");
    assert!(!bench.done("zpool status tank").contains("replacing"), "it was called off");
    bench.done("zpool replace tank b c");
    fill("two", 2);
    bench.done("tunable zfs_scan_suspend_progress=0");
    bench.done("zpool resilver tank");
    bench.done("zpool wait -t replace tank");
    let status = bench.done("zpool status tank");
    assert!(!status.contains("replacing") && !status.contains(" b "), "{status}");

    bench.done("zpool add -f tank spare d");
    shows(&bench, "AVAIL");
    bench.done("zpool offline -f tank c");
    shows(&bench, "INUSE");
    fill("three", 3);
    bench.done("zpool wait -t resilver tank");
    bench.done("zpool clear tank c");
    bench.done("zpool wait -t resilver tank");
    // The device has everything again: the spare detaches by itself.
    shows(&bench, "AVAIL");
    shows(&bench, "state: ONLINE");

    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
    fs::remove_file(bench.path("d/a")).unwrap();
    for (name, byte) in [("one", 1), ("two", 2), ("three", 3)] {
        let mut program = bench.program();
        let line = format!("cat tank:/{name}");
        let output =
            program.env("CENOTE_SOCKET", "").args(["-d", "."]).args(line.split(' ')).output().unwrap();
        assert!(output.stdout == vec![byte; 3_000_000], "{name}");
    }
}

/// The disk is not read, and its first two labels are unchanged.
#[test]
fn a_spare_steps_in_for_a_disk_that_was_cut_short_though_nobody_reads_it() {
    let bench = Bench::new(&["a", "b", "c"]);
    bench.done("zpool create -m none tank mirror a b spare c");
    let content = bench.path("content");
    fs::write(&content, vec![9; 3_000_000]).unwrap();
    bench.done(&format!("cp {} tank:/content", bench.text("content")));
    bench.done("zpool sync tank");
    let disk = fs::OpenOptions::new().write(true).open(bench.path("d/b")).unwrap();
    let whole_bytes = disk.metadata().unwrap().len();
    disk.set_len(whole_bytes / 2).unwrap();
    shows(&bench, "INUSE");
    let status = bench.done("zpool status tank");
    assert!(status.contains("UNAVAIL") && status.contains("smaller than when it was added"), "{status}");
    bench.done("zpool wait -t resilver tank");
    // The disk is not used again before it is whole.
    bench.run(&["zpool", "online", "tank", "b"]);
    assert!(bench.done("zpool status tank").contains("UNAVAIL"));
    disk.set_len(whole_bytes).unwrap();
    shows(&bench, "AVAIL");
    shows(&bench, "state: ONLINE");
    // The resilver of the last missed txgs may still run.
    bench.done("zpool wait -t resilver tank");
    bench.done("zpool scrub -w tank");
    let status = bench.done("zpool status tank");
    assert!(status.contains("with 0 errors"), "{status}");
}

#[test]
fn a_rebuild_waits_goes_on_after_an_export_and_is_scrubbed() {
    let bench = Bench::new(&["a", "b", "c", "d"]);
    bench.done("zpool create -m none tank mirror a b");
    let file = bench.path("content");
    fs::write(&file, vec![7; 3_000_000]).unwrap();
    bench.done(&format!("cp {} tank:/content", bench.text("content")));
    fs::remove_file(&file).unwrap();
    bench.done("tunable zfs_scan_suspend_progress=1");
    bench.done("zpool attach -s tank b c");
    let status = bench.done("zpool status tank");
    let lines = "scan: resilver (mirror-0) in progress since ";
    assert!(status.contains(lines) && status.contains("c       ONLINE"), "{status}");
    assert!(status.contains("0.00% done, no estimated completion time"), "{status}");
    for (command, why) in [
        ("zpool attach tank b d", "currently sequentially resilvering"),
        ("zpool replace tank b d", "currently sequentially resilvering"),
        ("zpool scrub tank", "currently resilvering"),
    ] {
        let said = bench.fails(command);
        assert!(said.contains(why), "{command}: {said}");
    }
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    assert!(bench.done("zpool status tank").contains(lines));
    // One more device restarts it.
    bench.done("zpool attach -s tank b d");
    assert!(bench.done("zpool history -i tank").contains(" reset"));
    bench.done("tunable zfs_scan_suspend_progress=0");
    bench.done("zpool wait -t resilver tank");
    bench.done("zpool wait -t scrub tank");
    shows(&bench, "scan: scrub repaired 0B");
    shows(&bench, "scan: resilvered (mirror-0) ");

    // Nothing is left to rebuild when the device leaves.
    bench.done("zpool detach tank d");
    bench.done("tunable zfs_scan_suspend_progress=1");
    bench.done("zpool attach -s -f tank b d");
    bench.done("zpool detach tank d");
    bench.done("tunable zfs_scan_suspend_progress=0");
    shows(&bench, "scan: resilver (mirror-0) canceled on ");
}
