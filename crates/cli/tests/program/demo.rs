//! `cenote demo` runs to its end and leaves nothing behind.

use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn the_story_ends_well_and_the_folder_is_gone() {
    let scratch = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_cenote"))
        .arg("demo")
        .env("TMPDIR", scratch.path())
        .output()
        .expect("the program runs");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("DEGRADED"), "{told}");
    let line = told.lines().find(|line| line.contains("have the same SHA-256")).expect("hashes are compared");
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] > 100 && numbers[0] == numbers[1], "{line}");
    assert!(!told.contains("cenote: "), "a command failed: {told}");
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
}

#[test]
fn the_disks_can_be_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("disks");
    let output =
        Command::new(env!("CARGO_BIN_EXE_cenote")).args(["demo", "--keep"]).arg(&folder).output().unwrap();
    assert!(output.status.success());
    let mut names: Vec<_> = folder.read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["disk0.img", "disk1.img", "disk2.img", "disk3.img"]);
}

/// Interrupted at any point (or just finished), it leaves nothing behind.
#[test]
fn an_interrupted_demo_cleans_up() {
    let scratch = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_cenote"))
        .arg("demo")
        .env("TMPDIR", scratch.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    // The first output appears once the disks are unpacked.
    let mut word = [0; 16];
    child.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
    assert_eq!(scratch.path().read_dir().unwrap().count(), 1);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    // A full pipe must not stop it.
    std::io::copy(child.stdout.as_mut().unwrap(), &mut std::io::sink()).unwrap();
    child.wait().unwrap();
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
}
