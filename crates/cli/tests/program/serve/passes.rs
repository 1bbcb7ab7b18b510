//! Passes over the free space of devices in the daemon's pools.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::serve::bench::{Bench, PATIENCE, zdb_finds_nothing};

fn until_trim(bench: &Bench, wanted: &str) -> String {
    bench.until("zpool status -t tank", |status| status.contains(wanted))
}

#[test]
fn a_trim_is_suspended_and_goes_on_after_an_import() {
    let mut bench = Bench::new(&["a", "b"]);
    bench.done("zpool create -m none tank mirror a b");
    bench.done("zpool trim -r 2M tank a");
    assert!(bench.fails("zpool trim tank a").contains("cannot trim 'a': currently trimming"));
    until_trim(&bench, "% trimmed, started at");
    sleep(Duration::from_secs(3));
    bench.done("zpool trim -s tank a");
    until_trim(&bench, "trimmed, suspended, started at");
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    until_trim(&bench, "trimmed, suspended, started at");
    bench.done("zpool trim -w tank a");
    let status = until_trim(&bench, "(100% trimmed, completed at");
    assert!(status.contains("(untrimmed)"), "only one: {status}");
    bench.done("zpool trim -r 1M tank b");
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    until_trim(&bench, "% trimmed, started at");
    bench.done("zpool trim -c tank b");
    assert!(bench.fails("zpool trim -c tank b").contains("there is no active trim"));
    // At this rate the first step takes hours: another command need not wait for it.
    bench.done("zpool trim -r 1K tank b");
    sleep(Duration::from_secs(1));
    bench.done("zpool trim -s tank b");
    bench.done("zpool trim -w tank b");
    until_trim(&bench, "(100% trimmed, completed at");
    bench.done("zpool initialize tank");
    bench.done("zpool wait -t initialize tank");
    assert!(bench.done("zpool status -i tank").contains("(100% initialized, completed at"));
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn a_pass_rests_while_its_device_is_offline() {
    let bench = Bench::new(&["a", "b"]);
    bench.done("zpool create -m none tank mirror a b");
    for _ in 0..5 {
        bench.done("zpool initialize tank a");
        bench.done("zpool offline tank a");
        bench.done("zpool online tank a");
        let done = |status: &str| status.contains("(100% initialized, completed at");
        bench.until("zpool status -i tank", done);
        bench.done("zpool initialize -u tank a");
    }
}

#[test]
fn one_command_orders_work_in_all_pools() {
    let bench = Bench::new(&["a", "b"]);
    let verbs = ["scrub -a", "trim --all", "initialize -a -w"];
    verbs.iter().for_each(|verb| assert_eq!(bench.done(&format!("zpool {verb}")), "", "no pool is imported"));
    bench.done("zpool create -m none tank a");
    bench.done("zpool create -m none other b");
    for (verb, shown, wanted) in [
        ("scrub -a -w", "", "scrub repaired 0B"),
        ("initialize --all -w", "-i ", "(100% initialized, completed at"),
        ("trim -a -w", "-t ", "(100% trimmed, completed at"),
    ] {
        bench.done(&format!("zpool {verb}"));
        for pool in ["tank", "other"] {
            let status = bench.done(&format!("zpool status {shown}{pool}"));
            assert!(status.contains(wanted), "{verb}: {status}");
        }
    }
    let refused = bench.fails("zpool trim -a tank");
    assert!(refused.contains("-a cannot be combined with individual zpools or vdevs"), "{refused}");
    // A pool that refuses does not stop the others.
    bench.done("tunable zfs_scan_suspend_progress=1");
    bench.done("zpool scrub tank");
    assert!(bench.fails("zpool scrub -a").contains("cannot scrub tank: currently scrubbing"));
    bench.until("zpool status other", |status| status.contains("scrub in progress"));
    bench.done("zpool scrub -a -s");
    for pool in ["tank", "other"] {
        assert!(bench.done(&format!("zpool status {pool}")).contains("scrub canceled"));
    }
}

/// The txgs of the last scrub.
fn scrubbed(bench: &Bench) -> (u64, u64) {
    let history = bench.done("zpool history -i tank");
    let setup = history.lines().rfind(|line| line.contains("scan setup func=1")).unwrap();
    let number =
        |key: &str| setup.split(' ').find_map(|word| word.strip_prefix(key)).unwrap().parse().unwrap();
    (number("mintxg="), number("maxtxg="))
}

#[test]
fn a_scrub_of_dates_verifies_the_txgs_noted_around_them() {
    let bench = Bench::new(&["a"]);
    for tunable in ["spa_note_txg_time", "spa_flush_txg_time"] {
        bench.done(&format!("tunable {tunable}=0"));
    }
    bench.done("zpool create -m none tank a");
    bench.fill(1);
    bench.done("zpool sync tank");
    let scrub = |dates: &[&str]| {
        let output = bench.run(&[&["zpool", "scrub", "-w"], dates, &["tank"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        scrubbed(&bench)
    };
    let (all, whole) = scrub(&[]);
    assert_eq!(all, 0);
    let (first, last) = scrub(&["-E", "2000-01-01"]);
    assert!(first == 0 && last < whole, "up to the first noted txg: {last}");
    // At most one txg is noted in a second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    bench.done("zpool sync tank");
    let (first, last) = scrub(&["-S", "2100-01-01 12:00"]);
    assert!(first > whole && last > first, "after the last noted txg: {first}");
    assert_eq!(bench.done("zpool get -Hp -o value last_scrubbed_txg tank").trim(), last.to_string());
    let (first, _) = scrub(&["-S", "2000-01-01", "-E", "2100-01-01"]);
    assert_eq!(first, 0, "nothing is that old");
    assert!(bench.done("zpool status tank").contains("scrub repaired 0B"));
}

#[test]
fn a_wait_for_a_scrub_lasts_while_the_scrub_stands_still() {
    let bench = Bench::new(&["a"]);
    bench.done("zpool create -m none tank a");
    bench.done("tunable zfs_scan_suspend_progress=1");
    let mut waiting = bench.program().args(["zpool", "scrub", "-w", "tank"]).spawn().unwrap();
    bench.until("zpool status tank", |status| status.contains("scrub in progress"));
    sleep(Duration::from_secs(2));
    assert!(waiting.try_wait().unwrap().is_none(), "the scrub is not done");
    bench.done("tunable zfs_scan_suspend_progress=0");
    assert!(waiting.wait().unwrap().success());
    assert!(bench.done("zpool status tank").contains("scrub repaired 0B"));
}

#[test]
fn with_autotrim_an_image_file_gives_up_what_is_removed_from_then_on() {
    let mut bench = Bench::new(&["a"]);
    bench.done("zpool create -m none -O compression=off tank a");
    (1..5).for_each(|seed| bench.fill(seed));
    bench.done("rm tank:/1");
    bench.done("tunable zfs_trim_txg_batch=1");
    bench.done("zpool sync tank");
    let held = || fs::metadata(bench.path("d/a")).unwrap().blocks() * 512;
    let before = held();
    bench.done("zpool set autotrim=on tank");
    bench.done("rm tank:/2");
    let begun = Instant::now();
    while held() + 2_700_000 > before {
        assert!(begun.elapsed() < PATIENCE, "{before} bytes were held, now {}", held());
        sleep(Duration::from_millis(200));
    }
    assert!(held() + 5_500_000 > before, "what was removed before is `zpool trim`'s");
    let trimmed = bench.done("zpool get -Hp -o value trim_bytes tank a");
    assert!(trimmed.trim().parse::<u64>().unwrap() >= 2_700_000, "{trimmed}");
    bench.done("zpool trim -w tank");
    assert!(held() + 5_500_000 <= before);
    for seed in 3..5 {
        assert_eq!(bench.run(&["cat", &format!("tank:/{seed}")]).stdout.len(), 3_000_000);
    }
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn thorough_scrubs_and_condensing_are_one_command_each() {
    let mut bench = Bench::new(&["a", "b"]);
    bench.done("zpool create -m none tank a");
    bench.fill(1);
    bench.done("zpool scrub -w -t tank");
    let status = bench.done("zpool status tank");
    assert!(status.contains("  scan: thorough scrub repaired 0B in "), "{status}");
    bench.done("zpool scrub -w tank");
    assert!(bench.done("zpool status tank").contains("  scan: scrub repaired 0B in "));
    assert_eq!(bench.done("zpool condense --types"), "log_spacemap\n");
    for options in ["-t log_spacemap", "-w", "-c"] {
        bench.done(&format!("zpool condense {options} tank"));
    }
    bench.done("zpool condense -a");
    bench.done("zpool wait -t condense tank");
    assert!(bench.done("zpool history -i tank").contains("condense log_spacemap"));
    bench.done("zpool create -m none -d other b");
    assert!(bench.fails("zpool condense -t log_spacemap other").contains("keeps no log of space maps"));
    bench.done("zpool condense other");
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}
