//! A pool of the daemon whose devices fail beyond redundancy: it reports so, waits, and resumes or is
//! exported.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::serve::bench::{Bench, can_mount, zdb_finds_nothing};

/// No command waits longer.
const SOON: Duration = Duration::from_secs(10);

/// A pool with the file `before`, on a daemon with HTTP.
fn bench(options: &str) -> Bench {
    let mut bench = Bench::new(&["a"]);
    bench.signal(Signal::TERM);
    bench.start(&["--http", &format!("unix:{}", bench.text("http"))]);
    bench.done(&format!("zpool create -m {} {options}tank a", bench.text("mnt")));
    fs::write(bench.path("mnt/before"), vec![1; 1_000_000]).unwrap();
    bench.done("zpool sync tank");
    bench
}

/// Writes a file, and makes it durable.
fn sync_file(bench: &Bench, name: &str) -> JoinHandle<std::io::Result<()>> {
    let path = bench.path("mnt").join(name);
    spawn(move || {
        let mut file = File::create(path)?;
        file.write_all(&vec![2; 1_000_000])?;
        file.sync_all()
    })
}

/// All I/O to the device fails, until a txg fails with it.
fn suspend(bench: &Bench) -> JoinHandle<std::io::Result<()>> {
    bench.done("inject tank a --error write,flush");
    let waits = sync_file(bench, "meanwhile");
    bench.until("zpool list -H -o health tank", |health| health == "SUSPENDED\n");
    waits
}

/// Runs a line within its time limit.
fn soon(line: &str, run: impl FnOnce(&str) -> String) -> String {
    let begun = Instant::now();
    let output = run(line);
    assert!(begun.elapsed() < SOON, "{line} took {:?}", begun.elapsed());
    output
}

