//! Devices that fail by themselves.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;

use crate::serve::bench::{Bench, PATIENCE, can_mount, zdb_finds_nothing};

/// Waits until `zpool status` shows a text.
#[track_caller]
fn wait_for(bench: &Bench, wanted: &str) -> String {
    bench.until("zpool status tank", |status| status.contains(wanted))
}

#[track_caller]
fn assert_happened(bench: &Bench, class: &str) {
    bench.until("zpool events -H tank", |events| events.contains(class));
}

#[test]
fn a_device_that_is_gone_is_removed_and_comes_back_by_itself() {
    if can_mount() {
        a_device_goes_and_comes_back(0);
    }
}

/// A later txg's writes extend the truncated file: it becomes holes and can be read.
#[test]
fn a_device_that_is_gone_is_removed_though_it_reads_as_holes() {
    if can_mount() {
        a_device_goes_and_comes_back(256 << 20);
    }
}

/// The daemon's open file is truncated, then extended to `holes_bytes` of holes.
fn a_device_goes_and_comes_back(holes_bytes: u64) {
    let mut bench = Bench::new(&["a", "b"]);
    bench.done(&format!("zpool create -O primarycache=none -m {} tank mirror a b", bench.text("mnt")));
    let file = |name: &str| bench.path("mnt").join(name);
    fs::write(file("one"), vec![1; 8_000_000]).unwrap();
    bench.done("zpool sync tank");
    // This also writes the history records. A later txg would extend the lost file into readable holes.
    bench.done("cat tank:/one");
    // A copy of the current state is kept; the daemon's open file is lost.
    fs::copy(bench.path("d/b"), bench.path("kept")).unwrap();
    fs::rename(bench.path("d/b"), bench.path("gone")).unwrap();
    let gone = fs::OpenOptions::new().write(true).open(bench.path("gone")).unwrap();
    gone.set_len(0).and_then(|()| gone.set_len(holes_bytes)).unwrap();
    let begun = Instant::now();
    while !bench.done("zpool status tank").contains("REMOVED") {
        assert_eq!(bench.done("cat tank:/one").len(), 8_000_000);
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_happened(&bench, "resource.fs.zfs.removed");
    assert_happened(&bench, "resource.fs.zfs.statechange");
    assert_happened(&bench, if holes_bytes == 0 { "ereport.fs.zfs.io" } else { "ereport.fs.zfs.checksum" });
    fs::write(file("two"), vec![2; 3_000_000]).unwrap();
    bench.done("zpool sync tank");

    fs::rename(bench.path("kept"), bench.path("d/b")).unwrap();
    // The device is in use before it is resilvered.
    let status = wait_for(&bench, "scan: resilvered");
    assert!(status.contains("state: ONLINE"), "{status}");
    bench.done("zpool scrub -w tank");
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
    fs::remove_file(bench.path("d/a")).unwrap();
    for (name, byte, len) in [("one", 1, 8_000_000), ("two", 2, 3_000_000)] {
        let mut program = bench.program();
        program.env("CENOTE_SOCKET", "").args(["-d", ".", "cat", &format!("tank:/{name}")]);
        assert!(program.output().unwrap().stdout == vec![byte; len], "{name}");
    }
}

/// The file system below the device is full: only blocks written before can be rewritten.
#[test]
fn a_device_that_fails_often_is_faulted_and_one_with_wrong_data_degraded() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    let small = bench.path("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=48m", "none"]).arg(&small).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return println!("skipped: can't mount a tmpfs");
    }
    fs::File::create(small.join("b")).unwrap().set_len(256 << 20).unwrap();
    let b = small.join("b").display().to_string();
    bench.done(&format!("zpool create -O compression=off -m {} tank mirror a {b}", bench.text("mnt")));
    fs::write(bench.path("mnt/one"), vec![1; 20_000_000]).unwrap();
    bench.done("zpool sync tank");
    fs::write(small.join("filler"), vec![0; 48 << 20]).ok();
    fs::write(bench.path("mnt/two"), vec![2; 20_000_000]).unwrap();
    bench.done("zpool sync tank");
    let status = wait_for(&bench, "too many errors");
    assert!(status.contains("FAULTED") && status.contains("state: DEGRADED"), "{status}");
    assert_happened(&bench, "ereport.fs.zfs.io");

    fs::remove_file(small.join("filler")).unwrap();
    bench.done("zpool clear tank");
    wait_for(&bench, "state: ONLINE");
    bench.done("zpool wait -t resilver tank");
    assert!(!bench.done("zpool status tank").contains("too many errors"));

    // Other bytes, all over the data.
    let file = fs::OpenOptions::new().write(true).open(small.join("b")).unwrap();
    for block in 0..120 {
        file.write_all_at(&[0xa5; 4096], (6 << 20) + (block << 18)).ok();
    }
    bench.done("zpool scrub -w tank");
    let status = wait_for(&bench, "too many errors");
    assert!(status.contains("DEGRADED") && !status.contains("FAULTED"), "{status}");
    assert_happened(&bench, "ereport.fs.zfs.checksum");
    bench.done("zpool clear tank");
    wait_for(&bench, "state: ONLINE");
    bench.signal(Signal::TERM);
}

#[test]
fn slow_operations_are_counted_and_reported_unless_silenced() {
    let bench = Bench::new(&["a"]);
    bench.done("tunable zio_slow_io_ms=50");
    bench.done("zpool create -m none tank a");
    let slow_ios = || -> u64 {
        let shown = bench.done("zpool get -Hp -o value slow_ios tank a");
        shown.trim().parse().unwrap_or_else(|_| panic!("{shown}"))
    };
    let delays = || bench.done("zpool events -H tank").matches("ereport.fs.zfs.delay").count();
    bench.done("inject tank a --delay 100 --times 5");
    bench.done("zpool sync tank");
    let counted = slow_ios();
    assert!(counted > 0, "{counted}");
    bench.until("zpool events -H tank", |events| events.contains("ereport.fs.zfs.delay"));
    let status = bench.done("zpool status -sp tank");
    let line = status.lines().find(|line| line.trim_start().starts_with("a ")).unwrap();
    assert!(line.trim_end().ends_with(&format!(" {}", slow_ios())), "{status}");

    bench.done("zpool set slow_io_events=off tank a");
    assert_eq!(bench.done("zpool get -Hp -o value,source slow_io_events tank a"), "off\tlocal\n");
    std::thread::sleep(std::time::Duration::from_secs(3));
    let reported = delays();
    bench.done("inject --clear");
    bench.done("inject tank a --delay 100 --times 5");
    bench.done("zpool sync tank");
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(slow_ios() > counted);
    assert_eq!(delays(), reported, "in silence");
    bench.done("inject --clear");
    bench.done("zpool clear tank");
    assert_eq!(slow_ios(), 0);
}
