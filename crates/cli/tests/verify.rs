//! `cenote verify`: what its report says of devices that do not hold all they should.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod common;

use std::collections::BTreeMap;

use cenote_testkit::golden;
use common::{cenote, json};

/// What each device misses by `zdb -ddd`: lines `missing [first,end) length n` below the device's.
fn missing_by_zdb(images: &std::path::Path, pool: &str) -> Option<BTreeMap<String, Vec<(u64, u64)>>> {
    let zdb = std::process::Command::new("zdb").args(["-e", "-p"]).arg(images).args(["-ddd", pool]).output();
    let text = String::from_utf8_lossy(&zdb.ok()?.stdout).into_owned();
    let (mut device, mut missing) = (String::new(), BTreeMap::<String, Vec<(u64, u64)>>::new());
    for line in text.lines().map(str::trim) {
        if let Some((path, _)) = line.split_once(" [DTL-") {
            device = path.rsplit('/').next().unwrap().to_owned();
        }
        if let Some(range) = line.strip_prefix("missing [") {
            let (first, rest) = range.split_once(',').unwrap();
            let end: u64 = rest.split(')').next().unwrap().parse().unwrap();
            missing.entry(device.clone()).or_default().push((first.parse().unwrap(), end - 1));
        }
    }
    Some(missing)
}

#[test]
fn devices_that_lag_behind_are_named_with_the_txgs_they_miss() {
    let Some(pool) = golden("spares") else { return };
    let Some(wanted) = missing_by_zdb(&pool.images(), "gspares") else {
        eprintln!("skipped: no zdb");
        return;
    };
    let report = json(&cenote(&pool, "verify --json", &["gspares"]));
    let mut found = BTreeMap::new();
    for device in report["lagging_devices"].as_array().unwrap() {
        let path = device["device"].as_str().unwrap();
        let runs = device["missing_txgs"].as_array().unwrap().iter();
        let runs: Vec<(u64, u64)> =
            runs.map(|run| (run[0].as_u64().unwrap(), run[1].as_u64().unwrap())).collect();
        found.insert(path.rsplit('/').next().unwrap().to_owned(), runs);
    }
    assert!(wanted.len() == 2, "{wanted:?}");
    assert_eq!(found, wanted);
    let text = cenote(&pool, "verify", &["gspares"]);
    assert!(text.contains("disk6.img lags behind: it misses txgs 4 to 25"), "{text}");
}
