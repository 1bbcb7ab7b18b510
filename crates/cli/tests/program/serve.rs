//! The daemon as its users meet it: commands through the socket, mounts that follow, all ways to end.
//!
//! The tests mount for real, so they need root and /dev/fuse; without them they report that they are skipped.

mod agent;
mod bench;
mod cache_devices;
mod config;
mod consulted;
mod counters;
mod covered;
mod delegation;
mod evacuate;
mod events;
mod expansion;
mod growth;
mod ha;
mod halves;
mod holders;
mod http;
mod imports;
mod inject;
mod iscsi;
mod keys;
mod killed;
mod leaves;
mod looks;
mod multihost;
mod names;
mod nbd;
mod passes;
mod programs;
mod properties;
mod protocol;
mod rebalance;
mod record;
mod remote;
mod removal;
mod replace;
mod replication;
mod reserved;
mod rewrite;
mod rights;
mod shares;
mod sit_out;
mod snapshots;
mod suspended;
mod tuning;
mod ublk;
mod vdev_tree;
mod vhost;
mod watched;

use std::fs;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use bench::{Bench, PATIENCE, can_mount, zdb_finds_nothing};

#[test]
fn pools_live_in_the_daemon() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a", "b"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank mirror a b"));
    assert!(bench.done("zpool status").contains("state: ONLINE"));
    bench.done("zfs create tank/home");
    assert_eq!(bench.done("zfs mount").lines().count(), 2);

    // Files through the mount and through commands are the same files.
    fs::write(bench.path("mnt/home/x"), "hi\n").unwrap();
    assert_eq!(bench.done("cat tank/home:/x"), "hi\n");
    fs::write(bench.path("d/file"), "data\n").unwrap();
    bench.done("cp file tank/home:/copied");
    assert_eq!(fs::read_to_string(bench.path("mnt/home/copied")).unwrap(), "data\n");
    bench.done("zfs snapshot tank/home@one");
    fs::remove_file(bench.path("mnt/home/x")).unwrap();
    assert_eq!(fs::read_to_string(bench.path("mnt/home/.zfs/snapshot/one/x")).unwrap(), "hi\n");

    // Mounts follow.
    let other = bench.text("other");
    bench.done(&format!("zfs set mountpoint={other} tank/home"));
    assert_eq!(fs::read_to_string(bench.path("other/copied")).unwrap(), "data\n");
    assert!(!bench.path("mnt/home/copied").exists());
    bench.done("zfs rename tank/home tank/haus");
    assert!(bench.done("zfs mount").contains("tank/haus"));
    let held = fs::File::open(bench.path("other/copied")).unwrap();
    let busy = bench.fails("zfs unmount tank/haus");
    assert!(busy.contains("busy") && busy.contains(&std::process::id().to_string()), "{busy}");
    assert!(bench.fails("zpool export tank").contains("busy"));
    drop(held);
    bench.done("zfs rollback tank/haus@one");
    assert_eq!(fs::read_to_string(bench.path("other/x")).unwrap(), "hi\n");
    bench.done("zfs destroy -r tank/haus");
    assert!(!bench.done("zfs list").contains("haus"));

    bench.done("zpool export tank");
    assert!(bench.done("zpool import").contains("pool: tank"));
    bench.done("zpool import tank");
    assert!(bench.done("zfs mount").contains(&mnt));

    // Other programs and a second daemon are refused the disks with a message.
    let mut alone = bench.program();
    let output =
        alone.env("CENOTE_SOCKET", "").args(["-d", ".", "zfs", "create", "tank/y"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("in use"), "{output:?}");
    assert!(bench.fails("serve -d .").contains("is serving there already"));

    bench.signal(rustix::process::Signal::TERM);
    assert!(!bench.path("sock").exists());
    zdb_finds_nothing(&bench.path("d"), "tank");
    // Pools that were open are open again.
    bench.start(&[]);
    assert!(bench.done("zfs mount").contains(&mnt));
}

#[test]
fn what_was_synced_outlives_the_daemon() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    for round in 0..5 {
        let file = fs::File::create(bench.path(&format!("mnt/{round}"))).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, format!("round {round}").as_bytes(), 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        bench.signal(rustix::process::Signal::KILL);
        bench.start(&[]);
        for before in 0..=round {
            let text = fs::read_to_string(bench.path(&format!("mnt/{before}"))).unwrap();
            assert_eq!(text, format!("round {before}"));
        }
    }
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn commands_at_once_get_on_with_each_others_mounts() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    let client = &|number| {
        let home = format!("tank/c{number}");
        bench.done(&format!("zfs create {home}"));
        bench.done(&format!("zfs snapshot {home}@then"));
        for turn in 0..4 {
            let clone = bench.path(&format!("mnt/c{number}/k{turn}"));
            bench.done(&format!("zfs clone {home}@then {home}/k{turn}"));
            fs::write(clone.join("file"), "of the clone").unwrap();
            bench.done(&format!("zfs destroy {home}/k{turn}"));
            assert!(!clone.join("file").exists());
        }
    };
    std::thread::scope(|scope| (0..8).for_each(|number| drop(scope.spawn(move || client(number)))));
    assert_eq!(bench.done("zfs mount").lines().count(), 9);
}

#[test]
fn a_pool_whose_files_were_removed_can_be_destroyed() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a", "b"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.done(&format!("zpool create -m {} other b", bench.text("other")));
    fs::remove_file(bench.path("d/a")).unwrap();
    assert!(bench.done("zpool list -H -o name").contains("tank"));
    bench.done("zpool status tank");
    bench.done("zpool destroy tank");
    assert_eq!(bench.done("zpool list -H -o name"), "other\n");
}

#[test]
fn others_may_look_and_nothing_else() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    fs::set_permissions(bench.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let as_nobody = |words: &[&str]| {
        let mut program = bench.program();
        program.args(words).uid(65534).gid(65534).current_dir("/").output().unwrap()
    };
    for look in [&["zfs", "list"][..], &["zpool", "status"], &["zfs", "get", "all", "tank"]] {
        let output = as_nobody(look);
        assert!(output.status.success(), "{look:?}: {output:?}");
    }
    for change in [&["zfs", "create", "tank/x"][..], &["cat", "tank:/x"], &["zpool", "export", "tank"]] {
        let output = as_nobody(change);
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("permission denied"),
            "{change:?}: {output:?}"
        );
    }
}

/// All mounts share the threads for blocking calls (512): hundreds of mounts would leave none for the disks.
#[test]
fn a_mount_keeps_no_thread_that_others_wait_for() {
    const MOUNTS: usize = 12;
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    (1..MOUNTS).for_each(|n| _ = bench.done(&format!("zfs create tank/{n}")));
    let daemon = bench.daemon.as_ref().unwrap().id();
    let threads = || {
        let threads = fs::read_dir(format!("/proc/{daemon}/task")).unwrap().flatten();
        let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
        names.filter(|name| name.trim() == "cenote-calls").count()
    };
    let begun = Instant::now();
    // Idle ones end after a while.
    while threads() >= MOUNTS {
        assert!(begun.elapsed() < PATIENCE, "{} threads", threads());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(bench.done("zfs list -H -o mounted tank/1"), "yes\n");
}
