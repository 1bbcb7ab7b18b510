//! Commands change a mounted file system: the kernel's caches, and files open there.
#![allow(unsafe_code)] // There is no other way to file handles.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::process::Signal;

use crate::serve::bench::{Bench, can_mount, zdb_finds_nothing};

/// A daemon with `tank` mounted at `mnt`.
fn mounted() -> Option<Bench> {
    let bench = can_mount().then(|| Bench::new(&["a"]))?;
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    Some(bench)
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn waiting_for_a_file_system_ends_when_its_removed_files_are_closed() {
    let Some(bench) = mounted() else { return };
    bench.done("zfs wait tank");
    let path = bench.path("mnt/f");
    fs::write(&path, "x").unwrap();
    let open = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let mut waiting = bench.program().args(["zfs", "wait", "-t", "deleteq", "tank"]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(waiting.try_wait().unwrap().is_none(), "the file is open");
    drop(open);
    assert!(waiting.wait().unwrap().success());
    assert!(bench.fails("zfs wait -t scrub tank").contains("invalid activity 'scrub'"));
    bench.done("zfs create -V 16M tank/v");
    assert!(bench.fails("zfs wait tank/v").contains("not a file system"));
    assert!(bench.fails("zfs wait tank/none").contains("dataset does not exist"));
}

#[test]
fn a_descriptor_of_a_removed_file_keeps_that_file_and_reaches_no_other() {
    const FILES: usize = 60;
    let Some(mut bench) = mounted() else { return };
    let dir = bench.path("mnt/mine");
    fs::create_dir(&dir).unwrap();
    (0..FILES).for_each(|n| fs::write(dir.join(n.to_string()), format!("my own {n}")).unwrap());
    // The search for free object numbers begins at the first one again.
    bench.signal(Signal::TERM);
    bench.start(&[]);
    let open = |n: usize| OpenOptions::new().read(true).write(true).open(dir.join(n.to_string())).unwrap();
    let files: Vec<File> = (0..FILES).map(open).collect();
    bench.done("rm -r tank:/mine");
    (0..3).for_each(|_| _ = bench.done("zpool sync tank"));
    fs::create_dir(bench.path("secrets")).unwrap();
    for n in 0..4 * FILES {
        fs::write(bench.path("secrets").join(n.to_string()), "a secret of somebody else").unwrap();
    }
    bench.done("cp -r ../secrets tank:/secrets");
    let others: BTreeSet<u64> = (0..4 * FILES)
        .map(|n| fs::metadata(bench.path(&format!("mnt/secrets/{n}"))).unwrap().ino())
        .collect();

    for (n, file) in files.iter().enumerate() {
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
        let mut text = String::new();
        (&*file).read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("my own {n}"));
        (&*file).write_all(b" still").unwrap();
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
        let mut end = [0; 6];
        file.read_exact_at(&mut end, text.len() as u64).unwrap();
        assert_eq!(&end, b" still");
        let stat = file.metadata().unwrap();
        assert!(stat.nlink() == 0 && !others.contains(&stat.ino()), "{n}: {stat:?}");
    }
    for n in 0..4 * FILES {
        assert_eq!(bench.done(&format!("cat tank:/secrets/{n}")), "a secret of somebody else");
    }
    drop(files);
    bench.done("rm -r tank:/secrets");
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn a_file_without_a_name_outlives_commands_while_it_is_open() {
    let Some(mut bench) = mounted() else { return };
    let tmpfile = OFlags::TMPFILE.bits() as i32;
    let mut unnamed =
        OpenOptions::new().read(true).write(true).custom_flags(tmpfile).open(bench.path("mnt")).unwrap();
    unnamed.write_all(b"never named").unwrap();
    fs::write(bench.path("mnt/x"), "no longer named").unwrap();
    let unlinked = File::open(bench.path("mnt/x")).unwrap();
    fs::remove_file(bench.path("mnt/x")).unwrap();
    fs::write(bench.path("d/file"), "another").unwrap();
    for turn in 0..3 {
        bench.done(&format!("mkdir tank:/{turn}"));
        bench.done(&format!("cp file tank:/{turn}/file"));
        bench.done("zpool sync tank");
    }
    for (file, content) in [(&unnamed, "never named"), (&unlinked, "no longer named")] {
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
        let mut text = vec![0; content.len()];
        file.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(text, content.as_bytes());
    }
    drop((unnamed, unlinked));
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn names_and_content_are_right_when_a_command_returns() {
    let Some(bench) = mounted() else { return };
    let (root, at) = (bench.path("mnt"), |name: &str| bench.path("mnt").join(name));
    fs::write(bench.path("d/file"), "new content").unwrap();
    fs::write(at("replaced"), "old content, and longer").unwrap();
    fs::write(at("removed"), "removed").unwrap();
    let open = File::open(at("replaced")).unwrap();
    // The kernel caches all of it, negative entries included.
    assert!(fs::read(at("replaced")).is_ok() && fs::read(at("removed")).is_ok());
    assert!(!at("copied").exists() && !at("dir").exists());
    assert_eq!(names(&root), ["replaced", "removed"].map(String::from).into());
    let links = fs::metadata(&root).unwrap().nlink();

    bench.done("cp file tank:/copied");
    assert_eq!(fs::read_to_string(at("copied")).unwrap(), "new content");
    assert_eq!(File::create_new(at("copied")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    bench.done("mkdir -p tank:/dir/below");
    assert!(at("dir/below").is_dir());
    assert_eq!(fs::metadata(&root).unwrap().nlink(), links + 1);
    bench.done("cp -f file tank:/replaced");
    assert_eq!(fs::read_to_string(at("replaced")).unwrap(), "new content");
    bench.done("rm tank:/removed");
    assert!(!at("removed").exists());
    assert_eq!(names(&root), ["copied", "dir", "replaced"].map(String::from).into());
    File::create_new(at("removed")).unwrap();

    fadvise(&open, 0, None, Advice::DontNeed).unwrap();
    let mut old = [0; 23];
    open.read_exact_at(&mut old, 0).unwrap();
    assert_eq!(&old, b"old content, and longer");
    assert_eq!(open.metadata().unwrap().nlink(), 0);

    // A folder's attributes, too.
    fs::create_dir(bench.path("d/like")).unwrap();
    fs::set_permissions(bench.path("d/like"), std::os::unix::fs::PermissionsExt::from_mode(0o701)).unwrap();
    assert_ne!(fs::metadata(at("dir")).unwrap().mode() & 0o7777, 0o701);
    bench.done("cp -r like/. tank:/dir");
    assert_eq!(fs::metadata(at("dir")).unwrap().mode() & 0o7777, 0o701);
}

#[test]
fn a_rollback_shows_at_once_in_the_root_directory() {
    let Some(bench) = mounted() else { return };
    let at = |name: String| bench.path("mnt").join(name);
    let (kept, new) = (|n| at(format!("kept{n}")), |n| at(format!("new{n}")));
    for round in 0..4 {
        (0..8).for_each(|n| fs::write(kept(n), round.to_string()).unwrap());
        bench.done(&format!("zfs snapshot tank@{round}"));
        let modified = fs::metadata(bench.path("mnt")).unwrap().modified().unwrap();
        for n in 0..8 {
            fs::remove_file(kept(n)).unwrap();
            fs::write(new(n), "").unwrap();
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    (0..8).for_each(|n| _ = (kept(n).exists(), new(n).exists()));
                    names(&bench.path("mnt"));
                }
            });
            bench.done(&format!("zfs rollback tank@{round}"));
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(names(&bench.path("mnt")), (0..8).map(|n| format!("kept{n}")).collect());
        for n in 0..8 {
            assert_eq!(fs::read_to_string(kept(n)).unwrap(), round.to_string());
            assert!(!new(n).exists());
        }
        assert_eq!(fs::metadata(bench.path("mnt")).unwrap().modified().unwrap(), modified);
        bench.done(&format!("zfs destroy tank@{round}"));
    }
}

#[test]
fn a_descriptor_from_before_a_rollback_reaches_no_other_file() {
    let Some(bench) = mounted() else { return };
    let at = |name: &str| bench.path("mnt").join(name);
    fs::write(at("first"), "first").unwrap();
    bench.done("zfs snapshot tank@s");
    fs::remove_file(at("first")).unwrap();
    fs::write(at("later"), "later").unwrap();
    let later = OpenOptions::new().read(true).write(true).open(at("later")).unwrap();
    let number = later.metadata().unwrap().ino();
    bench.done("zfs rollback tank@s");
    bench.done("zpool sync tank");
    // Until one of these has the number of that file.
    for n in 0..200 {
        fs::write(at(&n.to_string()), "another").unwrap();
        let is_it = fs::metadata(at(&n.to_string())).unwrap().ino() == number;
        let refused = later.write_at(b"!", 0).unwrap_err();
        assert!([Some(5), Some(116)].contains(&refused.raw_os_error()), "{n}: {refused}");
        assert_eq!(fs::read_to_string(at(&n.to_string())).unwrap(), "another", "{n}");
        if is_it {
            return;
        }
    }
    panic!("no file has got the number {number}");
}

#[test]
fn what_is_mounted_below_outlives_rollbacks_and_removals() {
    let Some(mut bench) = mounted() else { return };
    bench.done("zfs create tank/before");
    fs::write(bench.path("mnt/before/file"), "of before").unwrap();
    bench.done("zfs snapshot tank@s");
    bench.done("zfs create tank/after");
    fs::write(bench.path("mnt/after/file"), "of after").unwrap();
    let open = File::open(bench.path("mnt/before/file")).unwrap();
    bench.done("zfs rollback tank@s");
    assert_eq!(fs::read_to_string(bench.path("mnt/before/file")).unwrap(), "of before");
    assert_eq!(fs::read_to_string(bench.path("mnt/after/file")).unwrap(), "of after");
    drop(open);
    fs::create_dir(bench.path("mnt/dir")).unwrap();
    bench.done(&format!("zfs set mountpoint={} tank/after", bench.text("mnt/dir/deep")));
    for path in ["/before", "/dir", "/dir/deep"] {
        assert!(bench.fails(&format!("rm -r tank:{path}")).contains("is mounted there"), "{path}");
    }
    assert_eq!(fs::read_to_string(bench.path("mnt/dir/deep/file")).unwrap(), "of after");
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn a_file_handle_means_the_same_file_after_a_restart() {
    let Some(mut bench) = mounted() else { return };
    let (mnt, file) = (bench.path("mnt"), bench.path("mnt/file"));
    let snapshot = |name: &str| mnt.join(format!(".zfs/snapshot/{name}/file"));
    fs::write(&file, "content of A").unwrap();
    bench.done("zfs snapshot tank@A");
    fs::write(&file, "content of B").unwrap();
    bench.done("zfs snapshot tank@B");
    fs::write(&file, "content now").unwrap();
    let paths = [snapshot("A"), snapshot("B"), file.clone()];
    let handles = paths.each_ref().map(|path| Handle::of(path));
    let gone = {
        bench.done("zfs snapshot tank@gone");
        let handle = Handle::of(&snapshot("gone"));
        bench.done("zfs destroy tank@gone");
        handle
    };
    bench.signal(Signal::TERM);
    bench.start(&[]);
    // Others are looked up first, and one may have the number of the deleted dataset.
    bench.done("zfs snapshot tank@C");
    assert_eq!(fs::read_to_string(snapshot("C")).unwrap(), "content now");
    assert_eq!(fs::read_to_string(snapshot("B")).unwrap(), "content of B");
    for (handle, content) in handles.iter().zip(["content of A", "content of B", "content now"]) {
        let mut text = String::new();
        handle.open(&mnt).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, content);
    }
    assert_eq!(gone.open(&mnt).unwrap_err().raw_os_error(), Some(116));
}

#[test]
fn commands_and_programs_in_one_directory_get_on() {
    let Some(mut bench) = mounted() else { return };
    fs::write(bench.path("d/file"), vec![7; 300_000]).unwrap();
    fs::create_dir(bench.path("mnt/dir")).unwrap();
    bench.done("zfs snapshot tank@s");
    let stop = AtomicBool::new(false);
    let until_stopped = |work: &dyn Fn(u32)| {
        let mut turn = 0;
        while !stop.load(Ordering::Relaxed) {
            work(turn);
            turn += 1;
        }
    };
    std::thread::scope(|scope| {
        for number in 0..3 {
            let path = bench.path(&format!("mnt/dir/{number}"));
            scope.spawn(move || {
                until_stopped(&|_| {
                    // Rollbacks remove all of it now and then.
                    fs::write(&path, vec![number; 100_000]).ok();
                    fs::read_dir(path.parent().unwrap()).map(|all| all.flatten().count()).ok();
                    if let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) {
                        file.set_len(10 << 20).ok();
                        rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).ok();
                        rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(1 << 20)).ok();
                    }
                    fs::remove_file(&path).ok();
                });
            });
        }
        for turn in 0..6 {
            bench.run(&["cp", "-f", "file", "tank:/dir/0"]);
            bench.run(&["cp", "file", &format!("tank:/dir/c{turn}")]);
            bench.run(&["rm", "tank:/dir/1"]);
            bench.done(&format!("mkdir -p tank:/dir/below/{turn}"));
            assert!(bench.path(&format!("mnt/dir/below/{turn}")).is_dir());
            bench.done("zfs rollback tank@s");
            assert!(!bench.path("mnt/dir/below").exists());
        }
        stop.store(true, Ordering::Relaxed);
    });
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

/// The handle by which NFS servers identify a file. `struct file_handle`: length and type (4 each), bytes.
#[repr(C)]
struct Handle {
    len: u32,
    kind: i32,
    bytes: [u8; 128],
}

unsafe extern "C" {
    fn name_to_handle_at(dir: i32, path: *const i8, handle: *mut Handle, mount: *mut i32, flags: i32) -> i32;
    fn open_by_handle_at(mount: i32, handle: *const Handle, flags: i32) -> i32;
}

impl Handle {
    fn of(path: &Path) -> Handle {
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        let (mut handle, mut mount) = (Handle { len: 128, kind: 0, bytes: [0; 128] }, 0);
        // SAFETY: the path ends in NUL, and the handle has as many bytes as it states.
        let done = unsafe { name_to_handle_at(-100, path.as_ptr().cast(), &mut handle, &mut mount, 0) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        handle
    }

    fn open(&self, mount: &Path) -> std::io::Result<File> {
        let mount = File::open(mount).unwrap();
        // SAFETY: the handle is as the kernel wrote it.
        let fd = unsafe { open_by_handle_at(mount.as_raw_fd(), self, OFlags::RDONLY.bits() as i32) };
        // SAFETY: this is the only owner of the descriptor.
        if fd < 0 { Err(std::io::Error::last_os_error()) } else { Ok(unsafe { File::from_raw_fd(fd) }) }
    }
}

#[test]
fn projects_of_files_are_set_where_they_are_mounted() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    let (mnt, outside) = (bench.path("mnt"), bench.path("outside"));
    bench.done(&format!("zpool create -m {} tank a", mnt.display()));
    fs::create_dir_all(mnt.join("build/deep")).unwrap();
    fs::write(mnt.join("build/deep/old"), vec![1; 100_000]).unwrap();
    fs::write(&outside, "").unwrap();
    std::os::unix::fs::symlink(&outside, mnt.join("build/link")).unwrap();
    let build = mnt.join("build").display().to_string();
    bench.done(&format!("zfs project -p 7 -s -r {build}"));
    fs::write(mnt.join("build/deep/new"), vec![2; 100_000]).unwrap();
    let listed = bench.done(&format!("zfs project -r {build}"));
    let mut lines: Vec<&str> = listed.lines().collect();
    lines.sort_unstable();
    let below = ["", "/deep", "/deep/new", "/deep/old"];
    assert_eq!(lines, below.map(|below| format!("    7 P {build}{below}")), "links are left alone");
    assert_eq!(bench.done(&format!("zfs project -d {build}")), format!("    7 P {build}\n"));
    bench.done("zpool sync tank");
    let space = bench.done("zfs projectspace -Hp -o name,used tank");
    let used = space.lines().find_map(|line| line.strip_prefix("7\t")?.parse::<u64>().ok());
    assert!(used.is_some_and(|used| used >= 1024), "files count: {space}");

    assert_eq!(bench.done(&format!("zfs project -c -r {build}")), "", "all is as it should be");
    bench.done(&format!("zfs project -p 0x8 {build}/deep/old"));
    let wrong = bench.done(&format!("zfs project -cr {build}"));
    assert_eq!(wrong, format!("{build}/deep/old - project ID is not set properly (8/7)\n"));
    assert_eq!(bench.done(&format!("zfs project -cr0 {build}")), format!("{build}/deep/old\0"));
    bench.done(&format!("zfs project -C -k {build}/deep/old"));
    assert!(bench.done(&format!("zfs project {build}/deep/old")).starts_with("    8 - "));
    bench.done(&format!("zfs project -C -r {build}"));
    let listed = bench.done(&format!("zfs project -r {build}"));
    assert!(
        listed.lines().count() == 4 && listed.lines().all(|line| line.starts_with("    0 - ")),
        "{listed}"
    );
    for (line, why) in [
        (format!("zfs project -d {build}/deep/old"), "-d and -r are for folders"),
        (format!("zfs project -k {build}"), "-C"),
        (format!("zfs project -p 4294967295 {build}"), "a project is less than"),
        (format!("zfs project {build}/nosuch"), "No such file"),
    ] {
        assert!(bench.fails(&line).contains(why), "{line}");
    }
}
