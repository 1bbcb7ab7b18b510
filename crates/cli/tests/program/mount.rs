//! `cenote mount` with real mounts: the view of programs, durability, and messages when mounting fails.
//!
//! Needs root and /dev/fuse; without them the tests print so (`CENOTE_REQUIRE_FUSE=1`: fail).

mod aio;
mod delayed;
mod mapped;
mod mounted;
mod names;
mod trouble;
mod writing;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::disks::noise;
use mounted::Pool;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, SeekFrom, XattrFlags};

#[test]
fn what_was_done_is_there_after_a_remount_and_without_a_mount() {
    is_there_after_a_remount("tank");
}

#[test]
fn it_is_the_same_without_io_uring() {
    is_there_after_a_remount("--no-fuse-io-uring tank");
}

fn is_there_after_a_remount(words: &str) {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount(words);
    let big = noise(1, 3 << 20);
    fs::create_dir_all(mounted.path("a/b/c")).unwrap();
    fs::write(mounted.path("a/b/big"), &big).unwrap();
    fs::write(mounted.path("a/small"), "some words").unwrap();
    fs::hard_link(mounted.path("a/small"), mounted.path("a/b/again")).unwrap();
    fs::rename(mounted.path("a/small"), mounted.path("moved")).unwrap();
    std::os::unix::fs::symlink("a/b/big", mounted.path("link")).unwrap();
    fs::set_permissions(mounted.path("moved"), fs::Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::chown(mounted.path("a/b/c"), Some(7), Some(8)).unwrap();
    fs::write(mounted.path("gone"), "x").unwrap();
    fs::remove_file(mounted.path("gone")).unwrap();
    let file = OpenOptions::new().write(true).open(mounted.path("a/b/big")).unwrap();
    file.set_len(2_000_001).unwrap();
    drop(file);
    let stat = fs::metadata(mounted.path("moved")).unwrap();
    mounted.unmount();

    assert_eq!(pool.disks.cenote("cat tank:/moved", &[]), "some words");
    pool.disks.cenote("verify tank", &[]);
    pool.disks.zdb_is_content();

    let mounted = pool.mount(words);
    assert!(fs::read(mounted.path("link")).unwrap() == big[..2_000_001]);
    let again = fs::metadata(mounted.path("a/b/again")).unwrap();
    assert_eq!((again.ino(), again.nlink(), again.mode() & 0o7777), (stat.ino(), 2, 0o4751));
    assert_eq!((again.mtime(), again.mtime_nsec()), (stat.mtime(), stat.mtime_nsec()));
    assert_eq!((again.ctime(), again.ctime_nsec()), (stat.ctime(), stat.ctime_nsec()));
    let dir = fs::metadata(mounted.path("a/b/c")).unwrap();
    assert_eq!((dir.uid(), dir.gid()), (7, 8));
    assert!(!mounted.path("gone").exists());
    mounted.unmount();
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_open() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let mut file = File::create_new(mounted.path("file")).unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(mounted.path("file")).unwrap();
    file.write_all(b" and after").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let mut back = [0; 16];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"before and after");
    drop(file);

    // A file created without a name gets one later, by its number in /proc.
    let mode = Mode::from_bits_retain(0o640);
    let unnamed =
        rustix::fs::open(&mounted.dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode).unwrap();
    rustix::io::write(&unnamed, b"late").unwrap();
    let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&unnamed));
    rustix::fs::linkat(CWD, &proc, CWD, mounted.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    rustix::io::write(&unnamed, b" and later").unwrap();
    let lost =
        rustix::fs::open(&mounted.dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode).unwrap();
    rustix::io::write(&lost, &noise(2, 1 << 20)).unwrap();
    drop((unnamed, lost));
    assert_eq!(fs::metadata(mounted.path("named")).unwrap().mode() & 0o7777, 0o640);
    mounted.unmount();

    assert_eq!(pool.disks.cenote("cat tank:/named", &[]), "late and later");
    // Nothing remains of the other unnamed files: only the two named ones, and no leak.
    assert_eq!(pool.disks.cenote("scan --format tsv --columns path tank", &[]).matches("named").count(), 1);
    pool.disks.zdb_is_content();
}

