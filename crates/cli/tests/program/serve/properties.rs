//! Properties of mounted file systems: their values as shown, and immediate effects.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use crate::serve::bench::{Bench, can_mount};

fn flags(dir: &str) -> String {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(1) == Some(dir)).unwrap().to_owned();
    line.split(' ').nth(3).unwrap().into()
}

#[test]
fn properties_take_effect_while_mounted() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank a"));
    let script = bench.path("mnt/script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();

    let kept = File::open(&script).unwrap();
    bench.done("zfs set readonly=on tank");
    assert_eq!(fs::write(bench.path("mnt/x"), "x").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    bench.done("zfs set readonly=off tank");
    fs::write(bench.path("mnt/x"), "x").unwrap();
    bench.done("zfs set exec=off tank");
    assert_eq!(Command::new(&script).output().unwrap_err().kind(), ErrorKind::PermissionDenied);
    bench.done("zfs inherit exec tank");
    assert!(Command::new(&script).output().unwrap().status.success());
    bench.done("zfs set setuid=off devices=off tank");
    assert!(flags(&mnt).contains("nosuid") && flags(&mnt).contains("nodev"), "{}", flags(&mnt));
    // All of the above with a file open.
    drop(kept);

    // The kernel caches the listing without it.
    assert_eq!(fs::read_dir(bench.path("mnt")).unwrap().count(), 2);
    bench.done("zfs set snapdir=visible tank");
    let begun = std::time::Instant::now();
    let is_listed = || fs::read_dir(bench.path("mnt")).unwrap().count() == 3;
    while !is_listed() && begun.elapsed() < crate::serve::bench::PATIENCE {
        std::thread::yield_now();
    }
    assert!(fs::read_dir(bench.path("mnt")).unwrap().any(|entry| entry.unwrap().file_name() == ".zfs"));
    bench.done("zfs set xattr=off tank");
    let set = |name: &str| rustix::fs::setxattr(&script, name, b"v", rustix::fs::XattrFlags::empty());
    assert!(set("user.a").is_err());
    bench.done("zfs set xattr=sa acltype=posix tank");
    set("user.a").unwrap();
    let acl = Command::new("setfacl").args(["-m", "u:7:r"]).arg(&script).output();
    if let Ok(acl) = acl {
        assert!(acl.status.success(), "{acl:?}");
    }
    bench.done("zfs set compression=off refquota=2M tank");
    let mut file = File::create(bench.path("mnt/big")).unwrap();
    let full = (0..64).find_map(|n| {
        let data: Vec<u8> = (0..1 << 17).map(|i| (i * 7 + n * 13 + i / 251) as u8).collect();
        file.write_all(&data).and_then(|()| file.sync_all()).err()
    });
    assert_eq!(full.unwrap().kind(), ErrorKind::QuotaExceeded);
}

#[test]
fn what_is_mounted_and_how_is_shown() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank a"));
    bench.done("zfs create tank/a");
    assert_eq!(bench.get("mounted", "tank/a"), "yes");
    assert_eq!(bench.done("zfs list -H -o mounted,mountpoint tank/a"), format!("yes\t{mnt}/a\n"));
    bench.done("zfs unmount tank/a");
    assert_eq!(bench.get("mounted", "tank/a"), "no");

    let readonly = || bench.done("zfs get -H -o value,source readonly tank/a");
    bench.done("zfs mount -o ro,noatime tank/a");
    assert_eq!(readonly(), "on\ttemporary\n");
    assert_eq!(bench.done("zfs get -H -o value,source atime tank/a"), "off\ttemporary\n");
    assert_eq!(bench.done("zfs get -H -s temporary -o property all tank/a"), "atime\nreadonly\n");
    assert!(fs::write(bench.path("mnt/a/x"), "x").is_err());
    // Other properties keep these values; setting one overrides it.
    bench.done("zfs set compression=off tank/a");
    assert_eq!(readonly(), "on\ttemporary\n");
    bench.done("zfs mount -o remount,rw tank/a");
    assert_eq!(readonly(), "off\tdefault\n");
    fs::write(bench.path("mnt/a/x"), "x").unwrap();
    bench.done("zfs mount -o remount,ro tank/a");
    bench.done("zfs set readonly=on tank/a");
    bench.done("zfs set readonly=off tank/a");
    assert_eq!(readonly(), "off\tlocal\n");
    assert_eq!(bench.done("zfs get -H -o value,source atime tank/a"), "off\ttemporary\n");
    let before = fs::metadata(bench.path("mnt/a/x")).unwrap().atime();
    bench.done("zfs unmount tank/a");
    bench.done("zfs mount tank/a");
    assert_eq!(bench.done("zfs get -H -o value,source atime tank/a"), "on\tdefault\n");
    assert_eq!(fs::metadata(bench.path("mnt/a/x")).unwrap().atime(), before);

    // An altroot is shown as part of all mount points.
    bench.done("zpool export tank");
    let root = bench.text("root");
    bench.done(&format!("zpool import -R {root} tank"));
    assert_eq!(bench.get("mountpoint", "tank/a"), format!("{root}{mnt}/a"));
    assert!(bench.path(&format!("root{mnt}/a/x")).exists());
    assert_eq!(bench.get("mounted", "tank/a"), "yes");
    // A path stands for the file system it leads into.
    for path in ["", "/x", "/../a/./x"] {
        let listed = bench.done(&format!("zfs list -H -o name {root}{mnt}/a{path}"));
        assert_eq!(listed, "tank/a\n", "{path}");
    }
    assert_eq!(bench.done(&format!("zfs get -H -o name type {root}{mnt}")), "tank\n");
    let missing = bench.fails(&format!("zfs list {root}{mnt}/a/no/such"));
    assert!(missing.contains("no such file or directory"), "{missing}");
    fs::write(bench.path(&format!("root{mnt}/a/new")), "x").unwrap();
    assert_eq!(bench.done(&format!("zfs list -H -o name {root}{mnt}/a/new")), "tank/a\n");
    assert!(bench.fails("zfs list /proc/1").contains("not a file system that the daemon has mounted"));
    let listed: serde_json::Value = serde_json::from_str(&bench.done("zfs mount -j")).unwrap();
    assert_eq!(listed["datasets"]["tank/a"]["mountpoint"], format!("{root}{mnt}/a"));
    assert_eq!(bench.done("zpool get -H -o value altroot tank"), format!("{root}\n"));
}

