//! Mounts that end badly or never begin.

use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::disks::noise;
use crate::mount::mounted::Pool;

#[test]
fn nothing_that_was_fsynced_is_lost_when_the_program_is_killed() {
    let Some(pool) = Pool::new() else { return };
    for round in 0..3u64 {
        let mut mounted = pool.mount("tank");
        let dir = mounted.path(&format!("dir-{round}"));
        fs::create_dir(&dir).unwrap();
        for n in 0..20u64 {
            let mut file = File::create_new(dir.join(format!("{n}"))).unwrap();
            file.write_all(&noise(round * 100 + n, 50_000)).unwrap();
            file.sync_all().unwrap();
        }
        fs::rename(dir.join("0"), dir.join("renamed")).unwrap();
        File::open(&dir).unwrap().sync_all().unwrap();
        fs::write(dir.join("unsynced"), noise(9, 100_000)).unwrap();
        mounted.kill();
        // The dead mount is still there; the next mount removes it.
        assert!(fs::write(mounted.path("dir-0/dead"), "").is_err());
    }
    let mounted = pool.mount("tank");
    for round in 0..3 {
        for n in 0..20 {
            let name = if n == 0 { "renamed".into() } else { n.to_string() };
            let content = fs::read(mounted.path(&format!("dir-{round}/{name}"))).unwrap();
            assert!(content == noise(round * 100 + n, 50_000), "dir-{round}/{name}");
        }
        assert!(!mounted.path(&format!("dir-{round}/0")).exists());
    }
    mounted.unmount();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(pool.dir().to_str().unwrap()), "dead mounts are left: {table}");
    pool.disks.cenote("verify tank", &[]);
    pool.disks.zdb_is_content();
}

#[test]
fn who_keeps_a_mount_busy_is_named() {
    let Some(pool) = Pool::new() else { return };
    let mut mounted = pool.mount("tank");
    let file = File::create(mounted.path("file")).unwrap();
    mounted.signal(Signal::INT);
    let until = Instant::now() + Duration::from_secs(60);
    let me = format!("({})", std::process::id());
    while !(pool.said().contains("is in use by") && pool.said().contains(&me)) {
        assert!(Instant::now() < until, "{}", pool.said());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(file);
    mounted.signal(Signal::INT);
    let status = mounted.wait();
    assert!(status.success(), "{status}: {}", pool.said());
    assert!(fs::read_dir(pool.dir()).unwrap().next().is_none(), "unmounted");
}

#[test]
fn a_place_that_does_not_serve_is_refused_before_the_pool_is_touched() {
    let Some(pool) = Pool::new() else { return };
    let before = pool.disks.images();
    let refused = |words: &str| {
        let status = pool.start(words).wait().unwrap();
        assert!(!status.success());
        pool.said()
    };
    fs::remove_dir(pool.dir()).unwrap();
    assert!(refused("tank").contains("mnt: can't be mounted on: No such file or directory"));
    fs::write(pool.dir(), "").unwrap();
    assert!(refused("tank").contains("mnt: can't be mounted on: it is not a directory"));
    fs::remove_file(pool.dir()).unwrap();
    fs::create_dir(pool.dir()).unwrap();
    assert!(refused("-o sideways tank").contains("-o sideways: use ro, rw"));
    assert!(refused("tank/none").contains("tank/none"));
    assert!(refused("dozer").contains("dozer"));
    assert!(pool.disks.images() == before);
    pool.disks.cenote("zfs set overlay=off tank", &[]);
    fs::write(pool.dir().join("file"), "").unwrap();
    assert!(refused("tank").contains("mnt: not empty, and overlay=off"));

    // No other program can use a mounted pool.
    fs::remove_file(pool.dir().join("file")).unwrap();
    let mounted = pool.mount("tank");
    pool.disks.fails("zfs create tank/new", "is in use");
    mounted.unmount();
}
