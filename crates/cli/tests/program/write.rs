//! Writing: pools created from files, trees copied in and back out, refusals. `zdb` reads every block
//! written.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::disks::{Disks, MIB, POOL, noise};
use cenote_testkit::{golden, needs};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

/// A folder with files of many kinds.
fn tree() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir_all(at("top/deep/er")).unwrap();
    fs::write(at("top/empty"), b"").unwrap();
    fs::write(at("top/small"), b"some words\n").unwrap();
    fs::write(at("top/deep/large"), noise(1, 3_300_001)).unwrap();
    fs::write(at("top/deep/er/text"), "line\n".repeat(100_000)).unwrap();
    let sparse = File::create(at("top/sparse")).unwrap();
    sparse.write_all_at(&noise(2, 5000), 5_000_000).unwrap();
    sparse.set_len(40_000_000).unwrap();
    fs::hard_link(at("top/small"), at("top/deep/linked")).unwrap();
    symlink("deep/large", at("top/link")).unwrap();
    symlink("nowhere", at("top/dangling")).unwrap();
    rustix::fs::mknodat(CWD, at("top/pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    for number in 0..300 {
        fs::write(at(&format!("top/deep/er/file-{number}")), noise(number, number as usize * 37)).unwrap();
    }
    rustix::fs::setxattr(at("top/small"), "user.note", b"an attribute", XattrFlags::empty()).unwrap();
    fs::set_permissions(at("top/small"), PermissionsExt::from_mode(0o4751)).unwrap();
    fs::set_permissions(at("top/deep/er"), PermissionsExt::from_mode(0o1770)).unwrap();
    for name in ["top/small", "top/deep/large", "top/link", "top/deep/er", "top/deep", "top"] {
        let time = Timespec { tv_sec: 1_234_567_890, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, at(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    scratch
}

/// Everything below a folder, relative and sorted.
fn names(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(root).unwrap().to_path_buf());
            if path.symlink_metadata().unwrap().is_dir() {
                pending.push(path);
            }
        }
    }
    found.sort();
    found
}

fn assert_same_trees(one: &Path, other: &Path) {
    assert_eq!(names(one), names(other));
    for name in names(one) {
        let (a, b) = (one.join(&name), other.join(&name));
        let (of_a, of_b) = (a.symlink_metadata().unwrap(), b.symlink_metadata().unwrap());
        let shown = name.display();
        assert_eq!(of_a.mode(), of_b.mode(), "{shown}");
        assert_eq!((of_a.uid(), of_a.gid()), (of_b.uid(), of_b.gid()), "{shown}");
        assert_eq!((of_a.mtime(), of_a.mtime_nsec()), (of_b.mtime(), of_b.mtime_nsec()), "{shown}");
        if !of_a.is_dir() {
            assert_eq!((of_a.nlink(), of_a.len()), (of_b.nlink(), of_b.len()), "{shown}");
        }
        if of_a.is_file() {
            assert!(fs::read(&a).unwrap() == fs::read(&b).unwrap(), "{shown}");
        } else if of_a.is_symlink() {
            assert_eq!(fs::read_link(&a).unwrap(), fs::read_link(&b).unwrap(), "{shown}");
        }
    }
}

fn xattr(path: &Path, name: &str) -> Vec<u8> {
    let mut value = [0; 100];
    let len = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
    value[..len].to_vec()
}