/// Administrators' scripts (and OpenZFS's own tests) rely on this.
#[test]
fn mounts_follow_properties_in_the_right_order() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank a"));
    bench.done("zfs create -p tank/a/b");
    // Children are unmounted first.
    bench.done("zfs set mountpoint=none tank");
    assert_eq!(bench.done("zfs mount"), "");
    bench.done(&format!("zfs set mountpoint={mnt} tank"));
    bench.done("zfs set canmount=off tank");
    assert_eq!(bench.done("zfs mount").lines().count(), 2);
    bench.done("zfs set canmount=on tank");
    bench.done("zfs set mountpoint=none tank");
    // Setting a mount point mounts the file system and those that inherit it.
    bench.done(&format!("zfs set mountpoint={mnt} tank"));
    assert_eq!(bench.done("zfs mount").lines().count(), 3);
    bench.done("zfs unmount tank/a");
    bench.done("zfs inherit mountpoint tank/a/b");
    assert_eq!(bench.get("mounted", "tank/a"), "no");
    assert_eq!(bench.get("mounted", "tank/a/b"), "yes");
    bench.done("zfs unmount tank/a/b");
    bench.done(&format!("zfs set -u mountpoint={} tank/a/b", bench.text("other")));
    assert_eq!(bench.get("mounted", "tank/a/b"), "no");
    bench.done("zfs set canmount=noauto tank/a/b");
    bench.done("zfs inherit -S canmount tank/a/b");
    assert_eq!(bench.get("canmount", "tank/a/b"), "on");
    bench.done("zfs mount -a");

    // The daemon notices an unmount by another program.
    assert!(Command::new("umount").arg(bench.path("other")).status().unwrap().success());
    let begun = std::time::Instant::now();
    while bench.get("mounted", "tank/a/b") == "yes" && begun.elapsed() < crate::serve::bench::PATIENCE {
        std::thread::yield_now();
    }
    assert_eq!(bench.get("mounted", "tank/a/b"), "no");
    bench.done("zfs mount tank/a/b");

    // Renamed without a remount: open files stay open.
    let file = File::create(bench.path("other/x")).unwrap();
    bench.done("zfs rename -u tank/a/b tank/a/c");
    assert!(bench.done("zfs mount").contains("tank/a/c"));
    rustix::io::write(&file, b"after").unwrap();
    fs::create_dir(bench.path("other/.zfs/snapshot/s")).unwrap();
    assert_eq!(bench.done("zfs list -H -o name -t snapshot"), "tank/a/c@s\n");
    assert!(bench.fails("zfs rename tank/a/c tank/a/d").contains("busy"));
    // Refused before anything is unmounted.
    assert!(bench.fails("zfs rename tank/a/c tank/a/c/d").contains("descendant"));

    // As with OpenZFS on Linux, files in use are never lost, not even by force.
    for command in [
        "zfs destroy -r tank/a/c",
        "zfs destroy -rf tank/a/c",
        "zfs rename -f tank/a/c tank/a/d",
        "zfs unmount -f tank/a/c",
        "zfs unmount -fa",
        "zpool export -f tank",
        "zpool destroy -f tank",
    ] {
        assert!(bench.fails(command).contains("busy"), "{command}");
    }
    assert_eq!(rustix::io::write(&file, b" and ever").unwrap(), 9);
    assert_eq!(fs::read_to_string(bench.path("other/x")).unwrap(), "after and ever");
    drop(file);
    bench.done("zfs mount -a");
    bench.done("zfs destroy -rf tank/a/c");
    assert_eq!(bench.done("zfs list -H -o name"), "tank\ntank/a\n");
    // Scripts that probe for an option get the error for an invalid one.
    assert!(bench.fails("zfs unmount -? tank").contains("invalid option"));
}

