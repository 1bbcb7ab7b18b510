//! The daemon's caches, and tunables changed while its pools are open.

use std::fs;

use serde_json::Value;

use crate::serve::bench::{Bench, can_mount};

/// The counters of all pools' caches together.
fn caches(bench: &Bench) -> Value {
    let document: Value = serde_json::from_str(&bench.done("arcstat --json")).unwrap();
    document["caches"]["total"].clone()
}

#[test]
fn a_file_read_twice_comes_from_the_cache_and_tunables_change_what_it_may_hold() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a", "b"]);
    bench.done(&format!("zpool create -m {} -O compression=off tank mirror a b", bench.text("mnt")));
    fs::write(bench.path("mnt/x"), vec![7; 24 << 20]).unwrap();
    // Only data on disk is left.
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    let cache = || caches(&bench);
    let document: Value = serde_json::from_str(&bench.done("tunable --json zfs_arc_max")).unwrap();
    let default = document["tunables"]["zfs_arc_max"]["default"].as_str().unwrap();
    let data = |of: &str| cache()["data"][of].as_u64().unwrap();
    bench.done("tunable zfs_prefetch_disable=1");
    bench.done("cp tank:/x copy");
    let (hits, misses) = (data("hits"), data("misses"));
    assert!(misses >= 24 << 3, "{misses} blocks were read");
    bench.done("cp tank:/x copy2");
    assert_eq!(data("misses"), misses);
    assert!(data("hits") >= hits + (24 << 3));
    assert_eq!(fs::read(bench.path("d/copy")).unwrap(), fs::read(bench.path("d/copy2")).unwrap());

    // A smaller cache evicts at once; changing the policy keeps the cached blocks.
    for name in 0..4 {
        fs::write(bench.path(&format!("mnt/y{name}")), vec![name; 24 << 20]).unwrap();
        bench.done("zpool sync tank");
    }
    let holds = || cache()["bytes"].as_u64().unwrap();
    assert!(holds() > 64 << 20, "{}", holds());
    assert_eq!(
        bench.done("tunable cenote_arc_policy=s3-fifo zfs_arc_max=64M zfs_vdev_scrub_max_active=1"),
        ""
    );
    assert!(holds() <= 64 << 20, "{}", holds());
    assert_eq!(cache()["policy"], Value::Null, "the total has none");
    assert!(bench.done("arcstat -v").contains("tank: s3-fifo"));
    assert_eq!(bench.done("tunable -H zfs_arc_max"), format!("zfs_arc_max\t67108864\t{default}\n"));
}

#[test]
fn what_cannot_be_set_is_refused_with_a_reason() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    assert!(bench.fails("tunable zfs_nosuch=1").contains("zfs_nosuch"));
    assert!(bench.fails("tunable zfs_arc_max=1K").contains("at least 67108864"));
    assert!(bench.fails("tunable cenote_arc_policy=belady").contains("future"));
    assert!(bench.fails("tunable zfs_vdev_max_active=0").contains("between 1 and"));
    let listed = bench.done("tunable");
    assert!(listed.contains("zfs_vdev_async_write_max_active"), "{listed}");
}

#[test]
fn what_is_read_can_be_recorded_and_replayed() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} -O compression=off tank a", bench.text("mnt")));
    fs::write(bench.path("mnt/x"), vec![7; 8 << 20]).unwrap();
    bench.done("zpool sync tank");
    let recording = bench.program().args(["trace", "record", "tank", "t.csv.zst"]).spawn().unwrap();
    let seen = || fs::metadata(bench.path("d/t.csv.zst")).map_or(0, |found| found.len());
    while seen() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    for copy in ["one", "two"] {
        bench.done(&format!("cp tank:/x {copy}"));
    }
    fs::write(bench.path("mnt/y"), vec![8; 1 << 20]).unwrap();
    bench.done("zpool sync tank");
    rustix::process::kill_process(rustix::process::Pid::from_child(&recording), rustix::process::Signal::INT)
        .unwrap();
    let mut recording = recording;
    assert!(recording.wait().unwrap().success());
    let shown: Value = serde_json::from_str(&bench.done("trace show --json t.csv.zst")).unwrap();
    // Each block of the file twice, and the metadata that leads there.
    assert!(shown["requests"].as_u64().unwrap() >= 128, "{shown}");
    // Plus the writes of a txg, into the cache and to the device.
    let (writes, bytes) = (shown["writes"].as_u64().unwrap(), shown["device_write_bytes"].as_u64().unwrap());
    assert!(writes >= 8 && bytes >= 1 << 20, "{shown}");
    // The requesters, by name.
    let parts = shown["parts"].as_array().unwrap();
    let data = parts.iter().find(|part| part["dataset"] == "tank" && part["class"] == "data").unwrap();
    assert!(data["requests"].as_u64().unwrap() >= 128, "{shown}");
    assert!(bench.done("trace show t.csv.zst").contains("device writes"));
    let with_l2 = "trace replay --json --policy lru --size 10% --l2 100% --l2-write 1G t.csv.zst";
    let replayed: Value = serde_json::from_str(&bench.done(with_l2)).unwrap();
    let [without, with] = ["hit_ratio", "hit_ratio_with_l2"].map(|of| replayed[0][of].as_f64().unwrap());
    assert!(with > without + 0.03, "{replayed}");
    assert!(bench.done("trace replay --policy lru --size 100% t.csv.zst").contains("lru"));
    assert!(bench.fails("trace record tank t.csv.zst").contains("t.csv.zst"), "nothing is overwritten");
    assert!(bench.fails("trace record nosuch u.csv").contains("nosuch"));

    // Around a command; returns its status.
    let shown = bench.done(&format!("trace record tank w.csv.zst -- cp {} copied", bench.text("mnt/x")));
    assert!(shown.contains("w.csv.zst"), "{shown}");
    assert!(bench.path("d/copied").exists() && bench.path("d/w.csv.zst").exists());
    let ended = bench.program().args(["trace", "record", "tank", "y", "--", "sh", "-c", "exit 7"]).output();
    assert_eq!(ended.unwrap().status.code(), Some(7));
    assert!(bench.fails("trace record nosuch z -- touch ran").contains("nosuch"));
    assert!(!bench.path("d/ran").exists(), "what is not recorded is not run");
}

