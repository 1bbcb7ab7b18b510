//! Devices that leave a pool of the daemon and return.

use std::fs;
use std::io::Write;

use crate::serve::bench::{Bench, can_mount, zdb_finds_nothing};

#[test]
fn devices_leave_an_open_pool_and_come_back() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank mirror a b"));
    let file = |name: &str| bench.path("mnt").join(name);
    let fill = |name: &str, byte: u8| fs::write(file(name), vec![byte; 3_000_000]).unwrap();
    let status = |wanted: &str| {
        let status = bench.done("zpool status tank");
        assert!(status.contains(wanted), "{wanted}: {status}");
    };
    fill("one", 1);
    bench.done("zpool offline -t tank b");
    status("OFFLINE");
    fill("two", 2);
    bench.done("zpool online tank b");
    status("state: ONLINE");

    // A device taken offline and plugged in again stays untouched until an administrator brings it online.
    bench.done("zpool offline tank b");
    fs::rename(bench.path("d/b"), bench.path("b")).unwrap();
    fill("three", 3);
    fs::rename(bench.path("b"), bench.path("d/b")).unwrap();
    status("OFFLINE");
    bench.done("zpool online tank b");
    bench.done("zpool wait -t resilver tank");
    status("state: ONLINE");

    bench.done("zpool offline -f tank a");
    status("FAULTED");
    fill("four", 4);
    bench.done("zpool clear tank a");
    bench.done("zpool wait -t resilver tank");
    status("state: ONLINE");
    bench.done("zpool reopen tank");

    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
    for lost in ["a", "b"] {
        fs::rename(bench.path("d").join(lost), bench.path("aside")).unwrap();
        let alone = |line: &str| {
            let mut program = bench.program();
            program.env("CENOTE_SOCKET", "").args(["-d", "."]).args(line.split(' ')).output().unwrap()
        };
        for (name, byte) in [("one", 1), ("two", 2), ("three", 3), ("four", 4)] {
            let output = alone(&format!("cat tank:/{name}"));
            assert!(output.stdout == vec![byte; 3_000_000], "{name} without {lost}");
        }
        fs::rename(bench.path("aside"), bench.path("d").join(lost)).unwrap();
    }
}

#[test]
fn a_pool_does_without_its_only_log_and_uses_it_when_it_is_back() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b", "c"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank mirror a b log c"));
    let commit = |bench: &Bench| {
        let mut file = fs::File::options().create(true).append(true).open(bench.path("mnt/file")).unwrap();
        for _ in 0..20 {
            file.write_all(&[1; 512]).unwrap();
            file.sync_all().unwrap();
        }
    };
    let is_used = |bench: &Bench| {
        let writes =
            || -> u64 { bench.done("zpool get -H -p -o value write_ops tank c").trim().parse().unwrap() };
        let before = writes();
        commit(bench);
        // The first log block may have been allocated earlier.
        writes() >= before + 19
    };
    let becomes = |bench: &Bench, wanted: &str| {
        bench.until("zpool status tank", |status| status.contains(wanted));
    };
    assert!(is_used(&bench));
    for what in ["write", "flush"] {
        bench.done(&format!("inject tank c --error {what}"));
        bench.until("zpool status tank", |status| {
            commit(&bench);
            status.contains("c         FAULTED")
        });
        assert!(!is_used(&bench), "{what}");
        bench.done("inject --clear");
        bench.done("zpool clear tank");
        becomes(&bench, "c         ONLINE");
        assert!(is_used(&bench), "after errors of {what}");
        bench.done("zpool wait -t resilver tank");
        let status = bench.done("zpool status tank");
        assert!(status.matches("ONLINE       0     0     0").count() == 5, "{what}: {status}");
    }
    bench.done("zpool offline tank c");
    becomes(&bench, "c         OFFLINE");
    assert!(!is_used(&bench));
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    becomes(&bench, "c         OFFLINE");
    assert!(!is_used(&bench));
    bench.done("zpool online tank c");
    becomes(&bench, "c         ONLINE");
    assert!(is_used(&bench));

    // The same for a device missing at import.
    bench.done("zpool export tank");
    fs::rename(bench.path("d/c"), bench.path("c")).unwrap();
    bench.done("zpool import -m tank");
    commit(&bench);
    fs::rename(bench.path("c"), bench.path("d/c")).unwrap();
    bench.done("zpool online tank c");
    assert!(is_used(&bench));
    let written = fs::read(bench.path("mnt/file")).unwrap();
    bench.signal(rustix::process::Signal::TERM);
    assert!(written.iter().all(|byte| *byte == 1) && written.len() > 11 * 20 * 512, "{}", written.len());
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn a_file_that_was_emptied_goes_out_of_use_and_is_replaced_at_its_path() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank mirror a b"));
    let content = vec![7; 30_000_000];
    fs::write(bench.path("mnt/file"), &content).unwrap();
    let status = || bench.done("zpool status tank");
    for check in ["zpool scrub -w tank", "zpool reopen tank"] {
        let device = fs::File::options().write(true).open(bench.path("d/b")).unwrap();
        let bytes = device.metadata().unwrap().len();
        device.set_len(0).unwrap();
        device.set_len(bytes).unwrap();
        drop(device);
        bench.done(check);
        let told = status();
        let line = told.lines().find(|line| line.contains("UNAVAIL")).unwrap_or_else(|| panic!("{told}"));
        assert!(line.contains(" b ") && line.ends_with("invalid label"), "{told}");
        assert!(told.contains("state: DEGRADED") && told.contains("ZFS-8000-4J"), "{told}");
        assert!(fs::read(bench.path("mnt/file")).unwrap() == content);
        bench.done("zpool replace -w tank b");
        let told = status();
        assert!(told.contains("state: ONLINE") && told.contains("with 0 errors"), "{told}");
    }
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
    fs::rename(bench.path("d/a"), bench.path("aside")).unwrap();
    let mut alone = bench.program();
    let output = alone.env("CENOTE_SOCKET", "").args(["-d", ".", "cat", "tank:/file"]).output().unwrap();
    assert!(output.stdout == content, "without a");
}

#[test]
fn a_scrub_runs_in_the_background_and_is_shown() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank mirror a b"));
    fs::write(bench.path("mnt/file"), vec![7; 30_000_000]).unwrap();
    assert!(bench.fails("zpool scrub -p tank").contains("there is no active scrub"));
    bench.done("zpool scrub tank");
    bench.done("zpool wait -t scrub tank");
    let status = bench.done("zpool status tank");
    assert!(status.contains("scan: scrub repaired 0B in 00:00:0"), "{status}");
    bench.done("zpool scrub -w -C tank");
    let last = bench.done("zpool get -H -o value last_scrubbed_txg tank");
    assert!(last.trim().parse::<u64>().unwrap() > 0, "{last}");
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}
