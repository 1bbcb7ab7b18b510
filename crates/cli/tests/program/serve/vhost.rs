//! Sockets of volumes for virtual machines. `proof/vhost-user` uses QEMU as their client.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::serve::bench::{Bench, PATIENCE};

/// Waits until a socket exists, or does not.
fn until(path: &Path, is_there: bool) {
    let begun = Instant::now();
    while path.exists() != is_there {
        assert!(begun.elapsed() < PATIENCE, "{}: {}", path.display(), !is_there);
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_volume_has_a_socket_as_long_as_it_is_served() {
    let mut bench = Bench::new(&["a"]);
    bench.done("zpool create -m none tank a");
    bench.done("zfs create -V 16M tank/v");
    bench.signal(Signal::TERM);
    let sockets = bench.path("sockets");
    bench.start(&["--vhost-user", &bench.text("sockets")]);
    until(&sockets.join("tank/v"), true);
    bench.done("zfs snapshot tank/v@one");
    bench.done("zfs set snapdev=visible tank/v");
    until(&sockets.join("tank/v@one"), true);
    bench.done("zfs set org.cenote:serve=off tank/v");
    until(&sockets.join("tank/v"), false);
    bench.done("zfs set org.cenote:serve=on tank/v");
    until(&sockets.join("tank/v"), true);
    bench.signal(Signal::TERM);
    assert!(!sockets.join("tank/v").exists(), "the daemon has ended");
}

#[test]
fn machines_that_come_and_go_leave_no_descriptors_behind() {
    let mut bench = Bench::new(&["a"]);
    bench.done("zpool create -m none tank a");
    bench.done("zfs create -V 16M tank/v");
    bench.signal(Signal::TERM);
    bench.start(&["--vhost-user", &bench.text("sockets")]);
    let socket = bench.path("sockets/tank/v");
    until(&socket, true);
    let daemon = bench.daemon.as_ref().unwrap().id();
    let descriptors = || std::fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().count();
    let visit = || {
        let mut machine = UnixStream::connect(&socket).unwrap();
        // VHOST_USER_GET_FEATURES, and its answer.
        machine.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        machine.read_exact(&mut [0; 20]).unwrap();
    };
    visit();
    let before = descriptors();
    (0..50).for_each(|_| visit());
    let begun = Instant::now();
    while descriptors() > before + 10 {
        assert!(begun.elapsed() < PATIENCE, "{before} descriptors, now {}", descriptors());
        sleep(Duration::from_millis(50));
    }
}