#[test]
fn a_tree_goes_into_pools_of_all_layouts_and_comes_back() {
    let source = tree();
    for (options, vdevs, disks) in [
        ("-O recordsize=1M", "a", 1),
        ("-O atime=off", "mirror a b log c", 3),
        ("-o ashift=12 -O compression=zstd", "raidz a b c", 3),
        ("-O xattr=on -O checksum=sha512", "raidz2 a b c d special mirror e f g", 7),
        ("-O checksum=skein -O compression=gzip-1", "raidz3 a b c d e", 5),
        ("-f -o compatibility=openzfs-2.3", "a mirror b c", 3),
        ("-o ashift=12 -O recordsize=1M", "draid1:2d:1s a b c d e spare f", 6),
        ("-O recordsize=64K", "draid2 a b c d e f", 6),
    ] {
        println!("{options} {vdevs}");
        let disks = Disks::new(&vec![128; disks]);
        assert_eq!(disks.cenote(&format!("zpool create {options} {POOL} {vdevs}"), &[]), "");
        disks.cenote("cp -r", &[&source.path().join("top"), Path::new("tank:/")]);
        disks.zdb_is_content();
        assert!(disks.cenote("zpool import", &[]).contains("state: ONLINE"));
        disks.cenote("verify tank", &[]);

        let back = tempfile::tempdir().unwrap();
        disks.cenote("cp -r tank:/top", &[back.path()]);
        assert_same_trees(&source.path().join("top"), &back.path().join("top"));
        assert_eq!(xattr(&back.path().join("top/small"), "user.note"), b"an attribute");
        let small = back.path().join("top/small").metadata().unwrap();
        assert_eq!(small.ino(), back.path().join("top/deep/linked").metadata().unwrap().ino());
        let sparse = disks.cenote("stat tank:/top/sparse", &[]);
        assert!(sparse.contains("40000000"), "{sparse}");
    }
}

#[test]
fn files_are_replaced_made_and_removed() {
    let source = tree();
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    let top = source.path().join("top");
    disks.cenote("mkdir -p tank:/x/y", &[]);
    disks.cenote("cp -r", &[&top, Path::new("tank:/x/y")]);
    // Existing files stay unless -f is given.
    fs::write(top.join("small"), b"other words\n").unwrap();
    let refused = disks.run("cp", &[&top.join("small"), Path::new("tank:/x/y/top/small")]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("exists already"));
    assert_eq!(disks.cenote("cat tank:/x/y/top/small", &[]), "some words\n");
    disks.cenote("cp -f", &[&top.join("small"), Path::new("tank:/x/y/top/small")]);
    assert_eq!(disks.cenote("cat tank:/x/y/top/small", &[]), "other words\n");
    // The other name of the old file keeps the old content.
    assert_eq!(disks.cenote("cat tank:/x/y/top/deep/linked", &[]), "some words\n");
    disks.fails("cp -r tank:/x other:/z", "from one pool to another");
    disks.fails("--txg 5 mkdir tank:/z", "only the newest state");
    disks.cenote("cp --no-metadata", &[&top.join("small"), Path::new("tank:/plain")]);
    assert!(disks.cenote("stat tank:/plain", &[]).contains("(-rw-r--r--)"));
    disks.fails("rm tank:/x", "tank:/x: directory not empty");
    disks.fails("rm tank:/nothing", "tank:/nothing: /nothing: no such file or directory");
    disks.fails("rm tank:/plian", "did you mean /plain?");
    disks.fails("mkdir tank:/x", "tank:/x: file exists");
    disks.cenote("rm -r tank:/x/y/top", &[]);
    assert_eq!(disks.cenote("ls tank:/x/y", &[]), "");
    disks.zdb_is_content();
    // All space of the removed files is free again.
    let allocated = disks.cenote("zpool list -Hp -o allocated tank", &[]);
    assert!(allocated.trim().parse::<u64>().unwrap() < 2 * MIB, "{allocated}");
}

