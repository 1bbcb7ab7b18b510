//! Writes that the kernel delays (`--writeback`): the promises that hold.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use rustix::fs::{OFlags, major, minor};
use rustix::io::Errno;

use crate::common::disks::noise;
use crate::mount::mounted::Pool;

const DELAYED: &str = "--writeback tank";

#[test]
fn what_was_made_durable_survives_though_writes_are_delayed() {
    let Some(pool) = Pool::new() else { return };
    let mut mounted = pool.mount(DELAYED);
    let open = |name: &str, flags: OFlags| {
        let flags = i32::try_from(flags.bits()).unwrap();
        OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(mounted.path(name)).unwrap()
    };
    open("all", OFlags::SYNC).write_all(&noise(1, 5000)).unwrap();
    open("data", OFlags::DSYNC).write_all(&noise(2, 5000)).unwrap();
    let mut file = open("fsync", OFlags::empty());
    file.write_all(&noise(3, 300_000)).unwrap();
    file.sync_all().unwrap();
    let mut file = open("fdatasync", OFlags::empty());
    file.write_all(&noise(4, 300_000)).unwrap();
    file.sync_data().unwrap();
    drop(file);
    mounted.kill();
    drop(mounted);
    let mounted = pool.mount(DELAYED);
    for (name, content) in [
        ("all", noise(1, 5000)),
        ("data", noise(2, 5000)),
        ("fsync", noise(3, 300_000)),
        ("fdatasync", noise(4, 300_000)),
    ] {
        assert!(fs::read(mounted.path(name)).unwrap() == content, "{name}");
    }
    mounted.unmount();
    pool.disks.zdb_is_content();
}

#[test]
fn delayed_writes_are_in_the_pool_after_the_unmount_with_their_times() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount(DELAYED);
    fs::write(mounted.path("file"), noise(1, 300_000)).unwrap();
    let changed = fs::metadata(mounted.path("file")).unwrap().modified().unwrap();
    mounted.unmount();
    let mounted = pool.mount("tank");
    assert!(fs::read(mounted.path("file")).unwrap() == noise(1, 300_000));
    assert_eq!(fs::metadata(mounted.path("file")).unwrap().modified().unwrap(), changed);
    mounted.unmount();
}

#[test]
fn a_lack_of_room_for_delayed_writes_is_reported_by_fsync() {
    let Some(pool) = Pool::new() else { return };
    pool.disks.cenote("zfs set quota=16M tank", &[]);
    let mounted = pool.mount(DELAYED);
    let mut file = File::create(mounted.path("file")).unwrap();
    let refused = (0..64).map(|n| file.write_all(&noise(n, 1 << 20))).find_map(Result::err);
    let refused = refused.or_else(|| file.sync_all().err()).unwrap();
    assert_eq!(refused.raw_os_error(), Some(Errno::DQUOT.raw_os_error()));
    drop(file);
    mounted.unmount();
}

#[test]
fn the_kernel_may_delay_more_than_its_default() {
    let Some(pool) = Pool::new() else { return };
    for (words, percent) in [("tank", "1"), (DELAYED, "5")] {
        let mounted = pool.mount(words);
        let device = fs::metadata(pool.dir()).unwrap().dev();
        let kind = if major(device) == 0 { "" } else { "-fuseblk" };
        let path = format!("/sys/class/bdi/{}:{}{kind}/max_ratio", major(device), minor(device));
        match fs::read_to_string(&path) {
            Ok(share) => assert_eq!(share.trim(), percent, "{words}"),
            Err(error) => println!("skipped: {path}: {error}"),
        }
        mounted.unmount();
    }
}
