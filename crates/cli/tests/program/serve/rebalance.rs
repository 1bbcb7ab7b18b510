//! `rebalance`: existing blocks go where, and as small as, new ones would.

use std::fs;
use std::process::Command;

use crate::serve::bench::{Bench, can_mount, zdb_finds_nothing};

const RECORD: usize = 128 << 10;

/// Compressible, and different in each block.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|word| ((seed << 32) | (word / 64)).to_le_bytes()).collect()
}

/// Files of a record each, and 200 small ones in a folder.
fn fill(bench: &Bench, records: usize) {
    fs::create_dir(bench.path("mnt/small")).unwrap();
    for file in 0..200 {
        fs::write(bench.path(&format!("mnt/small/{file}")), content(file, 3000)).unwrap();
    }
    fs::write(bench.path("mnt/large"), content(1000, records * RECORD)).unwrap();
    bench.done("zpool sync tank");
}

fn all_is_there(bench: &Bench, records: usize) {
    for file in 0..200 {
        assert_eq!(fs::read(bench.path(&format!("mnt/small/{file}"))).unwrap(), content(file, 3000));
    }
    assert!(fs::read(bench.path("mnt/large")).unwrap() == content(1000, records * RECORD));
}

/// Bytes per aim that a dry run would rewrite.
fn todo(bench: &Bench, words: &str, aim: &str) -> u64 {
    let answer = bench.done(&format!("rebalance -n --json {words}"));
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let gains = answer["survey"]["gains"].as_array().unwrap();
    let gain = gains.iter().find(|gain| gain["aim"] == aim).unwrap();
    gain["bytes"].as_u64().unwrap() - gain["held_bytes"].as_u64().unwrap()
}

fn allocated(bench: &Bench, vdev: &str) -> u64 {
    bench.done("zpool sync tank");
    bench.done(&format!("zpool get -Hpo value allocated tank {vdev}")).trim().parse().unwrap()
}

#[test]
fn metadata_and_small_files_move_to_a_special_vdev_that_came_later() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a", "b"]);
    bench
        .done(&format!("zpool create -O compression=off -O checksum=sha256 -m {} tank a", bench.text("mnt")));
    fill(&bench, 40);
    assert!(bench.done("rebalance -n tank").starts_with("Nothing to rewrite."));
    bench.done("zpool add tank special b");
    bench.done("zfs set special_small_blocks=16K tank");
    let before = todo(&bench, "tank", "special");
    assert!(before > 200 * 3000, "small files and metadata: {before}");
    let data = allocated(&bench, "a");
    let done = bench.done("rebalance --onto special tank");
    assert!(done.starts_with("Rewrote "), "{done}");
    // The large file lay where it belongs: only the block moved under which its pointers are.
    let after = todo(&bench, "tank", "special");
    assert!(after < before / 10, "{after} of {before} are left");
    assert!(allocated(&bench, "b") > 200 * 3000);
    let left = allocated(&bench, "a");
    assert!(left + 200 * 3000 < data && left > 39 * RECORD as u64, "{left} of {data}");
    all_is_there(&bench, 40);
    bench.done("zpool export tank");
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn a_new_vdev_takes_its_share_of_old_data() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a", "b"]);
    bench.done(&format!("zpool create -O compression=off -m {} tank a", bench.text("mnt")));
    fill(&bench, 480);
    bench.done("zfs create -V 8M -b 16k tank/v");
    bench.done("zpool add tank b");
    let (a, b) = (allocated(&bench, "a"), allocated(&bench, "b"));
    assert!(b < a / 10, "{b} of {a}");
    bench.done("rebalance tank");
    let (a, b) = (allocated(&bench, "a"), allocated(&bench, "b"));
    // About 60 MiB in all; each vdev may be two percent of its 240 MiB from the average.
    assert!(a.abs_diff(b) < 10 << 20, "uneven: {a} and {b}");
    all_is_there(&bench, 480);
    bench.done("zpool export tank");
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn compression_reaches_old_blocks_except_those_of_snapshots() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -O compression=off -m {} tank a", bench.text("mnt")));
    fs::write(bench.path("mnt/large"), content(1, 40 * RECORD)).unwrap();
    fs::write(bench.path("mnt/noise"), noise(10 * RECORD)).unwrap();
    bench.done("zfs snapshot tank@s");
    fs::write(bench.path("mnt/later"), content(2, 40 * RECORD)).unwrap();
    bench.done("zpool sync tank");
    bench.done("zfs set compression=zstd tank");
    let before = allocated(&bench, "a");
    let shown = bench.done("rebalance -n tank");
    assert!(shown.contains("compression") && shown.contains("(--shared)"), "{shown}");
    bench.done("rebalance tank");
    let after = allocated(&bench, "a");
    assert!(after + 35 * (RECORD as u64) < before, "{after} of {before}");
    bench.done("zfs destroy tank@s");
    bench.done("rebalance tank");
    assert!(allocated(&bench, "a") + 35 * (RECORD as u64) < after);
    assert_eq!(todo(&bench, "tank", "compression"), 0, "noise stays as it is");
    assert!(fs::read(bench.path("mnt/large")).unwrap() == content(1, 40 * RECORD));
    assert!(fs::read(bench.path("mnt/later")).unwrap() == content(2, 40 * RECORD));
    bench.done("zpool export tank");
    zdb_finds_nothing(&bench.path("d"), "tank");
}

fn noise(bytes: usize) -> Vec<u8> {
    let output = Command::new("head").args(["-c", &bytes.to_string(), "/dev/urandom"]).output().unwrap();
    output.stdout
}

#[test]
fn an_expanded_raidz_stores_old_blocks_across_all_disks() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a", "b", "c", "e"]);
    let mnt = bench.text("mnt");
    bench.done(&format!(
        "zpool create -o feature@raidz_expansion=enabled -O compression=off -m {mnt} tank raidz1 a b c"
    ));
    fs::write(bench.path("mnt/large"), content(1, 80 * RECORD)).unwrap();
    bench.done("zpool sync tank");
    bench.done("zpool attach -w tank raidz1-0 e");
    let (before, saved) = (allocated(&bench, "raidz1-0"), todo(&bench, "tank", "new-width"));
    assert!(saved > 80 * RECORD as u64);
    bench.done("rebalance --onto new-width tank");
    // Parity of a third becomes parity of a quarter: 1.5 and 1.33 bytes for each.
    let after = allocated(&bench, "raidz1-0");
    assert!(after + 10 * (RECORD as u64) < before, "{after} of {before}");
    assert_eq!(todo(&bench, "tank", "new-width"), 0);
    assert!(fs::read(bench.path("mnt/large")).unwrap() == content(1, 80 * RECORD));
    assert!(bench.fails("rebalance --onto nowhere tank").contains("special, new-width"));
    assert!(bench.fails("rebalance tank@s").contains("does not exist"));
    bench.done("zpool export tank");
    zdb_finds_nothing(&bench.path("d"), "tank");
}
