//! Properties that a mount consults, set while it is mounted and in use: each takes effect at once.

use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::serve::bench::{Bench, can_mount};

const NOBODY: u32 = 65534;
const ACCESS: &str = "system.posix_acl_access";

/// A pool mounted at `mnt`, which others may enter.
fn mounted() -> Bench {
    let bench = Bench::new(&["a", "b"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    fs::set_permissions(bench.folder.path(), Permissions::from_mode(0o755)).unwrap();
    bench
}

fn as_nobody(words: &[&str], path: &Path) -> Output {
    Command::new(words[0]).args(&words[1..]).arg(path).uid(NOBODY).gid(NOBODY).output().unwrap()
}

/// An ACL that lets user `NOBODY` read: version 2, then owner, user, group, mask, others.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 4, NOBODY), (4, 0, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn acltype_takes_effect_at_once_in_either_direction() {
    if !can_mount() {
        return;
    }
    let bench = mounted();
    let file = bench.path("mnt/f");
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    // An open file keeps the file system busy, so it can't be remounted.
    let _held = File::open(&file).unwrap();
    let set = || rustix::fs::setxattr(&file, ACCESS, &acl(), XattrFlags::empty());
    let can_read = || as_nobody(&["cat"], &file).status.success();
    set().unwrap_err();
    assert!(!can_read());
    for _ in 0..2 {
        bench.done("zfs set acltype=posix tank");
        set().unwrap();
        assert!(can_read(), "the ACL counts");
        bench.done("zfs set acltype=off tank");
        assert!(!can_read(), "the ACL counts no more");
        assert!(set().is_err());
        assert!(!list(&file).contains(ACCESS));
    }
    bench.done("zfs set acltype=posix tank");
    assert!(can_read(), "it is still there");
}

fn list(file: &Path) -> String {
    let mut names = [0; 1000];
    let len = rustix::fs::listxattr(file, &mut names[..]).unwrap();
    String::from_utf8_lossy(&names[..len]).into_owned()
}

#[test]
fn names_of_extended_attributes_have_a_namespace_that_the_mount_allows() {
    if !can_mount() {
        return;
    }
    let bench = mounted();
    let file = bench.path("mnt/f");
    fs::write(&file, "x").unwrap();
    let set = |name: &str| rustix::fs::setxattr(&file, name, b"v", XattrFlags::empty());
    for unknown in ["q", "foo.q", "system.foo", "user.", "trusted."] {
        assert!(set(unknown).is_err(), "{unknown}");
    }
    set("user.a").unwrap();
    set("trusted.a").unwrap();
    bench.done("zfs mount -o remount,noxattr tank");
    set("user.b").unwrap_err();
    set("trusted.b").unwrap();
    assert!(!list(&file).contains("user.") && list(&file).contains("trusted.b"), "{}", list(&file));
    bench.done("zfs mount -o remount,xattr tank");
    assert!(list(&file).contains("user.a"));
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(&file, "user.a", &mut value[..]).unwrap(), 1);
    bench.done("zfs set xattr=off tank");
    assert!(rustix::fs::getxattr(&file, "user.a", &mut value[..]).is_err());
}