#[test]
fn a_mount_below_one_that_moves_comes_back_as_it_was() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank a"));
    bench.done("zfs create tank/one");
    bench.done("zfs create tank/one/below");
    bench.done(&format!("zfs create -o mountpoint={mnt}/one/own tank/own"));
    for name in ["tank/own", "tank/one/below"] {
        bench.done(&format!("zfs unmount {name}"));
        bench.done(&format!("zfs mount -o ro {name}"));
    }
    bench.done(&format!("zfs set mountpoint={mnt}/two tank/one"));
    assert!(flags(&format!("{mnt}/one/own")).starts_with("ro,"), "the command was about others");
    assert_eq!(bench.get("readonly", "tank/own"), "on");
    assert!(flags(&format!("{mnt}/two/below")).starts_with("rw,"), "it moved with its parent");
    bench.done("zfs mount -o remount,rw tank/own");
    fs::write(bench.path("mnt/one/own/x"), "x").unwrap();
}

#[test]
fn directories_that_follow_from_names_go_with_what_was_mounted_there() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    let (mnt, own) = (bench.text("mnt"), bench.text("own"));
    bench.done(&format!("zpool create -m {mnt} tank a"));
    bench.done("zfs create tank/one");
    bench.done("zfs create tank/one/below");
    bench.done(&format!("zfs create -o mountpoint={own} tank/own"));
    let is_there = |name: &str| bench.path("mnt").join(name).exists();
    assert!(is_there("one/below"));
    bench.done("zfs rename tank/one tank/two");
    assert!(!is_there("one") && is_there("two/below"));
    bench.done("zfs unmount tank/two/below");
    assert!(is_there("two/below"), "it may be mounted again");
    bench.done("zfs mount tank/two/below");
    bench.done("zfs destroy tank/two/below");
    assert!(!is_there("two/below"));
    bench.done(&format!("zfs set mountpoint={own}2 tank/two"));
    assert!(!is_there("two"));
    bench.done("zfs destroy tank/two");
    bench.done("zfs destroy tank/own");
    for named in [&own, &format!("{own}2")] {
        assert!(fs::exists(named).unwrap(), "somebody has named it");
    }
    bench.done("zpool destroy tank");
    assert!(fs::exists(&mnt).unwrap());

    // The pool's own file system is unmounted when the pool is destroyed.
    bench.done("zpool create -f -O canmount=noauto tank a");
    bench.done("zpool export tank");
    bench.done(&format!("zpool import -R {mnt} tank"));
    bench.done("zfs mount tank");
    assert!(is_there("tank"));
    bench.done("zpool export tank");
    assert!(!is_there("tank"));
}

