//! Commands that stop early: the reader goes away, the destination is full, an interrupt.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::disks::{Disks, MIB, noise};
use crate::common::run;
use cenote_testkit::{Golden, golden, needs};

fn start(pool: &Golden, words: &[&str]) -> Child {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
    program.args(words).arg("--disks").arg(pool.images());
    program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let pool = golden("tree");
    for command in [
        "scan -r --format tsv gtree",
        "scan -r --format jsonl gtree",
        "find gtree/dirs:/",
        "ls -R gtree/dirs:/",
    ] {
        let mut child = start(&pool, &command.split(' ').collect::<Vec<_>>());
        let mut line = String::new();
        BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(!line.is_empty());
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(0), ""),
            "{command}"
        );
    }
}

#[test]
fn a_full_output_is_told_by_its_name() {
    let pool = golden("tree");
    for command in ["scan -r --format tsv gtree", "zfs list", "find gtree/dirs:/"] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.args(command.split(' ')).arg("--disks").arg(pool.images());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = program.stdout(full).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {errors}");
        assert!(errors.contains("standard output: No space left"), "{command}: {errors}");
    }
}

/// A file system of one megabyte, unmounted on drop.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Small> {
        let folder = tempfile::tempdir().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"]).arg(folder.path()).output();
        if !mount.is_ok_and(|mount| mount.status.success()) {
            eprintln!("skipped: may not mount a small file system");
            return None;
        }
        Some(Small(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[needs("raidz1")]
#[test]
fn a_full_destination_stops_a_copy_and_leaves_no_half_files() {
    let pool = golden("raidz1");
    let Some(small) = Small::mount() else { return };
    let copy = small.0.path().join("copy");
    let output = run(&pool, "cp -r graidz1:/", &[copy.to_str().unwrap()], &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("the destination is full"), "{errors}");
    // Not every file that lacks space is listed: the copy stops.
    assert!(errors.lines().count() < 40, "{errors}");
    assert!(files(&copy).len() > 5);
    are_whole(&pool, "graidz1:/", &copy);

    // Now there is no space for a single row.
    let mut rest = std::fs::File::create(small.0.path().join("rest")).unwrap();
    while std::io::Write::write_all(&mut rest, &[0; 4096]).is_ok() {}
    let second = small.0.path().join("second.tsv");
    let output = run(&pool, "scan -r --format tsv graidz1 -o", &[second.to_str().unwrap()], &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("second.tsv: No space left") && !second.exists(), "{errors}");
}

/// An interrupt at any moment is reported and leaves only complete files.
#[needs("raidz1")]
#[test]
fn an_interrupt_leaves_whole_files_only() {
    let pool = golden("raidz1");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    let child = start(&pool, &["cp", "-r", "graidz1:/", copy.to_str().unwrap()]);
    while files(&copy).is_empty() {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    // It may have ended already.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(1) => assert!(errors.contains("interrupted") && errors.contains("each complete"), "{errors}"),
        other => panic!("exit status {other:?}: {errors}"),
    }
    are_whole(&pool, "graidz1:/", &copy);
}

/// An interrupted copy into a pool changes the pool, so it is recorded in the history.
#[test]
fn an_interrupted_copy_is_in_the_history() {
    let disks = Disks::new(&[512]);
    disks.cenote("zpool create tank", &[&disks.path().join("a")]);
    let source = tempfile::tempdir().unwrap();
    for i in 0..400 {
        std::fs::write(source.path().join(format!("{i}")), noise(i, 512 << 10)).unwrap();
    }
    let allocated =
        || std::os::unix::fs::MetadataExt::blocks(&disks.path().join("a").metadata().unwrap()) * 512;
    let before = allocated();
    let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
    program.arg("--disks").arg(disks.path()).args(["cp", "-r"]).arg(source.path()).arg("tank:/copy");
    let child = program.stderr(Stdio::piped()).spawn().unwrap();
    while allocated() < before + 8 * MIB {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && errors.contains("interrupted"), "{errors}");
    let history = disks.cenote("zpool history tank", &[]);
    assert!(history.contains("tank:/copy"), "{history}");
}

/// All regular files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => found.extend(files(&path)),
            Ok(meta) if meta.is_file() => found.push(path),
            _ => {}
        }
    }
    found
}

/// Every file of a copy has the length that `cenote scan` reports: none is truncated or renamed.
fn are_whole(pool: &Golden, root: &str, copy: &Path) {
    let dataset = root.trim_end_matches(":/");
    let rows = crate::common::cenote(pool, "scan --format jsonl --columns path,size", &[dataset]);
    let row = |row: &str| {
        let row = crate::common::json(row);
        (row["path"].as_str().unwrap().to_owned(), row["size"].as_u64().unwrap())
    };
    let sizes: std::collections::HashMap<String, u64> = rows.lines().map(row).collect();
    for file in files(copy) {
        let path = file.strip_prefix(copy).unwrap().to_str().unwrap();
        let wanted = sizes.get(path);
        assert_eq!(Some(&file.metadata().unwrap().len()), wanted, "{path}");
    }
}
