//! Duplicate and truncated images: which one is used, the report, and that the wrong one is never written.

use std::fs;
use std::path::Path;

use crate::common::disks::{Disks, MIB, noise};
use cenote_testkit::{copy_image, golden, needs};

fn put(disks: &Disks, name: &str, content: &[u8]) {
    let file = disks.path().join("content");
    fs::write(&file, content).unwrap();
    disks.cenote("cp", &[&file, Path::new(&format!("tank:/{name}"))]);
    fs::remove_file(file).unwrap();
}

fn copy(disks: &Disks, from: &str, to: &str) {
    fs::copy(disks.path().join(from), disks.path().join(to)).unwrap();
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn of_two_copies_the_newer_is_used_and_every_command_says_so_once() {
    // Names that sort before and after the original.
    for (old, layout) in [("0-old", "a"), ("z-old", "a"), ("0-old", "mirror a b")] {
        let disks = Disks::new(&[128, 128]);
        disks.cenote(&format!("zpool create tank {layout}"), &[]);
        put(&disks, "first", b"1");
        copy(&disks, "a", old);
        let kept = fs::read(disks.path().join(old)).unwrap();
        let file = disks.path().join("content");
        fs::write(&file, b"2").unwrap();
        // Several txgs newer, even if the label is not.
        let output = disks.run_on(&["a", "b"], "cp content tank:/second");
        assert!(output.status.success(), "{}", said(&output));
        let commands = [
            "zpool status",
            "zpool status tank",
            "zpool status --json",
            "zpool list",
            "zpool get all tank",
            "zpool import",
            "zpool import tank",
            "zpool import --json",
            "zfs list",
            "ls tank:/",
            "cat tank:/second",
            "scan -r tank",
            "verify tank",
            "dump uberblock tank",
            "zpool history tank",
            "cp content tank:/third",
            "zfs snapshot tank@now",
            "zpool export tank",
        ];
        for command in commands {
            let output = disks.run(command, &[]);
            assert!(output.status.success(), "{command}: {}", said(&output));
            let told = said(&output).lines().filter(|line| line.contains("is an older copy of")).count();
            assert_eq!(told, 1, "{command}: {}", said(&output));
        }
        assert_eq!(disks.run("cat tank:/second", &[]).stdout, b"2");
        assert!(fs::read(disks.path().join(old)).unwrap() == kept, "the older copy was written");
    }
}

#[test]
fn of_copies_that_are_equally_new_none_is_written() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    put(&disks, "file", b"1");
    copy(&disks, "a", "twin");
    let before = disks.images();
    let read = disks.run("cat tank:/file", &[]);
    assert_eq!(read.stdout, b"1");
    assert!(said(&read).contains("are copies of one device"), "{}", said(&read));
    for command in ["rm tank:/file", "zfs create tank/new", "zpool export tank", "zpool import -F tank"] {
        disks.fails(command, "take one of them away, or name the disks to use");
    }
    assert!(disks.images() == before, "a copy was written");
    // Either image is correct if the message names it.
    let output = disks.run_on(&["twin"], "zfs create tank/new");
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    assert!(said(&disks.run("zfs list", &[])).contains("is an older copy of"));
    // Both changed independently: neither is newer.
    for _ in 0..2 {
        let output = disks.run_on(&["a"], "zfs create tank/other");
        assert!(output.status.success() || said(&output).contains("exists"), "{}", said(&output));
        let _ = disks.run_on(&["a"], "zfs destroy tank/other");
    }
    assert!(said(&disks.run("zfs list", &[])).contains("each was changed on its own"));
    disks.fails("zfs create tank/third", "take one of them away");
}

#[test]
fn an_old_copy_in_the_place_of_a_mirrors_side_is_out_of_date() {
    let disks = Disks::new(&[128, 128]);
    disks.cenote("zpool create tank mirror a b", &[]);
    copy(&disks, "a", "kept");
    fs::rename(disks.path().join("kept"), disks.path().join("kept.img")).unwrap();
    let kept = fs::read(disks.path().join("kept.img")).unwrap();
    fs::remove_file(disks.path().join("kept.img")).unwrap();
    put(&disks, "file", &noise(1, 1_000_000));
    fs::write(disks.path().join("a"), kept).unwrap();
    assert!(disks.cenote("zpool status tank", &[]).contains("out of date"));
    assert_eq!(disks.run("cat tank:/file", &[]).stdout, noise(1, 1_000_000));
}

#[test]
fn an_image_that_was_cut_short_is_read_as_far_as_it_goes() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    put(&disks, "file", &noise(1, 200_000));
    let whole = fs::read(disks.path().join("a")).unwrap();
    for size in [100 * MIB, 60 * MIB] {
        let file = fs::OpenOptions::new().write(true).open(disks.path().join("a")).unwrap();
        fs::write(disks.path().join("a"), &whole).unwrap();
        file.set_len(size).unwrap();
        let status = disks.run("zpool status tank", &[]);
        let status: Vec<String> =
            String::from_utf8(status.stdout).unwrap().split_whitespace().map(str::to_owned).collect();
        let status = status.join(" ");
        assert!(status.contains("smaller than when it was added"), "{status}");
        assert!(status.contains("Copy those disks or images again in full"), "{status}");
        let listed = String::from_utf8(disks.run("zpool import", &[]).stdout).unwrap();
        assert!(listed.contains("is cut short"), "{listed}");
        assert!(disks.run("cat tank:/file", &[]).stdout == noise(1, 200_000), "of {size} bytes");
        disks.fails("rm tank:/file", "missing or cut short");
    }
}

#[needs("unclean-slog")]
#[test]
fn status_says_what_to_do_about_logs_that_are_missing_and_devices_that_were_cut_short() {
    // The machine that ran OpenZFS never exported this pool; both problems are shown.
    let golden = golden("unclean-slog");
    let disks = Disks::new(&[]);
    let images = golden.images();
    let name = golden.facts().pool;
    for disk in golden.facts().disks {
        let file = disk.file.trim_end_matches(".zst").to_owned();
        copy_image(&images.join(&file), &disks.path().join(&file));
    }
    let status = || {
        let words: Vec<String> = String::from_utf8(disks.run(&format!("zpool status {name}"), &[]).stdout)
            .unwrap()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        words.join(" ")
    };
    assert!(status().contains("was not exported there"), "{}", status());
    let log = disks.path().join("disk3.img");
    fs::rename(&log, disks.path().with_extension("log")).unwrap();
    let lost_log = status();
    fs::rename(disks.path().with_extension("log"), &log).unwrap();
    assert!(
        lost_log.contains("A log device is missing") && lost_log.contains("'zpool import -m'"),
        "{lost_log}"
    );
    assert!(lost_log.contains("machine that used the pool last did not export it"), "{lost_log}");
    let cut = |name: &str| {
        let file = fs::OpenOptions::new().write(true).open(disks.path().join(name)).unwrap();
        file.set_len(100 * MIB).unwrap();
    };
    cut("disk0.img");
    assert!(status().contains("cut short; redundancy covers them. action: Copy those disks"), "{}", status());
    cut("disk1.img");
    assert!(status().contains("redundancy does not cover it. action: Copy those disks"), "{}", status());
}
