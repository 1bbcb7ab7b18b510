//! `cenote verify`: its report on devices that lack data, damaged files, and space accounting.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::common::{cenote, json, run};
use cenote_testkit::{Golden, copy_image, golden, needs};
use serde_json::Value;

/// The txgs that each device misses according to `zdb -ddd`: lines `missing [first,end) length n` below its
/// name.
fn missing_by_zdb(images: &std::path::Path, pool: &str) -> Option<BTreeMap<String, Vec<(u64, u64)>>> {
    let text = cenote_testkit::all_said(&cenote_testkit::zdb(images, &["-ddd", pool])?);
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
    let pool = golden("spares");
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

/// Copies of a pool's images, without some of them.
fn copies(pool: &Golden, without: &[&str]) -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    for disk in pool.facts().disks {
        let name = disk.file.trim_end_matches(".zst");
        if !without.contains(&name) {
            copy_image(&pool.images().join(name), &scratch.path().join(name));
        }
    }
    scratch
}

/// Exit status and report of a verification.
fn verify(images: &Path, words: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    let output = command.arg("verify").args(words).arg("-d").arg(images).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), text + &String::from_utf8_lossy(&output.stderr))
}

fn dump(images: &Path, words: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    let output = command.arg("dump").args(words).arg("--json").arg("-d").arg(images).output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{words:?}: {e}; {}", String::from_utf8_lossy(&output.stderr)))
}

/// Overwrites every copy of a block on a single-disk pool.
fn destroy(images: &Path, dvas: &str) {
    let disk = File::options().write(true).open(images.join("disk0.img")).unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    for dva in dvas.split(' ') {
        let parts: Vec<&str> = dva.split(':').collect();
        disk.write_all_at(&vec![0xa5; hex(parts[2]) as usize], (4 << 20) + hex(parts[1])).unwrap();
    }
}

#[needs("raidz1", "raidz2", "mirror")]
#[test]
fn redundancy_that_is_gone_is_a_finding() {
    for (name, words) in [
        ("raidz1", "the next failure there loses data"),
        ("raidz2", "one more failure there loses nothing, two lose data"),
        ("mirror", "the next failure there loses data"),
    ] {
        let pool = golden(name);
        let whole = verify(&pool.images(), &[&pool.facts().pool]);
        assert!(whole.0 == 0 && whole.1.contains("no damage found"), "{name}: {}", whole.1);
        let images = copies(&pool, &["disk1.img"]);
        let (status, text) = verify(images.path(), &[&pool.facts().pool]);
        assert_eq!(status, 3, "{name}: {text}");
        assert!(text.contains("no data is lost, redundancy is gone"), "{name}: {text}");
        assert!(text.contains(" is missing; ") && text.contains(words), "{name}: {text}");
    }
}

#[needs("raidz1")]
#[test]
fn devices_that_are_cut_short_are_a_finding() {
    let pool = golden("raidz1");
    let images = copies(&pool, &[]);
    for name in ["disk0.img", "disk1.img"] {
        let disk = File::options().write(true).open(images.path().join(name)).unwrap();
        disk.set_len(disk.metadata().unwrap().len() * 3 / 4).unwrap();
    }
    let (status, text) = verify(images.path(), &[&pool.facts().pool]);
    assert_eq!(status, 3, "{text}");
    assert!(!text.contains("no damage found"), "{text}");
    assert!(!text.contains("a resilver restores"), "no resilver makes them whole: {text}");
    for name in ["disk0.img", "disk1.img"] {
        assert!(text.contains(&format!("{name} is cut short")), "{text}");
    }
}

#[test]
fn space_whose_map_is_lost_is_not_said_to_be_free() {
    let pool = golden("single");
    let images = copies(&pool, &[]);
    let objects = dump(images.path(), &["objects", "--mos", "single"]);
    let maps = objects["objects"].as_array().unwrap().iter().filter(|o| o["type"] == "SPA space map");
    let mut destroyed = 0;
    for map in maps.map(|map| map["object"].as_u64().unwrap().to_string()) {
        let object = dump(images.path(), &["object", "--mos", "single", &map]);
        for block in object["blocks"].as_array().unwrap() {
            if let Some(dvas) = block["pointer"]["dvas"].as_str().filter(|dvas| !dvas.is_empty()) {
                destroy(images.path(), dvas);
                destroyed += 1;
            }
        }
    }
    assert!(destroyed > 0, "{objects}");
    let (status, text) = verify(images.path(), &["single"]);
    assert_eq!(status, 3, "{text}");
    assert!(text.contains("could not be checked"), "{text}");
    assert!(!text.contains("marked free") && !text.contains("leaked"), "{text}");
}

#[test]
fn damage_is_told_by_file_and_by_block_when_asked() {
    let pool = golden("damaged");
    let (status, text) = verify(&pool.images(), &["gdamaged"]);
    assert_eq!(status, 3);
    let lines = |text: &str| text.lines().filter(|line| line.contains(" lost")).skip(1).count();
    let first = text.lines().next().unwrap();
    assert!(first.contains("blocks lost"), "{text}");
    assert!(text.contains("bytes ") && !text.contains("no readable copy at"), "{text}");
    let (_, verbose) = verify(&pool.images(), &["-v", "gdamaged"]);
    assert!(verbose.contains("no readable copy at"), "{verbose}");
    assert!(lines(&verbose) > lines(&text), "{text}{verbose}");
}

#[test]
fn a_copy_of_damaged_files_says_once_what_to_do() {
    let pool = golden("damaged");
    let folder = tempfile::tempdir().unwrap();
    let output = run(&pool, "cp -r gdamaged/raw:/", &[folder.path().join("copy").to_str().unwrap()], &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.matches("not copied: ").count() > 1, "{errors}");
    assert_eq!(errors.matches("`cenote rescue`").count(), 1, "{errors}");
}

#[test]
fn objects_that_are_lost_have_numbers_that_can_be() {
    let pool = golden("single");
    let images = copies(&pool, &[]);
    let dnodes = dump(images.path(), &["object", "single/data", "0"]);
    let blocks = dnodes["blocks"].as_array().unwrap();
    let top = blocks.iter().max_by_key(|block| block["level"].as_u64()).unwrap();
    assert!(top["level"].as_u64() > Some(1), "{top}");
    destroy(images.path(), top["pointer"]["dvas"].as_str().unwrap());
    let (status, text) = verify(images.path(), &["single"]);
    assert_eq!(status, 3, "{text}");
    let line =
        text.lines().find(|line| line.contains("dnodes of objects")).unwrap_or_else(|| panic!("{text}"));
    let numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u64>().ok());
    assert!(numbers.max() < Some(1 << 32), "{line}");
}
