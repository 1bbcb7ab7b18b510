//! Things that are no disks of a pool.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;

use super::command::{FAILED, cenote, text};

/// Commands that look for a pool.
const COMMANDS: [&[&str]; 5] = [
    &["scan", "tank"],
    &["ls", "tank:/"],
    &["cat", "tank:/a"],
    &["zfs", "list", "tank"],
    &["zpool", "status", "tank"],
];

fn fails_everywhere(path: &std::path::Path, words: &[&str]) {
    for command in COMMANDS {
        let ran = cenote(&[command, &["-d", text(path)]].concat());
        ran.fails(FAILED, &[&["no pool in", text(path), "-d"], words].concat());
    }
}

#[test]
fn folders_without_disks() {
    let folder = tempfile::tempdir().unwrap();
    fails_everywhere(folder.path(), &[]);
    fails_everywhere(&folder.path().join("missing"), &["No such file", "check the path"]);
    fs::create_dir(folder.path().join("below")).unwrap();
    fs::write(folder.path().join("text"), "not a disk\n").unwrap();
    fails_everywhere(folder.path(), &[]);
}

#[test]
fn files_that_are_no_disks() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    File::create(path("empty")).unwrap();
    fails_everywhere(&path("empty"), &["0 bytes", "64 MiB"]);
    fs::write(path("text"), "not a disk\n").unwrap();
    fails_everywhere(&path("text"), &["11 bytes", "cut short"]);
    File::create(path("zeros")).unwrap().set_len(80 << 20).unwrap();
    fails_everywhere(&path("zeros"), &["no ZFS label"]);
    let mut noise = File::create(path("noise")).unwrap();
    let mut word = 1u64;
    for _ in 0..(65 << 20) / 8 {
        word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        noise.write_all(&word.to_le_bytes()).unwrap();
    }
    drop(noise);
    fails_everywhere(&path("noise"), &["no ZFS label"]);
}

#[test]
fn things_that_are_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Opening a pipe waits for a writer: it must not come to that.
    fails_everywhere(&pipe, &["pipe"]);
    fails_everywhere(std::path::Path::new("/dev/zero"), &["character device"]);
    fails_everywhere(folder.path(), &[]);
    let dangling = folder.path().join("dangling");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    fails_everywhere(&dangling, &["No such file"]);
}

#[test]
fn a_bad_place_does_not_hide_a_good_one() {
    let Some(images) = cenote_testkit::fixture_images("zpool_upgrade") else { return };
    let good = images.join("zfs-pool-v15.dat");
    let ran = cenote(&["scan", "-d", "/nonexistent", "-d", text(&good), "-d", "/dev/zero", "v15-pool"]);
    assert!(!ran.succeeds().is_empty());
}