#[test]
fn devices_that_are_in_use_are_refused() {
    let disks = Disks::new(&[128, 128, 64, 200]);
    disks.fails("zpool create tank a b raidz", "requires at least");
    disks.fails("zpool create mirror a", "reserved");
    disks.fails("zpool create 1st a", "begin with a letter");
    disks.fails("zpool create tank nothing", "nothing");
    disks.fails("zpool create tank mirror a d", "different sizes");
    disks.fails("zpool create tank d mirror a b", "mismatched");
    disks.fails("zpool create tank draid:3d a b c", "dRAID data");
    disks.fails("zpool create tank a spare mirror b c", "single");
    disks.fails("zpool create -o ashift=8 tank a", "ashift");
    File::create(disks.path().join("tiny")).unwrap().set_len(63 * MIB).unwrap();
    disks.fails("zpool create tank tiny", "64 MiB");

    let drawn = disks.cenote("zpool create -n tank mirror a b", &[]);
    assert!(drawn.contains("mirror-0"), "{drawn}");
    disks.fails("zpool list", "no pool");
    disks.cenote("zpool create tank mirror a b", &[]);
    disks.fails("zpool create other a", "part of exported pool 'tank'");
    disks.fails("zpool create tank c", "beside these files");
    disks.cenote("zpool destroy tank", &[]);
    disks.fails("zpool sync tank", "was destroyed");
    disks.cenote("zpool create other a", &[]);
    disks.fails("zpool labelclear a", "exported");
    assert_eq!(disks.cenote("zpool labelclear -f a", &[]), "4 labels cleared\n");
    assert_eq!(disks.cenote("zpool labelclear b", &[]), "4 labels cleared\n");
    for features in ["-d", "-d -o feature@lz4_compress=enabled"] {
        disks.cenote(&format!("zpool create -f {features} tank a"), &[]);
        disks.cenote("zfs create -o compression=on tank/home", &[]);
        disks.cenote("zfs snapshot -r tank@now", &[]);
        disks.zdb_is_content();
        disks.cenote("zpool destroy tank", &[]);
    }
    disks.cenote("zpool create -m /srv/tank -R /mnt -t now -o altroot=/mnt tank a", &[]);
    assert_eq!(disks.cenote("zfs get -H -o value,source mountpoint tank", &[]), "/srv/tank\tlocal\n");
    disks.cenote("zpool sync", &[]);
    disks.cenote("zpool export -a", &[]);
    let looked = disks.cenote("zpool import -t -N -R /mnt -o cachefile=none tank other", &[]);
    assert!(looked.contains("pool: tank"), "{looked}");
    disks.cenote("zpool import -F -n tank", &[]);
    assert_eq!(disks.cenote("zpool list -H -o name", &[]), "tank\n");
}

#[test]
fn nobody_writes_to_a_pool_that_another_has() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    let device = File::open(disks.path().join("a")).unwrap();
    rustix::fs::flock(&device, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    disks.fails("zpool sync tank", "in use");
    disks.fails("zpool create -f tank a", "in use");
    disks.cenote("zpool list", &[]);
    drop(device);
    disks.cenote("zpool sync tank", &[]);
}

#[test]
fn a_full_pool_says_so_and_stays_whole() {
    let source = tempfile::tempdir().unwrap();
    for number in 0..8 {
        fs::write(source.path().join(number.to_string()), noise(number, 20_000_000)).unwrap();
    }
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    let copied = disks.run("cp -r", &[source.path(), Path::new("tank:/in")]);
    let errors = String::from_utf8_lossy(&copied.stderr);
    assert!(!copied.status.success() && errors.contains("full"), "{errors}");
    disks.zdb_is_content();
    let back = tempfile::tempdir().unwrap();
    disks.cenote("cp -r tank:/in", &[back.path()]);
    let there = names(&back.path().join("in"));
    assert!(!there.is_empty());
    for name in there {
        let (a, b) = (source.path().join(&name), back.path().join("in").join(&name));
        assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{}", name.display());
    }
    disks.cenote("rm -r tank:/in", &[]);
    disks.zdb_is_content();
}

#[test]
fn what_another_machine_left_in_use_is_taken_over_only_by_force() {
    assert_only_force_takes_over("unclean-zil");
}

#[needs("unclean-unlinked")]
#[test]
fn files_without_names_on_a_pool_in_use_change_nothing_about_that() {
    assert_only_force_takes_over("unclean-unlinked");
}

fn assert_only_force_takes_over(name: &str) {
    let golden = golden(name);
    let pool = golden.facts().pool;
    let disks = Disks::new(&[]);
    for image in fs::read_dir(golden.images()).unwrap().map(|entry| entry.unwrap().path()) {
        fs::copy(&image, disks.path().join(image.file_name().unwrap())).unwrap();
    }
    disks.fails(&format!("zpool sync {pool}"), "export -f");
    disks.cenote(&format!("zpool export -f {pool}"), &[]);
    disks.cenote(&format!("zpool sync {pool}"), &[]);
}

