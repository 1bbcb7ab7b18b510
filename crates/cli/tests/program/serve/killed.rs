//! A killed daemon ends, and no request waits for it any more.

use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::serve::bench::{Bench, PATIENCE, can_mount};

/// Clients that change a directory through the mount hold its lock while they wait for the daemon. Commands
/// that change the same directory notify the kernel, which waits for that lock.
#[test]
fn it_ends_though_its_threads_wait_for_its_own_mounts() {
    const ROUNDS: usize = 6;
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    fs::write(bench.path("d/file"), "content").unwrap();
    for round in 0..ROUNDS {
        let has_ended = AtomicBool::new(false);
        let program = bench.programs();
        thread::scope(|scope| {
            for client in 0..4 {
                let (dir, has_ended) = (bench.path("mnt"), &has_ended);
                scope.spawn(move || {
                    while !has_ended.load(Ordering::Relaxed) {
                        let path = dir.join(format!("c{client}"));
                        File::create(&path).ok();
                        fs::remove_file(&path).ok();
                    }
                });
            }
            for client in 0..2 {
                let (program, has_ended) = (&program, &has_ended);
                scope.spawn(move || {
                    while !has_ended.load(Ordering::Relaxed) {
                        let name = format!("tank:/c{client}");
                        program().args(["cp", "-f", "file", &name]).output().ok();
                        program().args(["zfs", "create", "tank/sub"]).output().ok();
                        program().args(["zfs", "destroy", "tank/sub"]).output().ok();
                    }
                });
            }
            thread::sleep(Duration::from_millis(300 + 100 * round as u64));
            // A daemon that does not end would keep the disks, and its clients would wait forever.
            bench.signal(Signal::KILL);
            has_ended.store(true, Ordering::Relaxed);
        });
        bench.start(&[]);
        fs::write(bench.path("mnt/after"), "served again").unwrap();
    }
}

#[test]
fn its_guard_is_replaced_if_it_ends() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    let daemon = Pid::from_child(bench.daemon.as_ref().unwrap());
    let guard = guard_of(daemon).expect("nobody guards the daemon");
    kill_process(guard, Signal::KILL).unwrap();
    let begun = Instant::now();
    while guard_of(daemon).is_none_or(|next| next == guard) {
        assert!(begun.elapsed() < PATIENCE, "nobody guards the daemon any more");
        thread::sleep(Duration::from_millis(50));
    }
    // Signals meant for the daemon do not end its guard once the guard runs.
    let catches = |signal: Signal| {
        let of = format!("/proc/{}/status", guard_of(daemon).unwrap().as_raw_nonzero());
        let status = fs::read_to_string(of).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap_or("0");
        u64::from_str_radix(caught, 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
    };
    while !catches(Signal::TERM) {
        assert!(begun.elapsed() < PATIENCE, "the guard ends when the daemon is asked to");
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(guard_of(daemon).unwrap(), Signal::TERM).unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(guard_of(daemon).is_some());
}

/// A service manager kills all processes of a service: no guard is left to abort the connections.
#[test]
fn the_next_daemon_takes_over_from_one_that_was_killed_with_its_guard() {
    const ROUNDS: usize = 4;
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.done("zfs create tank/gone");
    for round in 0..ROUNDS {
        let has_ended = AtomicBool::new(false);
        let program = bench.programs();
        thread::scope(|scope| {
            for client in 0..4 {
                let (dir, has_ended, program) = (bench.path("mnt"), &has_ended, &program);
                scope.spawn(move || {
                    while !has_ended.load(Ordering::Relaxed) {
                        let path = dir.join(format!("c{client}"));
                        File::create(&path).ok();
                        fs::remove_file(&path).ok();
                        let name = format!("tank:/c{client}");
                        program().args(["cp", "-f", "a", &name]).output().ok();
                    }
                });
            }
            thread::sleep(Duration::from_millis(300 + 100 * round as u64));
            let mut daemon = bench.daemon.take().unwrap();
            let guard = guard_of(Pid::from_child(&daemon)).unwrap();
            kill_process(guard, Signal::KILL).unwrap();
            daemon.kill().unwrap();
            has_ended.store(true, Ordering::Relaxed);
            let begun = Instant::now();
            bench.start(&[]);
            assert!(begun.elapsed() < PATIENCE);
            daemon.wait().unwrap();
        });
        fs::write(bench.path("mnt/after"), "served again").unwrap();
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let here = table.lines().filter(|line| line.contains(&bench.text("mnt"))).count();
        assert_eq!(here, 2, "mounts are left: {table}");
    }
}

#[test]
fn a_second_daemon_touches_nothing_of_the_first_one() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    bench.signal(Signal::TERM);
    bench.start(&["--http", "127.0.0.1:0"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    let before = ["http-token", "pools.json"].map(|name| fs::read(bench.path(name)).unwrap());
    let refused = bench.fails(&format!("serve -d . --socket {} --http 127.0.0.1:0", bench.text("other")));
    let daemon = bench.daemon.as_ref().unwrap().id();
    assert!(refused.contains(&format!("process {daemon}")), "{refused}");
    let after = ["http-token", "pools.json"].map(|name| fs::read(bench.path(name)).unwrap());
    assert!(before == after && !bench.path("other").exists());
}

/// The process that guards another one.
fn guard_of(daemon: Pid) -> Option<Pid> {
    let names = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut pids = names.filter_map(|name| Pid::from_raw(name.parse().ok()?));
    pids.find(|pid| {
        let of = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_nonzero()));
        let parent = format!("PPid:\t{}\n", daemon.as_raw_nonzero());
        of("status").is_ok_and(|status| status.contains(&parent) && !status.contains("State:\tZ"))
            && of("cmdline").is_ok_and(|words| {
                let mut words = words.split('\0').skip(1);
                words.next() == Some("guard") && words.next().is_none_or(str::is_empty)
            })
    })
}
