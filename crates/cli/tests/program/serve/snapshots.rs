//! Snapshots below a mount, and mounts whose tree is exchanged.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::serve::bench::{Bench, can_mount, zdb_finds_nothing};

fn names(dir: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn snapshots_are_made_renamed_and_destroyed_as_directories() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    fs::write(bench.path("mnt/x"), "one").unwrap();
    let place = bench.path("mnt/.zfs/snapshot");
    assert_eq!(names(&bench.path("mnt/.zfs")), ["shares", "snapshot"]);
    assert_eq!(names(&bench.path("mnt/.zfs/shares")), [""; 0]);

    fs::create_dir(place.join("a")).unwrap();
    assert_eq!(fs::read_to_string(place.join("a/x")).unwrap(), "one");
    assert!(bench.done("zfs list -H -o name -t snapshot").contains("tank@a"));
    assert_eq!(fs::create_dir(place.join("a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(fs::create_dir(place.join("a%b")).is_err());
    assert!(fs::create_dir(bench.path("mnt/.zfs/shares/x")).is_err());

    fs::rename(place.join("a"), place.join("b")).unwrap();
    assert_eq!(names(&place), ["b"]);
    assert_eq!(fs::read_to_string(place.join("b/x")).unwrap(), "one");
    assert!(!place.join("a").exists());

    bench.done("zfs hold keep tank@b");
    assert_eq!(fs::remove_dir(place.join("b")).unwrap_err().kind(), ErrorKind::ResourceBusy);
    bench.done("zfs release keep tank@b");
    fs::remove_dir(place.join("b")).unwrap();
    assert_eq!(names(&place), [""; 0]);
    assert_eq!(fs::remove_dir(place.join("b")).unwrap_err().kind(), ErrorKind::NotFound);

    // Snapshots created by commands are listed, although the kernel has cached the folder.
    bench.done("zfs snapshot tank@listed");
    let begun = std::time::Instant::now();
    while names(&place) != ["listed"] && begun.elapsed() < crate::serve::bench::PATIENCE {
        std::thread::yield_now();
    }
    assert_eq!(names(&place), ["listed"]);
    bench.done("zfs destroy tank@listed");
    while !names(&place).is_empty() && begun.elapsed() < crate::serve::bench::PATIENCE {
        std::thread::yield_now();
    }

    // Only users with the right to change the pool.
    fs::set_permissions(bench.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let made = Command::new("mkdir").arg(place.join("c")).uid(65534).gid(65534).output().unwrap();
    assert!(!made.status.success());
    assert_eq!(names(&place), [""; 0]);

    // An open file keeps its snapshot. Destroyed snapshots disappear at once.
    bench.done("zfs snapshot tank@c");
    let mut open = File::open(place.join("c/x")).unwrap();
    for verb in ["destroy", "destroy -d"] {
        let refused = bench.fails(&format!("zfs {verb} tank@c"));
        assert!(refused.contains("in use"), "{refused}");
    }
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one");
    drop(open);
    bench.done("zfs destroy tank@c");
    assert!(!place.join("c").exists());
    fs::write(bench.path("mnt/x"), "two").unwrap();
    bench.done("zfs snapshot tank@c");
    assert_eq!(fs::read_to_string(place.join("c/x")).unwrap(), "two");

    // A promoted clone takes over the snapshots.
    let other = bench.text("other");
    bench.done(&format!("zfs clone -o mountpoint={other} tank@c tank/clone"));
    bench.done("zfs promote tank/clone");
    assert!(!place.join("c").exists());
    assert_eq!(fs::read_to_string(bench.path("other/.zfs/snapshot/c/x")).unwrap(), "two");
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn a_rollback_shows_at_once_and_keeps_what_is_still_there() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    let path = |name: &str| bench.path("mnt").join(name);
    fs::create_dir_all(path("dir/sub")).unwrap();
    fs::write(path("kept"), "before").unwrap();
    fs::write(path("removed"), "removed").unwrap();
    fs::write(path("dir/moved"), "moved").unwrap();
    bench.done("zfs snapshot tank@s");

    let kept = File::options().read(true).write(true).open(path("kept")).unwrap();
    let unlinked = File::open(path("removed")).unwrap();
    fs::write(path("kept"), "after, and longer").unwrap();
    fs::remove_file(path("removed")).unwrap();
    fs::write(path("removed"), "another").unwrap();
    fs::rename(path("dir/moved"), path("dir/sub/there")).unwrap();
    fs::write(path("dir/new"), "new").unwrap();
    let new = File::open(path("dir/new")).unwrap();
    let ino = fs::metadata(path("kept")).unwrap().ino();
    // The kernel caches all of it.
    for name in ["kept", "removed", "dir/new", "dir/sub/there"] {
        fs::read(path(name)).unwrap();
    }
    assert!(!path("dir/moved").exists());
    let mount = bench.done("zfs mount");

    bench.done("zfs rollback tank@s");
    assert_eq!(bench.done("zfs mount"), mount);
    assert_eq!(names(&path("dir")), ["moved", "sub"]);
    assert_eq!(names(&path("")), ["dir", "kept", "removed"]);
    assert_eq!(fs::read_to_string(path("kept")).unwrap(), "before");
    assert_eq!(fs::read_to_string(path("removed")).unwrap(), "removed");
    assert_eq!(fs::read_to_string(path("dir/moved")).unwrap(), "moved");
    assert!(!path("dir/new").exists() && !path("dir/sub/there").exists());

    // The same file is still open; a removed file is stale; a file that lost its name has it again.
    assert_eq!(kept.metadata().unwrap().ino(), ino);
    kept.write_all_at(b"B", 0).unwrap();
    assert_eq!(fs::read_to_string(path("kept")).unwrap(), "Before");
    let stale = new.read_at(&mut [0; 4], 0).unwrap_err();
    assert_eq!(stale.raw_os_error(), Some(rustix::io::Errno::STALE.raw_os_error()));
    let mut text = [0; 7];
    unlinked.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"removed");
    drop((unlinked, new, kept));
    assert_eq!(fs::read_to_string(path("removed")).unwrap(), "removed");

    // A refused command changes nothing.
    bench.done("zfs snapshot tank@t");
    fs::write(path("kept"), "third").unwrap();
    bench.fails("zfs rollback tank@s");
    assert_eq!(fs::read_to_string(path("kept")).unwrap(), "third");
    bench.signal(rustix::process::Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}