#[test]
fn datasets_say_what_of_them_is_cached() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} -O compression=off tank a", bench.text("mnt")));
    let data = |of: &str| caches(&bench)["data"][of].as_u64().unwrap();
    bench.done("tunable zfs_prefetch_disable=1");
    let mut copies = 0;
    let mut misses_of_copy = || {
        let before = data("misses");
        bench.done(&format!("cp tank:/x copy{copies}"));
        copies += 1;
        data("misses") - before
    };
    // The file system is mounted and learns of the changed property; later txg writes follow it, too.
    bench.done("zfs set primarycache=metadata tank");
    fs::write(bench.path("mnt/x"), vec![7; 8 << 20]).unwrap();
    bench.done("zpool sync tank");
    assert_eq!(data("content_bytes"), 0);
    assert!(misses_of_copy() >= 64 && misses_of_copy() >= 64);
    assert_eq!(data("content_bytes"), 0);
    bench.done("zfs set primarycache=all tank");
    assert!(misses_of_copy() >= 64);
    assert_eq!((misses_of_copy(), data("content_bytes")), (0, 8 << 20));
    bench.done("zfs create -o primarycache=none tank/none");
    bench.done("zfs create -o primarycache=metadata tank/some");
    let misses_of_listing = |name: &str| -> u64 {
        (0..1000).for_each(|n| fs::write(bench.path(&format!("mnt/{name}/{n}")), "").unwrap());
        bench.done("zpool sync tank");
        let misses = || caches(&bench)["metadata"]["misses"].as_u64().unwrap();
        bench.done(&format!("ls -l tank/{name}:/"));
        let before = misses();
        bench.done(&format!("ls -l tank/{name}:/"));
        misses() - before
    };
    let (none, some) = (misses_of_listing("none"), misses_of_listing("some"));
    assert!(none >= 20 && some <= 5, "{none} and {some} blocks were read again");
}

#[test]
fn files_read_in_order_are_read_ahead_and_arcstat_says_how_much_of_it_was_wanted() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} -O compression=off tank a", bench.text("mnt")));
    fs::write(bench.path("mnt/x"), vec![7; 32 << 20]).unwrap();
    let ahead = |of: &str| caches(&bench)["prefetch"][of].as_u64().unwrap();
    let read_anew = |setting: &str| {
        // Nothing of it is cached, in the daemon or in the kernel.
        bench.done("zpool export tank");
        bench.done("zpool import tank");
        bench.done(setting);
        assert_eq!(fs::read(bench.path("mnt/x")).unwrap(), vec![7; 32 << 20]);
    };
    read_anew("tunable zfs_prefetch_disable=0");
    assert!(ahead("hits") > 0 && ahead("io_issued") >= 100, "{}", bench.done("arcstat --json"));
    assert!(ahead("used") + ahead("iohits") >= 100 && ahead("wasted") == 0);
    assert!(bench.done("arcstat").contains("used%"));
    bench.done("zfs set prefetch=none tank");
    read_anew("tunable zfs_prefetch_disable=0");
    assert_eq!(ahead("io_issued"), 0);
    bench.done("zfs set prefetch=all tank");
    read_anew("tunable zfs_prefetch_disable=1");
    assert_eq!(ahead("io_issued"), 0);
    assert!(bench.fails("tunable zfetch_max_streams=2000").contains("between 0 and 1024"));
}

#[test]
fn the_daemon_keeps_within_its_memory_changes_included() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b"]);
    bench.signal(rustix::process::Signal::TERM);
    bench.start(&["--memory", "96M"]);
    assert_eq!(bench.done("tunable -H zfs_arc_max"), "zfs_arc_max\t100663296\t100663296\n");
    for (pool, disk) in [("one", "a"), ("two", "b")] {
        bench.done(&format!("zpool create -m {} -O compression=off {pool} {disk}", bench.text(pool)));
        fs::write(bench.path(&format!("{pool}/x")), vec![7; 80 << 20]).unwrap();
        bench.done(&format!("zpool sync {pool}"));
        bench.done(&format!("cp {pool}:/x {pool}.copy"));
    }
    let held = |of: &str| caches(&bench)[of].as_u64().unwrap();
    assert!(held("bytes") > 48 << 20 && held("bytes") <= 96 << 20, "{}", held("bytes"));
    assert!(held("budget_bytes") <= 96 << 20);
    // The caches shrink to the minimum: more memory is reserved for others than this machine has.
    bench.done(&format!("tunable zfs_arc_min=32M zfs_arc_sys_free={}", 1_u64 << 60));
    let begun = std::time::Instant::now();
    while held("bytes") > 32 << 20 {
        assert!(begun.elapsed() < crate::serve::bench::PATIENCE, "{}", held("bytes"));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(bench.fails("serve --memory 1K").contains("at least 64M"));
}
