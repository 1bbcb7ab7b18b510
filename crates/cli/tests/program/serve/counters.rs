//! Counters: aggregated operations, the cache report, kstats.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::serve::bench::{Bench, can_mount};

fn json(bench: &Bench, line: &str) -> Value {
    serde_json::from_str(&bench.done(line)).unwrap()
}

/// Operations of a class that a pool's devices received, single and aggregated.
fn sizes(bench: &Bench, class: &str) -> [u64; 2] {
    let shown = json(bench, "zpool iostat -r --json tank");
    let count = |of: &str| {
        let buckets = shown["pools"]["tank"]["queues"][class][of].as_array().unwrap();
        buckets.iter().map(|bucket| bucket.as_u64().unwrap()).sum()
    };
    ["ind", "agg"].map(count)
}

#[test]
fn neighbours_that_wait_go_to_the_device_together() {
    if !can_mount() {
        return;
    }
    let run = |limit: &str| {
        let bench = Bench::new(&["a"]);
        let one = "zfs_vdev_async_write_min_active=1 zfs_vdev_async_write_max_active=1";
        bench.done(&format!("tunable {one} zfs_vdev_aggregation_limit_non_rotating={limit}"));
        let options = "-O compression=off -O recordsize=4K";
        bench.done(&format!("zpool create -m {} {options} tank a", bench.text("mnt")));
        let content: Vec<u8> = (0..8_u32 << 20).map(|at| (at >> 12) as u8).collect();
        fs::write(bench.path("mnt/x"), &content).unwrap();
        bench.done("zpool sync tank");
        let counts = sizes(&bench, "async_write");
        bench.done("zpool export tank");
        bench.done("zpool import tank");
        assert!(fs::read(bench.path("mnt/x")).unwrap() == content);
        counts
    };
    let ([alone, joined], [all, none]) = (run("128K"), run("0"));
    assert!(none < 8 && all >= 2048, "{all} {none}");
    assert!(joined >= 16 && alone + joined < all / 4, "{alone} {joined}");
}

#[test]
fn top_shows_pools_vdevs_classes_and_the_cache_at_a_look() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a", "b"]);
    assert!(bench.done("top --once").contains("no pools available"));
    bench.done(&format!("zpool create -m {} -O compression=off tank mirror a b", bench.text("mnt")));
    fs::write(bench.path("mnt/x"), vec![7; 8 << 20]).unwrap();
    bench.done("zpool sync tank");
    fs::read(bench.path("mnt/x")).unwrap();
    let shown = bench.done("top --once");
    for word in ["tank", "ONLINE", "mirror-0", "async_write", "cache", "openzfs-2.3", "wp99"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert!(!shown.contains('\x1b'), "no terminal: {shown}");
    let pool = &json(&bench, "top --once --json")["pools"]["tank"];
    assert_eq!(pool["health"], "ONLINE");
    assert!(pool["allocated"].as_u64().unwrap() > 8 << 20);
    assert!(pool["vdevs"].as_array().unwrap().len() == 3, "{pool}");
    assert!(pool["vdevs"][1]["write"]["p99_wait_ns"].as_u64().unwrap() > 0, "{pool}");
    assert!(pool["cache"]["data"]["content_bytes"].as_u64().unwrap() >= 8 << 20);
    assert!(bench.fails("top 0").contains("zero"));
}

#[test]
fn a_report_says_what_another_size_would_bring() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} -O compression=off -O recordsize=8K tank a", bench.text("mnt")));
    assert!(bench.done("arcstat --report").contains("Too little was read"));
    bench.done("tunable zfs_arc_max=64M zfs_prefetch_disable=1");
    fs::write(bench.path("mnt/x"), vec![7; 90 << 20]).unwrap();
    bench.done("zpool sync tank");
    // Repeatedly reads data a little larger than the cache.
    for copy in 0..4 {
        bench.done(&format!("cp tank:/x copy{copy}"));
    }
    let report = bench.done("arcstat --report");
    assert!(report.contains("Hit rate of other sizes") && report.contains("Advice"), "{report}");
    let tank = &json(&bench, "arcstat --report --json")["caches"]["tank"];
    let now = tank["hit_ratio"].as_f64().unwrap();
    let larger = tank["sizes"].as_array().unwrap().last().unwrap();
    let (then, error) = (larger["hit_ratio"].as_f64().unwrap(), larger["error"].as_f64().unwrap());
    assert!(then - error > now + 0.02, "{tank}");
    assert!(report.contains("more the hit rate would be"), "{report}");
}