fn metrics(bench: &Bench) -> String {
    let mut stream = UnixStream::connect(bench.path("http")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: cenote\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_suspended_pool_says_so_everywhere_and_goes_on_when_it_is_cleared() {
    if !can_mount() {
        return;
    }
    let mut bench = bench("");
    let waits = suspend(&bench);
    let look = |line: &str, wanted: &str| {
        let shown = soon(line, |line| bench.done(line));
        assert!(shown.contains(wanted), "{line}: {shown}");
    };
    look("zpool status tank", "state: SUSPENDED");
    look("zpool status -x", "ZFS-8000-HC");
    look("zpool status --json tank", "\"state\":\"SUSPENDED\"");
    look("zpool get -H -o value health tank", "SUSPENDED\n");
    look("zpool list -j", "SUSPENDED");
    look("zfs list -H -o name", "tank\n");
    look("zpool events -v", "pool_failmode = \"wait\"");
    let shown = soon("metrics", |_| metrics(&bench));
    for line in [
        "zfs_pool_health{pool=\"tank\"} 6\n",
        "node_zfs_zpool_state{state=\"suspended\",zpool=\"tank\"} 1\n",
        "cenote_pool_suspended{pool=\"tank\"} 1\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    for line in ["zfs snapshot tank@x", "zfs create tank/x", "zfs set atime=off tank", "zpool scrub tank"] {
        let refused = soon(line, |line| bench.fails(line));
        assert!(refused.contains("pool I/O is currently suspended"), "{line}: {refused}");
    }
    let refused = soon("zpool clear tank", |line| bench.fails(line));
    assert!(refused.contains("cannot clear errors for tank: I/O error"), "{refused}");
    assert!(!waits.is_finished());

    bench.done("inject --clear");
    soon("zpool clear tank", |line| bench.done(line));
    waits.join().unwrap().unwrap();
    // The writes that the device missed are resilvered, though no other device has them.
    bench.done("zpool wait -t resilver tank");
    look("zpool status -x", "all pools are healthy");
    look("zpool events", "resource.org.cenote.pool_resumed");
    assert!(metrics(&bench).contains("cenote_pool_suspended{pool=\"tank\"} 0\n"));
    bench.done("zfs snapshot tank@after");
    bench.done("zpool export tank");
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn a_pool_that_is_to_continue_gives_programs_errors() {
    if !can_mount() {
        return;
    }
    let bench = bench("");
    bench.done("zpool set failmode=continue tank");
    let waits = suspend(&bench);
    assert!(waits.join().unwrap().is_err());
    assert!(bench.done("zpool status tank").contains("ZFS-8000-JQ"));
    assert!(fs::write(bench.path("mnt/more"), "more").is_err());
    assert!(fs::read(bench.path("mnt/before")).unwrap() == vec![1; 1_000_000]);
    bench.done("inject --clear");
    bench.done("zpool clear tank");
    sync_file(&bench, "more").join().unwrap().unwrap();
}

#[test]
fn a_pool_that_is_to_panic_ends_the_daemon() {
    if !can_mount() {
        return;
    }
    let mut bench = bench("-o failmode=panic ");
    bench.done("inject tank a --error write,flush");
    let waits = sync_file(&bench, "meanwhile");
    let mut daemon = bench.daemon.take().unwrap();
    let status = daemon.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()));
    assert!(waits.join().unwrap().is_err());
}

#[test]
fn a_suspended_pool_is_exported_by_force_alone_and_imported_again() {
    if !can_mount() {
        return;
    }
    let mut bench = bench("");
    let open = File::open(bench.path("mnt/before")).unwrap();
    let waits = suspend(&bench);
    let refused = soon("zpool export tank", |line| bench.fails(line));
    assert!(refused.contains("pool I/O is currently suspended"), "{refused}");
    assert!(fs::exists(bench.path("mnt/before")).unwrap(), "it was unmounted");
    let line = ["zpool", "export", "-f", "tank"];
    let begun = Instant::now();
    let output = bench.run(&line);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("are lost"), "{told}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(waits.join().unwrap().is_err());
    assert_eq!(bench.done("zpool list -H"), "");
    assert!(!fs::exists(bench.path("mnt/before")).unwrap());
    // A program still has a file of the old mount open.
    bench.done("zpool import tank");
    assert!(fs::read(bench.path("mnt/before")).unwrap() == vec![1; 1_000_000]);
    sync_file(&bench, "after").join().unwrap().unwrap();
    drop(open);
    bench.done("zpool export tank");
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn the_daemon_ends_though_a_pool_is_suspended() {
    if !can_mount() {
        return;
    }
    let mut bench = bench("");
    let waits = suspend(&bench);
    let begun = Instant::now();
    bench.signal(Signal::TERM);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(waits.join().unwrap().is_err());
    // The next daemon opens it again.
    bench.start(&[]);
    assert!(fs::read(bench.path("mnt/before")).unwrap() == vec![1; 1_000_000]);
}

#[test]
fn programs_that_wait_for_a_suspended_pool_can_be_killed() {
    if !can_mount() {
        return;
    }
    let bench = bench("");
    let waits = suspend(&bench);
    let of = format!("of={}", bench.text("mnt/killed"));
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", &of, "bs=64k", "count=1", "conv=fsync"]).stderr(Stdio::null());
    let mut dd = dd.spawn().unwrap();
    sleep(Duration::from_secs(1));
    assert!(dd.try_wait().unwrap().is_none(), "it does not wait");
    dd.kill().unwrap();
    let begun = Instant::now();
    dd.wait().unwrap();
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    bench.done("inject --clear");
    bench.done("zpool clear tank");
    waits.join().unwrap().unwrap();
}

/// The work begun by a command waits on in a txg; a program that reads the command's output does not.
#[test]
fn a_command_that_gives_up_lets_go_of_its_output() {
    if !can_mount() {
        return;
    }
    let bench = bench("");
    bench.done("inject tank a --hang write,flush");
    let waits = sync_file(&bench, "meanwhile");
    // Until the device counts as unresponsive.
    sleep(Duration::from_secs(6));
    let why = soon("zfs snapshot tank@late", |line| bench.fails(line));
    assert!(why.contains("has not answered"), "{why}");
    bench.done("inject --clear tank");
    waits.join().unwrap().unwrap();
    bench.until("zfs list -H -o name -t snapshot", |names| names == "tank@late\n");
}