#[test]
fn copies_within_a_pool_share_blocks_with_their_sources() {
    let source = tree();
    let disks = Disks::new(&[256]);
    disks.cenote("zpool create -o compatibility=openzfs-2.3 tank a", &[]);
    disks.cenote("zfs create -o recordsize=32K tank/other", &[]);
    disks.cenote("cp -r", &[&source.path().join("top"), Path::new("tank:/")]);
    disks.cenote("zfs snapshot tank@then", &[]);
    disks.cenote("cp -r tank:/top tank/other:/", &[]);
    disks.cenote("rm -r tank:/top", &[]);
    disks.cenote("cp -r tank@then:/top tank:/found", &[]);
    disks.zdb_is_content();
    let saved: u64 = disks.cenote("zpool get -Hp -o value bclonesaved tank", &[]).trim().parse().unwrap();
    assert!(saved > 6_000_000, "{saved}");
    let into_itself = disks.run("cp -r tank:/found tank:/found/deep", &[]);
    assert!(String::from_utf8_lossy(&into_itself.stderr).contains("into itself"), "{into_itself:?}");

    let back = tempfile::tempdir().unwrap();
    disks.cenote("zfs destroy tank@then", &[]);
    for (round, (copy, other)) in
        [("tank/other:/top", "tank:/found"), ("tank:/found", "tank/other:/top")].iter().enumerate()
    {
        let place = back.path().join(round.to_string());
        disks.cenote(&format!("cp -r {copy}"), &[&place]);
        assert_same_trees(&source.path().join("top"), &place);
        assert_eq!(xattr(&place.join("small"), "user.note"), b"an attribute");
        if round == 0 {
            disks.cenote(&format!("rm -r {other}"), &[]);
            disks.zdb_is_content();
            disks.cenote("cp -r tank/other:/top tank:/found", &[]);
        }
    }
    disks.cenote("verify tank", &[]);
    disks.zdb_is_content();
}

/// A POSIX ACL in the encoding of its extended attribute: user 1000 may read.
const ACL: [(u16, u16, u32); 5] = [(1, 6, !0), (2, 4, 1000), (4, 4, !0), (0x10, 4, !0), (0x20, 4, !0)];

#[test]
fn a_copy_that_drops_acls_fails_and_says_which() {
    let disks = Disks::new(&[256]);
    disks.cenote("zpool create tank", &[&disks.path().join("a")]);
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("guarded");
    fs::write(&file, b"for some").unwrap();
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in ACL {
        acl.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    if rustix::fs::setxattr(&file, "system.posix_acl_access", &acl, XattrFlags::empty()).is_err() {
        println!("skipped: no ACLs on this file system");
        return;
    }
    let output = disks.run("cp", &[&file, Path::new("tank:/")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("system.posix_acl_access") && errors.contains("acltype=posix"), "{errors}");
    assert_eq!(disks.cenote("cat tank:/guarded", &[]), "for some");

    disks.cenote("zfs set acltype=posix tank", &[]);
    disks.cenote("cp -f", &[&file, Path::new("tank:/")]);
    disks.cenote("cp --no-metadata", &[&file, Path::new("tank:/plain")]);
}

#[test]
fn a_copy_of_a_file_system_leaves_datasets_below_out_and_says_so_or_takes_them() {
    let disks = Disks::new(&[256]);
    disks.cenote("zpool create tank", &[&disks.path().join("a")]);
    for dataset in ["home", "home/ann", "work"] {
        disks.cenote(&format!("zfs create tank/{dataset}"), &[]);
        disks.cenote(&format!("mkdir tank/{dataset}:/in-it"), &[]);
    }
    disks.cenote("zfs create -V 8M tank/volume", &[]);
    disks.cenote("mkdir tank:/plain", &[]);
    let copy = |name: &str| disks.path().join(name);

    let output = disks.run("cp -r tank:/", &[&copy("without")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.contains("not copied: tank/home, tank/volume, tank/work"),
        "{errors}"
    );
    assert!(copy("without/plain").is_dir() && !copy("without/home").exists());
    let quiet = disks.run("cp -r tank:/plain", &[&copy("folder")]);
    assert!(quiet.stderr.is_empty());

    let output = disks.run("cp -r --datasets tank:/", &[&copy("with")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.contains("tank/volume: skipped"), "{errors}");
    for folder in ["with/plain", "with/home/in-it", "with/home/ann/in-it", "with/work/in-it"] {
        assert!(copy(folder).is_dir(), "{folder}");
    }
    disks.cenote("zfs snapshot -r tank/home@s", &[]);
    disks.cenote("cp -r --datasets tank/home@s:/.", &[disks.path()]);
    assert!(copy("in-it").is_dir() && copy("ann/in-it").is_dir());
    disks.fails("cp -r --datasets tank/home:/ tank/work:/", "out of a pool");
}
