//! Disks of the daemon's pools that are about to fail are copied before they do.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::serve::bench::{Bench, PATIENCE, zdb_finds_nothing};
use cenote_testkit::noise;

const FILE_BYTES: usize = 8_000_000;

fn fill(bench: &Bench, seed: u64) {
    fs::write(bench.path("d/file"), noise(seed, FILE_BYTES)).unwrap();
    bench.done(&format!("cp file tank:/{seed}"));
}

fn reads_all(bench: &Bench, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut program = bench.program();
        if bench.daemon.is_none() {
            program.env("CENOTE_SOCKET", "").args(["-d", "."]);
        }
        let output = program.args(["cat", &format!("tank:/{seed}")]).output().unwrap();
        assert!(
            output.stdout == noise(seed, FILE_BYTES),
            "{seed}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn a_disk_of_which_a_part_is_unreadable_is_evacuated() {
    for (layout, gone) in [("mirror a b", "a"), ("raidz a b c", "c"), ("draid1:2d:3c a b c", "a")] {
        let mut bench = Bench::new(&["a", "b", "c", "e", "f"]);
        bench.done(&format!("zpool create -m none tank {layout}"));
        (1..4).for_each(|seed| fill(&bench, seed));
        bench.done("tunable zfs_scan_suspend_progress=1");
        bench.done("zpool evacuate tank b e");
        bench.done("inject tank b --error read --sectors 5");
        assert!(bench.fails("zpool evacuate tank e f").contains("lacks data itself"));
        let status = bench.done("zpool status tank");
        assert!(status.contains("replacing-") && status.contains("resilver in progress"), "{status}");
        // Concurrent writes go to both disks.
        fill(&bench, 4);
        bench.done("tunable zfs_scan_suspend_progress=0 zfs_resilver_min_time_ms=50");
        bench.done("zpool resilver tank");
        let begun = Instant::now();
        loop {
            let status = bench.done("zpool status tank");
            // The requested resilver may still follow.
            if !status.contains("replacing") && !status.contains("in progress") {
                assert!(status.contains("with 0 errors"), "{layout}: {status}");
                assert!(status.contains(" e ") && !status.contains(" b "), "{layout}: {status}");
                break;
            }
            // It fails often, but stays in use.
            assert!(!status.contains("FAULTED"), "{layout}: {status}");
            assert!(begun.elapsed() < PATIENCE, "{layout}: {status}");
            sleep(Duration::from_millis(50));
        }
        fill(&bench, 5);
        reads_all(&bench, 1..6);
        bench.signal(rustix::process::Signal::TERM);
        zdb_finds_nothing(&bench.path("d"), "tank");
        // The new disk has everything: another one may go.
        fs::remove_file(bench.path("d").join(gone)).unwrap();
        fs::remove_file(bench.path("d/b")).unwrap();
        reads_all(&bench, 1..6);
    }
}

#[test]
fn an_evacuation_is_called_off() {
    let mut bench = Bench::new(&["a", "b", "e"]);
    bench.done("zpool create -m none tank mirror a b");
    fill(&bench, 1);
    bench.done("tunable zfs_scan_suspend_progress=1");
    bench.done("zpool evacuate tank b e");
    bench.done("zpool detach tank e");
    assert!(!bench.done("zpool status tank").contains("replacing"));
    bench.done("zpool offline tank b");
    assert!(bench.fails("zpool evacuate tank b e").contains("use 'zpool replace'"));
    reads_all(&bench, 1..2);
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}