#[test]
fn mapped_memory_and_the_file_are_one() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let content = noise(3, 300_000);
    fs::write(mounted.path("file"), &content).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(mounted.path("file")).unwrap();
    mapped::with_mapped(&file, content.len(), |bytes| {
        assert!(bytes == content);
        bytes[200_000..200_005].copy_from_slice(b"there");
        file.write_all_at(b"here", 100_000).unwrap();
        assert_eq!(&bytes[100_000..100_004], b"here");
    });
    drop(file);
    mounted.unmount();
    let mounted = pool.mount("-o ro tank");
    let mut expected = content;
    expected[200_000..200_005].copy_from_slice(b"there");
    expected[100_000..100_004].copy_from_slice(b"here");
    assert!(fs::read(mounted.path("file")).unwrap() == expected);
    let refused = fs::write(mounted.path("new"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    mounted.unmount();
}

#[test]
fn reads_past_the_cache_see_what_was_written_through_it() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let content = noise(4, 1 << 20);
    fs::write(mounted.path("file"), &content).unwrap();
    let direct = OFlags::DIRECT.bits() as i32;
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(direct).open(mounted.path("file")).unwrap();
    let mut part = vec![0; 8192];
    file.read_exact_at(&mut part, 4096).unwrap();
    assert!(part == content[4096..12_288]);
    file.write_all_at(&noise(5, 8192), 8192).unwrap();
    assert!(fs::read(mounted.path("file")).unwrap()[8192..16_384] == noise(5, 8192));
    drop(file);
    mounted.unmount();
}

#[test]
fn holes_are_made_found_and_kept() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let record = 128 << 10;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(mounted.path("file"))
        .unwrap();
    let content = noise(6, 8 * record);
    file.write_all_at(&content, 0).unwrap();
    let allocate = |flags, at: usize, len: usize| {
        rustix::fs::fallocate(&file, flags, at as u64, len as u64).unwrap();
    };
    allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 2 * record, 2 * record);
    allocate(FallocateFlags::ZERO_RANGE, 5 * record + 1, 10);
    allocate(FallocateFlags::KEEP_SIZE, 8 * record, record);
    assert_eq!(file.metadata().unwrap().len(), 8 * record as u64);
    allocate(FallocateFlags::empty(), 8 * record, record);
    file.sync_all().unwrap();
    let seek = |at: SeekFrom| rustix::fs::seek(&file, at).map(|at| at as usize);
    assert_eq!(seek(SeekFrom::Hole(0)), Ok(2 * record));
    assert_eq!(seek(SeekFrom::Data(2 * record as u64)), Ok(4 * record));
    assert_eq!(seek(SeekFrom::Hole(4 * record as u64)), Ok(8 * record));
    assert_eq!(seek(SeekFrom::Data(8 * record as u64)), Err(rustix::io::Errno::NXIO));
    drop(file);
    mounted.unmount();
    let mounted = pool.mount("tank");
    let mut expected = content;
    expected[2 * record..4 * record].fill(0);
    expected[5 * record + 1..5 * record + 11].fill(0);
    expected.resize(9 * record, 0);
    assert!(fs::read(mounted.path("file")).unwrap() == expected);
    mounted.unmount();
}

#[test]
fn a_copy_within_the_file_system_is_equal() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let content = noise(7, 5 << 20);
    fs::write(mounted.path("from"), &content).unwrap();
    fs::copy(mounted.path("from"), mounted.path("whole")).unwrap();
    assert!(fs::read(mounted.path("whole")).unwrap() == content);
    let (from, to) = (File::open(mounted.path("from")).unwrap(), File::create(mounted.path("part")).unwrap());
    let (mut at, mut to_at) = (12_345, 777);
    while at < 2_000_000 {
        let left = 2_000_000 - at as usize;
        let copied = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), left).unwrap();
        assert!(copied > 0);
    }
    assert!(fs::read(mounted.path("part")).unwrap()[777..] == content[12_345..2_000_000]);
    drop((from, to));
    mounted.unmount();
    pool.disks.zdb_is_content();
}

