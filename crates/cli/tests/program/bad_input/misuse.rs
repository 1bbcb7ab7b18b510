//! Invalid command lines, and names that don't exist.

use cenote_testkit::{fixture_images, golden, needs};

use super::command::{FAILED, MISUSED, cenote, text};

#[test]
fn command_lines_that_make_no_sense() {
    for words in [
        &["frobnicate"][..],
        &["scan"],
        &["scan", "tank", "--frobnicate"],
        &["scan", "tank", "--txg", "soon"],
        &["scan", "tank", "--txg", "5", "-F"],
        &["scan", "tank", "--checkpoint", "-F"],
        &["scan", "tank", "--format", "poem"],
        &["scan", "tank", "--latest", "--snapshot", "a"],
        &["scan", "tank", "--threads", "-1"],
        &["zpool", "frobnicate"],
        &["zfs", "list", "--frobnicate"],
        &["cp"],
        &["volume", "cp", "tank/v"],
    ] {
        cenote(words).fails(MISUSED, &["help"]);
    }
    for (words, says) in [
        (&["scan", "tank", "--cache", "1K"][..], "64M"),
        (&["scan", "tank", "--cache", "much"], "--cache much"),
        (&["scan", "tank", "--columns", "weight"], "weight"),
        (&["scan", ""], "POOL/DATASET"),
        (&["scan", "tank/"], "POOL/DATASET"),
    ] {
        cenote(words).fails(MISUSED, &[says]);
    }
}

#[test]
fn keys_that_make_no_sense() {
    for (key, says) in [
        ("secret", "DATASET=pass:TEXT"),
        ("tank=secret", "pass:TEXT, hex:HEX, file:PATH or env:NAME"),
        ("tank=rot13:frperg", "pass:TEXT"),
        ("tank=env:NO_SUCH_VARIABLE", "NO_SUCH_VARIABLE"),
    ] {
        cenote(&["scan", "tank", "--key", key]).fails(MISUSED, &["--key", says]);
    }
    cenote(&["scan", "tank", "--key", "tank=file:/nonexistent/key"])
        .fails(FAILED, &["/nonexistent/key", "No such file"]);
    cenote(&["scan", "tank", "--key", "tank=file:/"]).fails(FAILED, &["--key tank"]);
}

#[needs("fixtures/zpool_upgrade")]
#[test]
fn names_of_what_is_not_there() {
    let images = fixture_images("zpool_upgrade");
    let disk = images.join("zfs-pool-v15.dat");
    let fails = |words: &[&str], says: &[&str]| {
        cenote(&[words, &["--disks", text(&disk)]].concat()).fails(FAILED, says);
    };
    fails(&["scan", "tank"], &["no pool 'tank'", "v15-pool"]);
    fails(&["scan", "v15-pool/none"], &["v15-pool/none", "does not exist", "zfs list"]);
    fails(&["scan", "v15-pool@none"], &["'v15-pool@none'", "dataset does not exist", "zfs list"]);
    fails(&["scan", "v15-pool", "--snapshot", "none*"], &["no file system or snapshot matches"]);
    fails(&["scan", "v15-pool", "--txg", "1"], &["txg 1"]);
    fails(&["scan", "v15-pool", "--checkpoint"], &["no checkpoint"]);
    for command in ["ls", "stat", "cat", "find", "du"] {
        fails(&[command, "tank:/"], &["no pool 'tank'", "v15-pool"]);
        fails(&[command, "v15-pool/none:/"], &["v15-pool/none", "does not exist"]);
        fails(&[command, "v15-pool:/none"], &["none"]);
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    fails(&["cp", "v15-pool:/none", text(&copy)], &["none"]);
    fails(&["cp", "v15-pool:/", "/nonexistent/copy"], &["/nonexistent"]);
    fails(&["volume", "cp", "v15-pool/none", text(&copy)], &["v15-pool/none"]);
    fails(&["zfs", "list", "v15-pool/none"], &["v15-pool/none"]);
    fails(&["zpool", "status", "tank"], &["tank"]);
}

#[test]
fn near_names_are_suggested() {
    let pool = golden("snaps");
    let images = pool.images();
    let fails = |words: &[&str], says: &[&str]| {
        cenote(&[words, &["--disks", text(&images)]].concat()).fails(FAILED, says);
    };
    fails(&["zfs", "list", "gsnaps/a/vool"], &["gsnaps/a/vool", "did you mean 'gsnaps/a/vol'?"]);
    fails(&["ls", "gsnaps/A:/"], &["did you mean 'gsnaps/a'?"]);
    fails(&["zfs", "diff", "gsnaps/a@S5"], &["dataset does not exist", "did you mean 'gsnaps/a@s5'?"]);
    fails(&["zfs", "holds", "gsnaps@elsewhere"], &["gsnaps@elsewhere", "zfs list -t all"]);
}