#[test]
fn a_refused_rename_leaves_mounts_where_they_are() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    for name in ["old", "old/x", "old/y"] {
        bench.done(&format!("zfs create tank/{name}"));
    }
    bench.done("zfs unmount tank/old/y");
    bench.done("zfs rename -u tank/old tank/new");
    bench.done("zfs mount -o ro,remount tank/new/x");
    let mounts = || {
        let all = fs::read_to_string("/proc/self/mounts").unwrap();
        let ours = all.lines().filter(|line| line.contains(&bench.text("mnt")));
        // Directory and first option; the first word is the name at the time of the mount.
        let place = |line: &str| line.split([' ', ',']).skip(1).take(3).collect::<Vec<_>>().join(" ");
        ours.map(place).collect::<BTreeSet<_>>()
    };
    let before = mounts();
    // Unmounted after those below it.
    let _open = File::create(bench.path("mnt/old/file")).unwrap();
    assert!(bench.fails("zfs rename tank/new tank/newer").contains("busy"));
    assert_eq!(mounts(), before);
    assert!(before.iter().any(|line| line.contains("mnt/old/x") && line.ends_with(" ro")), "{before:?}");
}

/// The directory of the mount below is younger than the snapshot, so the kernel detaches the mount.
#[test]
fn a_rollback_leaves_mounts_where_they_are() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.done("zfs snapshot tank@s");
    bench.done("zfs create tank/old");
    bench.done("zfs rename -u tank/old tank/new");
    fs::write(bench.path("mnt/old/file"), "of old").unwrap();
    bench.done("zfs rollback tank@s");
    assert_eq!(fs::read(bench.path("mnt/old/file")).unwrap(), b"of old");
    assert!(!bench.path("mnt/new").exists());
}

#[test]
fn parents_that_a_rename_makes_hide_nothing() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    let mnt = bench.text("mnt");
    bench.done(&format!("zpool create -m {mnt} tank a"));
    bench.done("zfs create tank/b");
    fs::write(bench.path("mnt/b/file"), "content").unwrap();
    bench.done("zfs rename -p tank/b tank/new/deep/b");
    assert_eq!(fs::read_to_string(bench.path("mnt/new/deep/b/file")).unwrap(), "content");
    bench.done("zfs rename tank/new/deep/b tank/b");
    assert_eq!(fs::read_to_string(bench.path("mnt/b/file")).unwrap(), "content");
    bench.done("zpool export tank");
}

#[test]
fn a_rollback_takes_mounted_clones_with_it() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.done("zfs create tank/b");
    bench.done("zfs snapshot tank/b@one");
    bench.done("zfs snapshot tank/b@two");
    bench.done("zfs clone tank/b@two tank/clone");
    assert!(bench.fails("zfs rollback -r tank/b@one").contains("tank/clone"));
    bench.done("zfs rollback -R tank/b@one");
    assert_eq!(bench.done("zfs list -H -t all -o name tank/b -r"), "tank/b\ntank/b@one\n");
    assert!(!bench.path("mnt/clone").exists());
}

#[test]
fn properties_of_an_open_pool_are_those_that_were_set() {
    let bench = Bench::new(&["a"]);
    bench.done("zpool create -m none -o expand=on tank a");
    assert_eq!(bench.done("zpool get -H -o value autoexpand tank"), "on\n");
    bench.done("zfs create -V 8M tank/v");
    bench.done("zpool set comment=attic tank");
    bench.done("zpool set compatibility=openzfs-2.1-linux tank");
    assert_eq!(bench.done("zpool get -H -o value comment,compatibility tank"), "attic\nopenzfs-2.1-linux\n");
    bench.done("zpool set listsnaps=on tank");
    bench.done("zpool sync tank");
    let history = bench.done("zpool history tank");
    assert!(history.contains("zpool set listsnaps=on tank") && !history.contains("zpool sync"), "{history}");
    assert_eq!(
        bench.done("zpool get -H -o value,source listsnaps,org.me:none tank"),
        "on\tlocal\n-\tdefault\n"
    );
    bench.done("zpool set comment= tank");
    assert_eq!(bench.done("zpool get -H -o value,source comment tank"), "-\tdefault\n");
    assert!(bench.fails("zpool set bootfs=tank/v tank").contains("must be a file system"));
}