#[test]
fn extended_attributes_and_acls_are_kept_and_obeyed() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&dir, name, value, XattrFlags::empty()).unwrap();
    };
    let get = |path: &std::path::Path, name: &str| {
        let mut value = vec![0; 70_000];
        let len = rustix::fs::getxattr(path, name, &mut value)?;
        value.truncate(len);
        Ok::<_, rustix::io::Errno>(value)
    };
    let long = noise(8, 60_000);
    set("user.short", b"value");
    set("user.long", &long);
    assert_eq!(get(&dir, "user.short").unwrap(), b"value");
    assert!(get(&dir, "user.long").unwrap() == long);
    assert_eq!(get(&dir, "user.none"), Err(rustix::io::Errno::NODATA));
    rustix::fs::removexattr(&dir, "user.short").unwrap();

    // A default ACL: owner rwx, user 12 r-x, group r-x, mask r-x, others nothing. It replaces the umask.
    let entry = |tag: u16, rights: u16, id: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes()[..], &id.to_le_bytes()[..]].concat()
    };
    let acl = [
        2u32.to_le_bytes().to_vec(),
        entry(1, 7, u32::MAX),
        entry(2, 5, 12),
        entry(4, 5, u32::MAX),
        entry(0x10, 5, u32::MAX),
        entry(0x20, 0, u32::MAX),
    ]
    .concat();
    set("system.posix_acl_default", &acl);
    fs::write(dir.join("file"), "x").unwrap();
    assert_eq!(fs::metadata(dir.join("file")).unwrap().mode() & 0o777, 0o640);
    let inherited = get(&dir.join("file"), "system.posix_acl_access").unwrap();
    assert!(inherited.windows(8).any(|window| window == entry(2, 5, 12)), "{inherited:?}");
    mounted.unmount();

    let mounted = pool.mount("tank");
    assert!(get(&mounted.path("dir"), "user.long").unwrap() == long);
    assert_eq!(get(&mounted.path("dir"), "system.posix_acl_default").unwrap(), acl);
    // User 12 may read the file by the ACL alone, user 13 may not.
    let reads = |uid: u32| {
        let cat = std::process::Command::new("cat").arg(mounted.path("dir/file")).uid(uid).gid(99).output();
        cat.unwrap().status.success()
    };
    fs::set_permissions(mounted.path("dir"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(pool.dir().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(reads(12) && !reads(13));
    mounted.unmount();
}

#[test]
fn a_lock_excludes_others() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let open =
        || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(mounted.path("f"));
    let (one, other) = (open().unwrap(), open().unwrap());
    one.lock().unwrap();
    assert!(other.try_lock().is_err());
    one.unlock().unwrap();
    other.try_lock().unwrap();
    drop((one, other));
    mounted.unmount();
}

#[test]
fn a_reader_sees_times_as_the_properties_say() {
    let Some(pool) = Pool::new() else { return };
    for (option, moves) in [("strictatime", true), ("noatime", false)] {
        let mounted = pool.mount(&format!("-o {option} tank"));
        fs::write(mounted.path("file"), "x").unwrap();
        let mut before = fs::metadata(mounted.path("file")).unwrap().atime_nsec();
        for _ in 0..2 {
            std::thread::sleep(std::time::Duration::from_millis(1100));
            fs::read(mounted.path("file")).unwrap();
            let after = fs::metadata(mounted.path("file")).unwrap().atime_nsec();
            assert_eq!(after != before, moves, "{option}");
            before = after;
        }
        mounted.unmount();
    }
}

#[test]
fn snapshots_are_folders() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    fs::create_dir(mounted.path("dir")).unwrap();
    fs::write(mounted.path("dir/file"), "old").unwrap();
    mounted.unmount();
    pool.disks.cenote("zfs snapshot tank@monday", &[]);
    let mounted = pool.mount("tank");
    fs::write(mounted.path("dir/file"), "new").unwrap();
    fs::remove_dir(mounted.path("nothing")).unwrap_err();
    let old = mounted.path(".zfs/snapshot/monday/dir/file");
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
    assert_eq!(fs::read_to_string(mounted.path("dir/file")).unwrap(), "new");
    let mut names = names::list(&mounted.path(".zfs/snapshot"));
    assert_eq!(names, ["monday"]);
    names = names::list(&mounted.path(".zfs/snapshot/monday/dir"));
    assert_eq!(names, ["file"]);
    assert!(!names::list(&mounted.dir).contains(&".zfs".into()), "hidden");
    let refused = fs::write(&old, "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    mounted.unmount();

    let mounted = pool.mount("tank@monday");
    assert_eq!(fs::read_to_string(mounted.path("dir/file")).unwrap(), "old");
    mounted.unmount();
}

#[test]
fn appended_and_truncated_files_have_the_right_ends() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let mut file = OpenOptions::new().append(true).create(true).open(mounted.path("log")).unwrap();
    for n in 0..1000 {
        writeln!(file, "line {n}").unwrap();
    }
    let len = file.metadata().unwrap().len();
    file.set_len(len - 3).unwrap();
    file.write_all(b"end").unwrap();
    file.set_len(len + 5).unwrap();
    let mut text = Vec::new();
    let mut reader = File::open(mounted.path("log")).unwrap();
    reader.seek(std::io::SeekFrom::Start(len - 9)).unwrap();
    reader.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"line 9end\0\0\0\0\0");
    drop((file, reader));
    mounted.unmount();
}