#[test]
fn kstats_have_openzfs_s_names_and_form() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    fs::write(bench.path("mnt/x"), vec![7; 1 << 20]).unwrap();
    // The first commit of a dataset is a txg.
    for _ in 0..2 {
        let file = fs::OpenOptions::new().append(true).open(bench.path("mnt/x")).unwrap();
        std::io::Write::write_all(&mut &file, &[7; 4096]).unwrap();
        file.sync_all().unwrap();
    }
    assert_eq!(fs::read(bench.path("mnt/x")).unwrap().len(), (1 << 20) + 8192);
    fs::remove_file(bench.path("mnt/x")).unwrap();
    bench.done("zpool sync tank");

    let arcstats = bench.done("kstat arcstats");
    let mut lines = arcstats.lines();
    assert!(lines.next().unwrap().starts_with("0 1 0x01 148 40256 0 "), "{arcstats}");
    assert_eq!(lines.next().unwrap(), "name                            type data");
    assert!(lines.next().unwrap().starts_with("hits                            4    "), "{arcstats}");
    assert!(arcstats.lines().any(|line| line.starts_with("c_max ")));

    let value = |kstat: &str, name: &str| {
        json(&bench, &format!("kstat --json {kstat}"))["kstats"][kstat][name].clone()
    };
    assert!(value("dmu_tx", "dmu_tx_assigned").as_u64().unwrap() > 0);
    assert!(value("zil", "zil_commit_count").as_u64().unwrap() > 0);
    assert!(value("zil", "zil_itx_count").as_u64().unwrap() > 0);
    let names = bench.done("kstat");
    let objset = names.lines().find(|name| name.starts_with("tank/objset-0x")).unwrap();
    assert_eq!(value(objset, "dataset_name"), "tank");
    assert!(value(objset, "nwritten").as_u64().unwrap() >= 1 << 20);
    assert!(value(objset, "nunlinked").as_u64().unwrap() >= 1);
    let txgs = bench.done("kstat tank/txgs");
    assert!(txgs.starts_with("txg      birth            state ndirty"), "{txgs}");
    let last = txgs.lines().last().unwrap();
    assert_eq!(last.split_whitespace().count(), 12);
    assert_eq!(last.split_whitespace().nth(2), Some("C"));
    assert!(bench.fails("kstat tank/nosuch").contains("nosuch"));
}

#[test]
fn vdev_properties_count_operations_and_bytes_and_the_root_those_of_devices_that_left() {
    let bench = Bench::new(&["a", "b", "e"]);
    bench.done("zpool create -m none -O compression=off tank mirror a b");
    bench.fill(1);
    bench.done("zpool sync tank");
    let count = |name: &str, vdev: &str| -> u64 {
        bench.done(&format!("zpool get -Hp -o value {name} tank {vdev}")).trim().parse().unwrap()
    };
    let [a, b, mirror, root] = ["a", "b", "mirror-0", "root"].map(|vdev| count("write_bytes", vdev));
    assert!(a >= 3_000_000 && b >= 3_000_000 && mirror >= a + b && root >= mirror, "{a} {b} {mirror} {root}");
    assert!(count("write_ops", "a") > 0 && count("trim_bytes", "a") == 0);
    bench.done("zpool replace -w tank b e");
    bench.until("zpool status tank", |status| !status.contains("replacing"));
    assert!(count("write_bytes", "root") >= root + 3_000_000);
}

#[test]
fn tables_of_shared_blocks_are_read_into_memory() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} -o compatibility=openzfs-2.3 -O dedup=on tank a"));
    for copy in 0..2 {
        let blocks: Vec<u8> = (0..8u8).flat_map(|block| vec![block + 1; 128 << 10]).collect();
        fs::write(bench.path(&format!("mnt/{copy}")), blocks).unwrap();
    }
    bench.done("zpool sync tank");
    assert_eq!(bench.done("zpool prefetch tank"), "");
    assert_eq!(json(&bench, "zpool prefetch -t ddt --json tank")["ddt_entries"], 8);
    assert_eq!(json(&bench, "zpool prefetch -t brt --json tank")["ddt_entries"], 0);
    assert!(bench.fails("zpool prefetch -t zil tank").contains("ddt"));
    assert!(bench.fails("zpool prefetch nosuch").contains("nosuch"));
}

#[test]
fn what_is_shown_again_and_again_ends_with_an_interrupt() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done("zpool create -m none tank a");
    for (line, status) in [("zpool iostat tank 60", 1), ("arcstat 60", 1), ("top 60", 0)] {
        let mut command = bench.program();
        let mut child = command.args(line.split(' ')).stdout(Stdio::piped()).spawn().unwrap();
        let mut shown = BufReader::new(child.stdout.take().unwrap());
        shown.read_line(&mut String::new()).unwrap();
        // By now it waits for the next round.
        std::thread::sleep(Duration::from_millis(500));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(status), "{line}");
    }
}
