//! The daemon's record of its pools across restarts.

use std::fs;

use rustix::process::Signal;

use crate::serve::bench::{Bench, can_mount};

/// Disks in a folder not searched for pools.
fn elsewhere(bench: &Bench, disks: &[&str]) {
    fs::create_dir(bench.path("elsewhere")).unwrap();
    for disk in disks {
        fs::File::create(bench.path("elsewhere").join(disk)).unwrap().set_len(256 << 20).unwrap();
    }
}

fn record(bench: &Bench) -> String {
    fs::read_to_string(bench.path("pools.json")).unwrap()
}

#[test]
fn a_pool_is_found_on_the_disks_that_replaced_all_others() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b"]);
    elsewhere(&bench, &["c", "e"]);
    bench.done(&format!("zpool create -m {} tank mirror a b", bench.text("mnt")));
    bench.fill(1);
    for (old, new) in [("a", "c"), ("b", "e")] {
        bench.done(&format!("zpool replace tank {old} {}", bench.text(&format!("elsewhere/{new}"))));
        bench.done("zpool wait -t replace tank");
    }
    let content = fs::read(bench.path("mnt/1")).unwrap();
    bench.signal(Signal::KILL);
    bench.start(&[]);
    assert_eq!(fs::read(bench.path("mnt/1")).unwrap(), content);
    let record = record(&bench);
    assert!(record.contains("elsewhere/c") && !record.contains("d/a\""), "{record}");
}

#[test]
fn a_disk_that_was_attached_is_known_when_the_command_returns() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    elsewhere(&bench, &["b", "spare", "log"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.done(&format!("zpool attach tank a {}", bench.text("elsewhere/b")));
    assert!(record(&bench).contains("elsewhere/b"));
    bench.done(&format!("zpool add tank spare {}", bench.text("elsewhere/spare")));
    bench.done(&format!("zpool add tank log {}", bench.text("elsewhere/log")));
    assert!(record(&bench).contains("elsewhere/log"));
    bench.done("zpool wait -t resilver tank");
    bench.fill(1);
    bench.done("zpool sync tank");
    let content = fs::read(bench.path("mnt/1")).unwrap();
    bench.signal(Signal::KILL);
    fs::remove_file(bench.path("d/a")).unwrap();
    bench.start(&[]);
    assert_eq!(fs::read(bench.path("mnt/1")).unwrap(), content);
    bench.done("zpool detach tank a");
    assert!(!record(&bench).contains("d/a\""), "{}", record(&bench));
}

#[test]
fn a_pool_that_does_not_open_waits_and_opens_when_its_disk_is_back() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.fill(1);
    bench.signal(Signal::TERM);
    fs::rename(bench.path("d/a"), bench.path("away")).unwrap();
    bench.start(&[]);
    let listed = bench.done("zpool list -H -o name,health");
    assert_eq!(listed, "tank\tUNAVAIL\n");
    let status = bench.done("zpool status tank");
    assert!(status.contains("waits to be opened") && status.contains("d/a"), "{status}");
    let json: serde_json::Value = serde_json::from_str(&bench.done("zpool status -j")).unwrap();
    assert_eq!(json["pools"]["tank"]["state"], "UNAVAIL", "{json}");
    assert!(bench.fails("zfs list tank").contains("waits to be opened"));
    // Changes to another pool do not remove this one from the record.
    bench.done(&format!("zpool create -m {} other b", bench.text("other")));
    bench.signal(Signal::KILL);
    bench.start(&[]);
    assert_eq!(bench.done("zpool list -H -o name,health"), "other\tONLINE\ntank\tUNAVAIL\n");
    // Its name has changed meanwhile, too.
    fs::rename(bench.path("away"), bench.path("d/renamed")).unwrap();
    bench.until("zpool list -H -o name,health", |listed| listed.contains("tank\tONLINE"));
    bench.until("zfs mount", |mounted| mounted.contains("tank "));
    assert!(bench.path("mnt/1").exists() && record(&bench).contains("d/renamed"));
}

#[test]
fn a_pool_that_waits_is_forgotten_when_it_is_exported() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.signal(Signal::TERM);
    fs::rename(bench.path("d/a"), bench.path("away")).unwrap();
    bench.start(&[]);
    bench.done("zpool export tank");
    assert_eq!(bench.done("zpool list"), "no pools available\n");
    bench.signal(Signal::TERM);
    fs::rename(bench.path("away"), bench.path("d/a")).unwrap();
    bench.start(&[]);
    assert_eq!(bench.done("zpool list"), "no pools available\n");
}

#[test]
fn a_disk_that_was_not_there_at_the_start_is_taken_when_it_comes() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b"]);
    bench.done(&format!("zpool create -m {} tank mirror a b", bench.text("mnt")));
    bench.signal(Signal::TERM);
    fs::rename(bench.path("d/b"), bench.path("away")).unwrap();
    bench.start(&[]);
    assert!(bench.done("zpool status").contains("state: DEGRADED"));
    bench.fill(1);
    let content = fs::read(bench.path("mnt/1")).unwrap();
    fs::rename(bench.path("away"), bench.path("d/b")).unwrap();
    bench.until("zpool status", |status| status.contains("state: ONLINE") && status.contains("resilvered"));
    bench.done("zpool wait -t resilver tank");
    // The other disk alone has everything.
    bench.done("zpool offline tank a");
    bench.done("zpool export tank");
    bench.done("zpool import tank");
    assert_eq!(fs::read(bench.path("mnt/1")).unwrap(), content);
}

/// A mount point, unmounted on drop.
struct Small(std::path::PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        std::process::Command::new("umount").arg(&self.0).output().ok();
    }
}

/// The next start opens the recorded pools: a pool that can't be removed from the record is not exported.
#[test]
fn a_pool_that_was_exported_does_not_come_back_although_the_state_folder_was_full() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b"]);
    bench.signal(Signal::TERM);
    let small = Small(bench.path("small"));
    fs::create_dir(&small.0).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=64k", "small"];
    assert!(std::process::Command::new("mount").args(mount).arg(&small.0).status().unwrap().success());
    let state = bench.text("small/pools.json");
    bench.start(&["--state", &state]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.fill(1);
    fs::write(small.0.join("filler"), vec![1; 64 << 10]).unwrap_err();

    let why = bench.fails("zpool export tank");
    assert!(why.contains("cannot export 'tank': the record of pools can't be written"), "{why}");
    assert!(bench.path("mnt/1").exists(), "it was unmounted");
    assert_eq!(bench.done("zpool list -H -o name,health"), "tank\tONLINE\n");
    // Nor does a new pool remove the old one from the record.
    bench.done(&format!("zpool create -m {} other b", bench.text("other")));
    bench.signal(Signal::KILL);
    bench.start(&["--state", &state]);
    assert!(bench.path("mnt/1").exists());

    fs::remove_file(small.0.join("filler")).unwrap();
    bench.done("zpool export tank");
    bench.signal(Signal::KILL);
    bench.start(&["--state", &state]);
    assert_eq!(bench.done("zpool list -H -o name,health"), "");
    bench.signal(Signal::TERM);
}
