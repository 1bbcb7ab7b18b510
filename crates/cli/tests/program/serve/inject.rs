//! Devices of the daemon's pools with injected faults.

use std::fs;

use crate::serve::bench::{Bench, can_mount, zdb_finds_nothing};

/// Waits until `zpool status` shows the text.
#[track_caller]
fn until_status(bench: &Bench, wanted: impl Fn(&str) -> bool) {
    bench.until("zpool status -p tank", wanted);
}

/// State and errors of a device: reads, writes, checksums.
fn line_of(status: &str, device: &str) -> Vec<String> {
    let ends = |line: &&str| line.split_whitespace().next().is_some_and(|word| word == device);
    let line = status.lines().find(ends).unwrap_or_default();
    line.split_whitespace().skip(1).map(str::to_owned).collect()
}

#[test]
fn a_disk_that_is_ordered_to_fail_goes_and_comes_back() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank mirror a b"));
    fs::write(bench.path("mnt/before"), vec![1; 1_000_000]).unwrap();
    bench.done("inject tank b --error read,write,flush");
    fs::write(bench.path("mnt/meanwhile"), vec![2; 1_000_000]).unwrap();
    bench.done("zpool sync tank");
    until_status(&bench, |status| line_of(status, "b").first().is_some_and(|state| state == "FAULTED"));
    let listed = bench.done("inject");
    assert!(listed.contains("read errors") && listed.contains("flush errors"), "{listed}");
    bench.done("inject --clear tank b");
    assert_eq!(bench.done("inject"), "");
    bench.done("zpool clear tank");
    bench.done("zpool wait -t resilver tank");
    until_status(&bench, |status| line_of(status, "b").first().is_some_and(|state| state == "ONLINE"));
    bench.done("zpool export tank");
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn wrong_bits_strike_one_file_on_one_device() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a", "b"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} -O compression=off tank mirror a b"));
    fs::write(bench.path("mnt/one"), vec![1; 1_000_000]).unwrap();
    fs::write(bench.path("mnt/two"), vec![2; 1_000_000]).unwrap();
    bench.done("zpool sync tank");
    bench.done("inject tank:/one b --corrupt");
    bench.done("zpool scrub -w tank");
    let status = bench.done("zpool status -p tank");
    let errors = |device: &str| line_of(&status, device)[3].clone();
    assert_eq!(errors("a"), "0", "{status}");
    // A million bytes in records of 128 KiB.
    assert_eq!(errors("b"), "8", "{status}");
    let listed: serde_json::Value = serde_json::from_str(&bench.done("inject --json tank")).unwrap();
    let struck = |rule: &serde_json::Value| rule["struck"].as_u64().unwrap();
    let rules = listed["faults"].as_array().unwrap();
    assert!(!rules.is_empty() && rules.iter().all(|rule| struck(rule) > 0), "{listed}");
    bench.done("inject --clear");
    assert!(fs::read(bench.path("mnt/one")).unwrap() == vec![1; 1_000_000]);
}

#[test]
fn faults_need_a_place_and_end_by_themselves() {
    let bench = Bench::new(&["a"]);
    bench.done("zpool create -m none tank a");
    assert!(bench.fails("inject tank --error read").contains("name the device"));
    assert!(bench.fails("inject --error read").contains("name the pool"));
    assert!(bench.fails("inject tank nosuch --error read").contains("no such device"));
    assert!(bench.fails("inject nosuch a --error read").contains("no such pool"));
    assert!(bench.fails("inject tank a --error read --chance 150").contains("0 to 100"));
    assert!(bench.fails("inject tank a --corrupt --range 9-3").contains("no range"));
    bench.done("inject tank a --delay 1 --range 0-4096 --seconds 1");
    let listed = bench.done("inject tank");
    assert!(listed.contains("delayed by 1ms, bytes 0 to 4096"), "{listed}");
    bench.until("inject tank", str::is_empty);
}