#[test]
fn after_an_asynchronous_direct_write_nobody_reads_what_was_there_before() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    const BYTES: usize = 640 << 10;
    let path = mounted.path("file");
    // The alignment required by direct writes.
    let mut room = vec![0; BYTES + 4096];
    let aligned = room.as_ptr().align_offset(4096);
    let data = &mut room[aligned..aligned + BYTES];
    fs::write(&path, &*data).unwrap();
    let direct = OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().write(true).custom_flags(direct).open(&path).unwrap();
    let aio = aio::Aio::new();
    let is_over = AtomicBool::new(false);
    // Without this, a panic before the readers are told to end would wait for them forever.
    let stale = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    fs::read(&path).unwrap();
                }
            });
        }
        let stale = (1..=300).find(|round| {
            data.fill(*round as u8);
            aio.write_all_at(&file, data, 0);
            fs::read(&path).unwrap() != data
        });
        is_over.store(true, Ordering::Relaxed);
        stale
    });
    assert_eq!(stale, None, "the round after which a read shows what was there before");
    drop(file);
    mounted.unmount();
}

/// Since Linux 6.18, the kernel reports `sync` if the mount lies on a block device.
#[test]
fn what_sync_has_seen_is_there_although_the_program_is_killed() {
    let Some(pool) = Pool::new() else { return };
    let mut mounted = pool.mount("tank");
    let kind = fs::read_to_string("/proc/mounts").unwrap();
    let own = kind.lines().find(|line| line.contains(pool.dir().to_str().unwrap())).unwrap();
    if !own.contains("fuseblk.") {
        return println!("skipped: this kernel, or a container, lets `sync` not through: {own}");
    }
    assert!(own.starts_with("tank "), "{own}");
    fs::write(mounted.path("first"), "by syncfs").unwrap();
    rustix::fs::syncfs(File::open(pool.dir()).unwrap()).unwrap();
    fs::write(mounted.path("second"), "by sync").unwrap();
    rustix::fs::sync();
    mounted.kill();
    drop(mounted);
    let mounted = pool.mount("tank");
    assert_eq!(fs::read_to_string(mounted.path("first")).unwrap(), "by syncfs");
    assert_eq!(fs::read_to_string(mounted.path("second")).unwrap(), "by sync");
    mounted.unmount();

    let mounted = pool.mount("--no-loop tank");
    let table = fs::read_to_string("/proc/mounts").unwrap();
    assert!(table.contains(&format!("tank {} fuse.", pool.dir().display())), "{table}");
    mounted.unmount();
}