#[test]
fn labels_are_unsupported_until_a_file_has_an_extended_attribute() {
    const LABEL: &str = "security.selinux";
    // With SELinux, the kernel answers itself.
    if !can_mount() || Path::new("/sys/fs/selinux/enforce").exists() {
        return;
    }
    let bench = mounted();
    let (file, other) = (bench.path("mnt/f"), bench.path("mnt/g"));
    fs::write(&file, "x").unwrap();
    fs::write(&other, "x").unwrap();
    let label = |file: &Path| rustix::fs::getxattr(file, LABEL, &mut [0; 100][..]);
    assert_eq!(label(&file), Err(Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::getxattr(&file, "user.a", &mut [0; 8][..]), Err(Errno::NODATA));
    let set = |name: &str| rustix::fs::setxattr(&other, name, b"v", XattrFlags::empty()).unwrap();
    set("user.a");
    assert_eq!((label(&file), label(&other)), (Err(Errno::NODATA), Err(Errno::NODATA)));
    set(LABEL);
    assert_eq!((label(&file), label(&other)), (Err(Errno::NODATA), Ok(1)));
    bench.done("zfs unmount tank");
    bench.done("zfs mount tank");
    assert_eq!((label(&file), label(&other)), (Err(Errno::NODATA), Ok(1)));
}

#[test]
fn access_times_follow_atime_and_what_the_reader_asks_for() {
    const O_NOATIME: i32 = 0o1_000_000;
    if !can_mount() {
        return;
    }
    let bench = mounted();
    bench.done("zfs set atime=on relatime=off tank");
    let (file, empty, link) = (bench.path("mnt/f"), bench.path("mnt/empty"), bench.path("mnt/link"));
    fs::write(&file, "x").unwrap();
    fs::write(&empty, "").unwrap();
    std::os::unix::fs::symlink("f", &link).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
    let backdate = |path: &Path| {
        File::options().write(true).open(path).unwrap().set_times(fs::FileTimes::new().set_accessed(old))
    };
    let read = |path: &Path, flags: i32| {
        let mut file = File::options().read(true).custom_flags(flags).open(path).unwrap();
        file.read_to_end(&mut Vec::new()).unwrap();
        fs::symlink_metadata(path).unwrap().atime()
    };
    backdate(&file).unwrap();
    backdate(&empty).unwrap();
    assert_eq!(read(&file, O_NOATIME), 5);
    assert!(read(&file, 0) > 5);
    assert!(read(&empty, 0) > 5, "of an empty file");
    let before = fs::symlink_metadata(&link).unwrap().atime();
    std::thread::sleep(Duration::from_millis(1100));
    fs::read_link(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().atime() > before, "of a symbolic link");
    bench.done("zfs set atime=off tank");
    backdate(&file).unwrap();
    assert_eq!(read(&file, 0), 5);
}

#[test]
fn properties_of_storing_take_effect_with_the_next_write() {
    if !can_mount() {
        return;
    }
    let bench = mounted();
    let mut kept = File::create(bench.path("mnt/kept")).unwrap();
    let blocks = |name: &str| {
        bench.done("zpool sync tank");
        fs::metadata(bench.path(name)).unwrap().blocks()
    };
    bench.done("zfs set compression=off recordsize=8K tank");
    let text = vec![b'x'; 1 << 20];
    kept.write_all(&text).unwrap();
    kept.sync_all().unwrap();
    // The kernel reports cached sizes until it asks again.
    bench.until("stat tank:/kept", |_| blocks("mnt/kept") >= 2048);
    assert_eq!(fs::metadata(bench.path("mnt/kept")).unwrap().blksize(), 8 << 10);
    bench.done("zfs set compression=lz4 recordsize=64K sync=always primarycache=none tank");
    kept.seek(SeekFrom::Start(0)).unwrap();
    kept.write_all(&text).unwrap();
    kept.sync_all().unwrap();
    bench.until("stat tank:/kept", |_| blocks("mnt/kept") < 1024);
    fs::write(bench.path("mnt/new"), &text).unwrap();
    assert_eq!(fs::metadata(bench.path("mnt/new")).unwrap().blksize(), 64 << 10);
    assert!(bench.fails("zfs set casesensitivity=mixed tank").contains("casesensitivity"));
}

#[test]
fn set_id_bits_go_when_another_user_changes_a_file_by_whatever_call() {
    if !can_mount() {
        return;
    }
    let bench = mounted();
    let file = bench.path("mnt/f");
    for change in [
        &["fallocate", "-l", "1M"][..],
        &["fallocate", "-n", "-l", "1M"],
        &["fallocate", "-p", "-l", "4096"],
        &["fallocate", "-z", "-l", "4096"],
        &["truncate", "-s", "100"],
    ] {
        fs::write(&file, vec![1; 8192]).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o6777)).unwrap();
        let mode = || fs::metadata(&file).unwrap().mode() & 0o7777;
        assert!(Command::new(change[0]).args(&change[1..]).arg(&file).status().unwrap().success());
        let by_root = mode();
        let changed = as_nobody(change, &file);
        assert!(changed.status.success(), "{change:?}: {changed:?}");
        assert_eq!((by_root, mode()), (0o6777, 0o777), "{change:?}");
    }
}

#[test]
fn quotas_of_owners_hold_for_room_clones_and_rollbacks() {
    if !can_mount() {
        return;
    }
    let bench = mounted();
    let dir = bench.path("mnt/d");
    fs::create_dir(&dir).unwrap();
    let chattr = Command::new("chattr").args(["+P", "-p", "1001"]).arg(&dir).output();
    if chattr.is_ok_and(|done| done.status.success()) {
        bench.done("zfs set projectquota@1001=100M projectobjquota@1001=1000 tank");
        let room = rustix::fs::statvfs(&dir).unwrap();
        assert_eq!((room.f_blocks * room.f_frsize, room.f_files), (100 << 20, 1000));
        let whole = rustix::fs::statvfs(bench.path("mnt")).unwrap();
        assert!(whole.f_blocks * whole.f_frsize > 100 << 20);
    }
    bench.done("zfs snapshot tank@s");
    bench.done("zfs clone -o userquota@7=1M tank@s tank/clone");
    assert_eq!(bench.get("userquota@7", "tank/clone"), "1M");
    bench.done(&format!("zpool create -m {} -O userquota@7=2M other b", bench.text("other")));
    assert_eq!(bench.get("userquota@7", "other"), "2M");
    bench.done("zfs create -o compression=off tank/r");
    let file = File::create(bench.path("mnt/r/f")).unwrap();
    file.write_all_at(&vec![7; 4 << 20], 0).unwrap();
    drop(file);
    bench.done("zfs snapshot tank/r@s");
    fs::remove_file(bench.path("mnt/r/f")).unwrap();
    bench.done("zpool sync tank");
    bench.done("zfs set refquota=2M tank/r");
    assert!(bench.fails("zfs rollback tank/r@s").contains("out of space"));
    bench.done("zfs set refquota=8M tank/r");
    bench.done("zfs rollback tank/r@s");
    assert!(bench.path("mnt/r/f").exists());
    assert!(bench.fails("zfs set longname=on tank").contains("feature@longname"));
}

#[test]
fn a_project_is_that_of_attributes_too_and_the_root_counts_its_snapshots() {
    if !can_mount() {
        return;
    }
    let bench = mounted();
    bench.done("zfs create -o xattr=dir tank/x");
    let file = bench.path("mnt/x/f");
    fs::write(&file, "x").unwrap();
    for n in 0..3 {
        rustix::fs::setxattr(&file, format!("trusted.{n}"), b"v", XattrFlags::empty()).unwrap();
    }
    let chattr = Command::new("chattr").args(["-p", "1001"]).arg(&file).output();
    if chattr.is_ok_and(|done| done.status.success()) {
        bench.done("zpool sync tank");
        let used = bench.done("zfs projectspace -Hp -o name,objused tank/x");
        assert!(used.lines().any(|line| line == "1001\t5"), "{used}");
    }
    let links = || fs::metadata(bench.path("mnt/x")).unwrap().nlink();
    assert_eq!(links(), 2);
    bench.done("zfs set snapdir=visible tank/x");
    assert_eq!(links(), 3);
}
