#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::fs;
use std::path::Path;

use super::*;
use crate::load::machine::date::DAY_S;

fn recorded(file: &str) -> Result<Smart> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/smart");
    Smart::parse(&fs::read_to_string(folder.join(file)).unwrap())
}

#[test]
fn each_kind_of_disk_is_parsed() {
    let disk = recorded("ata-hdd.json").unwrap();
    assert_eq!((disk.model.as_str(), disk.serial.as_str()), ("ST12000VN0008-2YS101", "ZZ000001"));
    assert_eq!((disk.passed, disk.temperature, disk.wear), (Some(true), Some(34.0), None));
    assert_eq!((disk.reallocated, disk.pending, disk.uncorrectable), (Some(8.0), Some(2.0), Some(2.0)));
    assert_eq!((disk.link_errors, disk.power_on_hours), (Some(17.0), Some(22950.0)));
    assert_eq!(disk.written_bytes, Some(98_304_000_000.0 * 512.0));

    let disk = recorded("ata-ssd.json").unwrap();
    assert_eq!((disk.wear, disk.reallocated), (Some(7.0), Some(0.0)), "normalised: 93 of 100 is left");

    let disk = recorded("nvme.json").unwrap();
    assert_eq!((disk.wear, disk.spare, disk.uncorrectable), (Some(4.0), Some(100.0), Some(3.0)));
    assert_eq!(disk.written_bytes, Some(41_234_567.0 * 512_000.0));

    let disk = recorded("scsi.json").unwrap();
    assert_eq!((disk.reallocated, disk.uncorrectable, disk.temperature), (Some(5.0), Some(3.0), Some(38.0)));
    assert_eq!(disk.written_bytes, Some(51_200.5e9));
}

#[test]
fn an_unreadable_disk_says_why() {
    let why = recorded("denied.json").unwrap_err().to_string();
    assert!(why.contains("Permission denied") && why.contains("root"), "{why}");
    assert!(Smart::parse("smartctl 6.6").unwrap_err().to_string().contains("smartmontools 7"));
}

fn day(day: u64, wear: f64, reallocated: f64) -> (Smart, u64) {
    let smart =
        Smart { serial: "S/1".into(), wear: Some(wear), reallocated: Some(reallocated), ..Smart::default() };
    (smart, day * DAY_S + 3600)
}

#[test]
fn one_record_per_day_and_disk_and_a_partial_line_is_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let history = History::open(&dir.path().join("state")).unwrap();
    let (smart, at) = day(20_000, 10.0, 0.0);
    assert!(history.record(&smart, at).unwrap());
    assert!(!history.record(&smart, at + 7200).unwrap(), "the same day");
    let file = dir.path().join("state/smart-S_1.jsonl");
    fs::write(&file, format!("{}{{\"day\": 200", fs::read_to_string(&file).unwrap())).unwrap();
    assert!(history.record(&smart, at + DAY_S).unwrap());
    let days = history.days("S/1").unwrap();
    assert_eq!(days.iter().map(|d| d.date.as_str()).collect::<Vec<_>>(), ["2024-10-04", "2024-10-05"]);
    assert_eq!(days[0].smart, smart);
    assert!(history.days("another").unwrap().is_empty());
    assert!(history.record(&Smart::default(), at).unwrap_err().to_string().contains("serial"));
}

#[test]
fn trends_report_wear_and_reallocated_sectors() {
    let dir = tempfile::tempdir().unwrap();
    let history = History::open(dir.path()).unwrap();
    for number in 0..=100 {
        // One percent every ten days, in steps, as disks report it; sectors are reallocated from day 90 on.
        let (smart, at) =
            day(20_000 + number, 40.0 + (number / 10) as f64, if number < 90 { 0.0 } else { 16.0 });
        history.record(&smart, at).unwrap();
    }
    let trends = history.trends("S/1").unwrap();
    let find = |name: &str| trends.iter().find(|trend| trend.name == name).unwrap();
    let wear = find("wear");
    assert_eq!((wear.first, wear.last, wear.days), (40.0, 50.0, 100));
    assert!((wear.per_day - 0.1).abs() < 0.01, "{}", wear.per_day);
    let meaning = wear.meaning.as_deref().unwrap();
    let days: f64 = meaning.split(' ').rev().nth(1).unwrap().parse().unwrap();
    assert!((days - 500.0).abs() < 50.0, "{meaning}");
    assert!(find("reallocated").meaning.as_deref().unwrap().contains("16 more sectors"));
}

#[test]
fn a_healthy_disk_or_a_short_history_reports_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let history = History::open(dir.path()).unwrap();
    let (smart, at) = day(20_000, 3.0, 8.0);
    history.record(&smart, at).unwrap();
    assert!(history.trends("S/1").unwrap().is_empty(), "one day is not a trend");
    let (smart, at) = day(20_003, 4.0, 8.0);
    history.record(&smart, at).unwrap();
    let trends = history.trends("S/1").unwrap();
    assert_eq!(trends.len(), 2);
    assert!(trends.iter().all(|trend| trend.meaning.is_none()), "{trends:?}");
}
