//! Things that are not disks of a pool.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use cenote_testkit::{fixture_images, needs, noise};

use super::command::{FAILED, cenote, text};

/// Commands that search for a pool.
const COMMANDS: [&[&str]; 5] = [
    &["scan", "tank"],
    &["ls", "tank:/"],
    &["cat", "tank:/a"],
    &["zfs", "list", "tank"],
    &["zpool", "status", "tank"],
];

fn fails_everywhere(path: &Path, words: &[&str]) {
    for command in COMMANDS {
        let ran = cenote(&[command, &["--disks", text(path)]].concat());
        ran.fails(FAILED, &[&["no pool in", text(path), "--disks"], words].concat());
    }
}

fn is_missing_everywhere(path: &Path) {
    for command in COMMANDS {
        let ran = cenote(&[&["-d", "/dev/null"], command, &["--disks", text(path)]].concat());
        ran.fails(FAILED, &[&format!("--disks {}: No such file", text(path))]);
    }
}

#[test]
fn folders_without_disks() {
    let folder = tempfile::tempdir().unwrap();
    fails_everywhere(folder.path(), &[]);
    is_missing_everywhere(&folder.path().join("missing"));
    fs::create_dir(folder.path().join("below")).unwrap();
    fs::write(folder.path().join("text"), "not a disk\n").unwrap();
    fails_everywhere(folder.path(), &[]);
}

#[test]
fn files_that_are_no_disks() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    File::create(path("empty")).unwrap();
    fails_everywhere(&path("empty"), &["0 bytes", "less than a ZFS label"]);
    fs::write(path("text"), "not a disk\n").unwrap();
    fails_everywhere(&path("text"), &["11 bytes", "cut short"]);
    File::create(path("zeros")).unwrap().set_len(80 << 20).unwrap();
    fails_everywhere(&path("zeros"), &["no ZFS label"]);
    fs::write(path("noise"), noise(1, 65 << 20)).unwrap();
    fails_everywhere(&path("noise"), &["no ZFS label"]);
}

#[test]
fn things_that_are_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Opening a pipe would wait for a writer: it must not be opened.
    fails_everywhere(&pipe, &["pipe"]);
    fails_everywhere(Path::new("/dev/zero"), &["character device"]);
    fails_everywhere(folder.path(), &[]);
    let dangling = folder.path().join("dangling");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    is_missing_everywhere(&dangling);
}

#[needs("fixtures/zpool_upgrade")]
#[test]
fn what_is_no_disk_hides_no_disk_but_what_is_not_there_is_an_error() {
    let images = fixture_images("zpool_upgrade");
    let good = images.join("zfs-pool-v15.dat");
    let ran = cenote(&["-d", "/dev/zero", "scan", "-d", text(&good), "v15-pool"]);
    assert!(!ran.succeeds().is_empty());
    for places in [["/nonexistent", text(&good)], [text(&good), "/nonexistent"]] {
        let ran = cenote(&["-d", places[0], "scan", "-d", places[1], "v15-pool"]);
        ran.fails(FAILED, &["--disks /nonexistent: No such file"]);
    }
}

#[needs("fixtures/zpool_upgrade")]
#[test]
fn the_environment_names_disks_unless_the_command_does() {
    let images = fixture_images("zpool_upgrade");
    let list = |variable: String, words: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
        let output =
            program.env("CENOTE_DISKS", variable).args(["zpool", "list", "-Ho", "name"]).args(words).output();
        let output = output.unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let image = |version: u32| images.join(format!("zfs-pool-v{version}.dat"));
    let both = format!("{}:{}", image(14).display(), image(15).display());
    assert_eq!(list(both.clone(), &[]), "v14-pool\nv15-pool\n");
    assert_eq!(list(both.clone(), &["-d", text(&image(13))]), "v13-pool\n");
    let wrong = list(both + ":/nonexistent", &[]);
    assert!(wrong.contains("CENOTE_DISKS /nonexistent: No such file"), "{wrong}");
}