#[test]
fn new_file_systems_stay_unmounted_if_wanted_and_are_upgraded_while_mounted() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.done("zfs create -u tank/still");
    bench.done("zfs create -p -u tank/above/still");
    fs::write(bench.path("mnt/file"), "x").unwrap();
    bench.done("zfs snapshot tank@s");
    bench.done("zfs clone -u tank@s tank/clone");
    bench.done("zfs clone tank@s tank/mounted");
    // Later commands leave them alone.
    bench.done("zfs set atime=off tank");
    let mounted = |name: &str| bench.get("mounted", name);
    for (name, wanted) in [
        ("tank/still", "no"),
        ("tank/above", "yes"),
        ("tank/above/still", "no"),
        ("tank/clone", "no"),
        ("tank/mounted", "yes"),
    ] {
        assert_eq!(mounted(name), wanted, "{name}");
    }
    bench.done("zfs mount tank/still");
    assert_eq!(mounted("tank/still"), "yes");

    bench.done("zfs create -o version=4 tank/old");
    bench.done("zfs create tank/old/below");
    let (old, new) = (bench.path("mnt/old/file"), bench.path("mnt/old/new"));
    fs::write(&old, "old").unwrap();
    let held = File::open(&old).unwrap();
    let busy = bench.fails("zfs upgrade tank/old");
    assert!(busy.contains("cannot set property for 'tank/old'") && busy.contains("busy"), "{busy}");
    assert_eq!(bench.get("version", "tank/old"), "4");
    drop(held);
    assert_eq!(bench.done("zfs upgrade tank/old"), "1 filesystems upgraded\n");
    assert_eq!((bench.get("version", "tank/old"), mounted("tank/old/below")), ("5".into(), "yes".into()));
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
    fs::write(&new, "new").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
    bench.done("zfs unmount tank/old/below");
    bench.done("zfs unmount tank/old");
    bench.done("zfs mount tank/old");
    assert_eq!(fs::metadata(&old).unwrap().mode() & 0o777, 0o640);
    assert_eq!(fs::read_to_string(&new).unwrap(), "new");
}

/// Each as OpenZFS's tools take or refuse it.
#[test]
fn sizes_versions_and_quotas_are_set_where_openzfs_sets_them() {
    let bench = Bench::new(&["a"]);
    bench.done("zpool create -m none tank a");
    // Versions go up, never down.
    bench.done("zfs create -o version=4 tank/old");
    bench.done("zfs set version=5 tank/old");
    assert_eq!(bench.get("version", "tank/old"), "5");
    assert!(bench.fails("zfs set version=4 tank/old").contains("can not downgrade; already at version 5"));
    assert!(bench.fails("zfs set version=6 tank/old").contains("'version' must be one of"));
    bench.done("zfs set version=5 tank/old");
    // A clone of a volume may have another size.
    bench.done("zfs create -V 8M -s tank/v");
    bench.done("zfs snapshot tank/v@s");
    bench.done("zfs clone -o volsize=16M tank/v@s tank/larger");
    assert_eq!(bench.done("zfs get -Hp -o value volsize tank/larger"), "16777216\n");
    assert_eq!(bench.done("zfs get -Hp -o value volsize tank/v"), "8388608\n");
    assert!(bench.fails("zfs clone -o volsize=1000 tank/v@s tank/odd").contains("must be a multiple"));
    assert!(bench.fails("zfs list tank/odd").contains("does not exist"));
    bench.done("zfs snapshot tank/old@s");
    bench.fails("zfs clone -o volsize=16M tank/old@s tank/no-volume");
    // Only datasets of the types asked for may be named, and what is above them.
    let here = bench.fails("zfs list -t filesystem tank/v@s");
    assert!(here.contains("snapshot delimiter '@' is not expected here"), "{here}");
    let here = bench.fails("zfs list -t volume tank/old");
    assert!(here.contains("operation not applicable to datasets of this type"), "{here}");
    assert_eq!(bench.done("zfs list -H -o name -r -t volume tank"), "tank/larger\ntank/v\n");
    assert_eq!(bench.done("zfs list -H -o name -t snapshot tank/v"), "tank/v@s\n");
    // Deduplication tables have a bound.
    let quota = || bench.done("zpool get -H -o value,source dedup_table_quota tank");
    assert_eq!(quota(), "auto\tdefault\n");
    bench.done("zpool set dedup_table_quota=1M tank");
    assert_eq!(quota(), "1M\tlocal\n");
    assert!(bench.fails("zpool set dedup_table_quota=0 tank").contains("use 'none'"));
    bench.done("zpool set dedup_table_quota=none tank");
    assert_eq!(quota(), "none\tlocal\n");
}
