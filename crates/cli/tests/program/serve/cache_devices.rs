//! Cache devices (L2ARC): read after eviction from memory, warm after an import, harmless when they fail.

use std::fs;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::serve::bench::{Bench, PATIENCE, can_mount};

const FILES: u64 = 12;
const FILE_BYTES: u64 = 8 << 20;

fn second(bench: &Bench, of: &str) -> u64 {
    let document: Value = serde_json::from_str(&bench.done("arcstat --json")).unwrap();
    document["caches"]["total"]["l2"][format!("l2_{of}")].as_u64().unwrap()
}

/// A pool with 96 MiB of files and a cache device, and a cache in memory that holds part of them.
fn begin(more: &str) -> Bench {
    let bench = Bench::new(&["a", "b"]);
    fs::File::create(bench.path("d/fast")).unwrap().set_len(300 << 20).unwrap();
    bench.done("tunable l2arc_rebuild_blocks_min_l2size=0 l2arc_feed_secs=1 l2arc_feed_min_ms=1");
    bench.done(&format!("zpool create -m {} {more}tank mirror a b cache fast", bench.text("mnt")));
    for (file, content) in CONTENTS.iter().enumerate() {
        fs::write(bench.path(&format!("mnt/{file}")), content).unwrap();
    }
    // Nothing of the pool remains in memory.
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    bench.done("tunable zfs_arc_max=64M zfs_prefetch_disable=1");
    bench
}

/// What the files hold. Compared often, so made once.
static CONTENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let words = |file| (0..FILE_BYTES / 8).map(move |word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ file);
    (0..FILES).map(|file| words(file).flat_map(u64::to_le_bytes).collect()).collect()
});

fn read_all(bench: &Bench) {
    for (file, content) in CONTENTS.iter().enumerate() {
        bench.done(&format!("cp -f tank:/{file} out"));
        assert!(fs::read(bench.path("d/out")).unwrap() == *content, "file {file}");
    }
}

#[track_caller]
fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it does not happen");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn fed(bench: &Bench) {
    wait_until(|| second(bench, "staged_size") == 0);
}

#[test]
fn what_memory_let_go_is_read_from_the_cache_device_also_after_an_import() {
    if !can_mount() {
        return;
    }
    for more in ["", "-O compression=zstd -O encryption=on -O keyformat=hex -O keylocation=file:///KEY "] {
        let key = tempfile::NamedTempFile::new().unwrap();
        fs::write(key.path(), "7".repeat(64)).unwrap();
        let bench = begin(&more.replace("file:///KEY", &format!("file://{}", key.path().display())));
        if !more.is_empty() {
            bench.done("zfs load-key tank");
        }
        for _ in 0..4 {
            read_all(&bench);
            fed(&bench);
        }
        let hits = second(&bench, "hits");
        read_all(&bench);
        assert!(second(&bench, "hits") > hits + FILES, "{hits}");
        // A block of the MOS may have been rewritten in the same txg: then its key and address are the same.
        assert!(second(&bench, "cksum_bad") < 5);
        let held = second(&bench, "bufs");
        bench.done("zpool export tank");
        bench.done("zpool import -l tank");
        wait_until(|| second(&bench, "rebuild_success") == 1);
        assert!(second(&bench, "bufs") > held / 2, "{held}");
        read_all(&bench);
        assert!(second(&bench, "hits") > FILES && second(&bench, "cksum_bad") < 5);
        assert!(bench.done("arcstat -v").contains("l2asize"));
    }
}

#[test]
fn a_cache_device_that_holds_rubbish_or_is_not_there_harms_nobody() {
    if !can_mount() {
        return;
    }
    let bench = begin("");
    read_all(&bench);
    fed(&bench);
    // The cached blocks are overwritten behind the daemon's back.
    let device = fs::OpenOptions::new().write(true).open(bench.path("d/fast")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&device, &vec![0x55; 200 << 20], 5 << 20).unwrap();
    read_all(&bench);
    assert!(second(&bench, "cksum_bad") > 0);
    bench.done("zpool export tank");
    fs::rename(bench.path("d/fast"), bench.path("away")).unwrap();
    bench.done("zpool import tank");
    assert_eq!(second(&bench, "devices"), 0);
    read_all(&bench);
    fs::rename(bench.path("away"), bench.path("d/fast")).unwrap();
    bench.done("zpool reopen tank");
    assert_eq!(second(&bench, "devices"), 1);
    read_all(&bench);
}

#[test]
fn what_they_hold_is_listed_and_stays_known_under_another_guid() {
    if !can_mount() {
        return;
    }
    let bench = begin("");
    for _ in 0..2 {
        read_all(&bench);
        fed(&bench);
    }
    let listed = bench.done("zpool list -vHp tank");
    let line = listed.lines().find(|line| line.contains("fast")).unwrap();
    let allocated: u64 = line.trim_start().split('\t').nth(2).unwrap().parse().unwrap();
    assert!(allocated > 1 << 20, "{listed}");
    let shown = bench.done("zpool iostat -vHp tank");
    let line = shown.lines().find(|line| line.contains("fast")).unwrap();
    let cells: Vec<u64> = line.split('\t').skip(1).map(|cell| cell.parse().unwrap()).collect();
    assert!(cells[0] > 1 << 20 && cells[5] > 0, "{shown}");

    let held = second(&bench, "bufs");
    bench.done("zpool reguid tank");
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    wait_until(|| second(&bench, "rebuild_success") == 1);
    assert!(second(&bench, "bufs") > held / 2, "{held}");
}

#[test]
fn a_keyword_without_a_device_is_refused() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    for word in ["cache", "spare", "log"] {
        let refused = bench.fails(&format!("zpool create tank a {word}"));
        assert!(refused.contains(&format!("{word} requires at least 1 device")), "{refused}");
    }
}

#[test]
fn devices_beside_the_pool_are_used_at_once_and_let_go() {
    let bench = Bench::new(&["a", "b"]);
    fs::File::create(bench.path("d/fast")).unwrap().set_len(300 << 20).unwrap();
    bench.done("zpool create -m none tank a");
    let said = bench.run(&["zpool", "add", "tank", "cache", "fast", "spare", "b"]);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    assert_eq!(bench.done("zpool list -H -v -o name,size tank").lines().count(), 6);
    bench.done("zpool remove tank fast b");
    bench.done("zpool labelclear fast");
    // Another pool may use the device now.
    bench.done("zpool create -f -m none other fast");
    bench.done("zpool attach -f -w tank a b");
}
