//! Pools on disks of iSCSI targets: a daemon that serves volumes, and machines that reserve them.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::disks::noise;
use crate::serve::bench::{Bench, PATIENCE, zdb_finds_nothing};

const TARGET: &str = "iqn.2026-11.org.cenote:store:v";

/// A daemon that serves a volume.
struct Storage {
    bench: Bench,
    port: u16,
    accounts: Option<&'static str>,
}

impl Storage {
    fn new(accounts: Option<&'static str>) -> Storage {
        let mut bench = Bench::new(&["a"]);
        bench.done("zpool create -m none store a");
        bench.done("zfs create -s -V 160M -b 16k store/v");
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        bench.signal(Signal::TERM);
        let mut storage = Storage { bench, port, accounts };
        storage.start();
        storage
    }

    fn start(&mut self) {
        let portal = format!("--iscsi=127.0.0.1:{}", self.port);
        let Some(accounts) = self.accounts else { return self.bench.start(&[&portal, "--insecure"]) };
        let file = private(&self.bench, "accounts", accounts);
        self.bench.start(&[&portal, "--iscsi-accounts", &file]);
    }

    fn kill(&mut self) {
        self.bench.signal(Signal::KILL);
    }

    fn address(&self) -> String {
        format!("iscsi://127.0.0.1:{}/{TARGET}/0", self.port)
    }
}

/// Writes a file that only its owner may read; returns its path.
fn private(bench: &Bench, name: &str, text: &str) -> String {
    fs::write(bench.path(name), text).unwrap();
    fs::set_permissions(bench.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    bench.text(name)
}

/// A machine with this hostid, and no disk of its own but those named.
fn machine(hostid: &str, disks: &[&str]) -> Bench {
    let mut bench = Bench::new(disks);
    bench.signal(Signal::TERM);
    bench.start_as(hostid);
    bench
}

fn copy(bench: &Bench, seed: u64) {
    fs::write(bench.path("d/file"), noise(seed, 1_000_000)).unwrap();
    bench.done(&format!("cp file tank:/{seed}"));
}

#[test]
fn one_machine_has_the_pool_and_another_one_fences_it() {
    const FIRST: &str = "0x00cafe01";
    let mut storage = Storage::new(None);
    let address = storage.address();
    let mut first = machine(FIRST, &[]);
    first.done(&format!("zpool create -m none tank {address}"));
    let status = first.done("zpool status tank");
    assert!(status.contains(&address) && status.contains("state: ONLINE"), "{status}");
    copy(&first, 1);
    first.done("zpool sync tank");

    // A killed daemon gets its disk back at once, since its key tells that it has ended.
    first.signal(Signal::KILL);
    first.start_as(FIRST);
    assert!(first.done("zpool status tank").contains("state: ONLINE"));
    let record = fs::read_to_string(first.path("pools.json")).unwrap();
    assert!(record.contains(&address), "{record}");

    // A target that restarts within the deadline is only a delay, and the reservation outlives it.
    storage.kill();
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| copy(&first, 2));
        std::thread::sleep(Duration::from_secs(1));
        storage.start();
        copying.join().unwrap();
    });
    first.done("zpool sync tank");
    let status = first.done("zpool status tank");
    assert!(status.contains("state: ONLINE") && status.contains("No known data errors"), "{status}");

    // Another machine sees the pool, and may not take it.
    let second = machine("0x00cafe02", &[]);
    let found = second.done(&format!("zpool import -d {address}"));
    assert!(found.contains("pool: tank"), "{found}");
    second.fails(&format!("zpool import -d {address} tank"));
    let said = second.fails(&format!("zpool create -f other {address}"));
    assert!(said.contains("is locked by another machine") && said.contains("cafe01"), "{said}");
    copy(&first, 3);
    first.done("zpool sync tank");

    // By force, it fences the first one, whose pool stops.
    second.done(&format!("zpool import -f -d {address} tank"));
    let status = first.until("zpool status tank", |status| status.contains("SUSPENDED"));
    assert!(status.contains("ZFS-8000-MM"), "{status}");
    copy(&second, 4);
    first.done("zpool export -f tank");
    let status = second.done("zpool scrub -w tank") + &second.done("zpool status tank");
    assert!(status.contains("with 0 errors") && status.contains("state: ONLINE"), "{status}");
    for seed in 1..=4 {
        let read = second.run(&["cat", &format!("tank:/{seed}")]).stdout;
        assert!(read == noise(seed, 1_000_000), "{seed}");
    }
    second.done("zpool export tank");
    // An exported pool is free for all.
    first.done(&format!("zpool import -d {address} tank"));
    first.done("zpool export tank");
    let label = first.done(&format!("dump label {address}"));
    assert!(label.contains("/dev/cenote/iscsi/127.0.0.1:"), "{label}");
    let volume = storage.bench.path("d/copy");
    storage.bench.done(&format!("volume cp store/v {}", volume.display()));
    let disks = tempfile::tempdir().unwrap();
    fs::rename(&volume, disks.path().join("copy")).unwrap();
    zdb_finds_nothing(disks.path(), "tank");
}

#[test]
fn a_mirror_goes_on_without_a_target_that_stays_away() {
    let mut storage = Storage::new(None);
    let address = storage.address();
    let bench = machine("0x00cafe03", &["b"]);
    bench.done(&format!("zpool create -f -m none tank mirror {address} b"));
    copy(&bench, 1);
    bench.done("zpool sync tank");
    storage.kill();
    copy(&bench, 2);
    bench.done("zpool sync tank");
    let status = bench.until("zpool status tank", |status| status.contains("state: DEGRADED"));
    assert!(status.contains(&address), "{status}");
    copy(&bench, 3);
    storage.start();
    bench.until("zpool status tank", |status| {
        status.contains("state: ONLINE") && status.contains("resilvered") && !status.contains("in progress")
    });
    let status = bench.done("zpool scrub -w tank") + &bench.done("zpool status tank");
    assert!(status.contains("with 0 errors") && !status.contains("repaired 1"), "{status}");
    // Without a daemon, the reservation is given back at the end of each command.
    bench.done("zpool export tank");
    for _ in 0..2 {
        let mut alone = bench.program();
        alone.env("CENOTE_SOCKET", "").env("CENOTE_DISKS", format!("{address}:{}", bench.text("d")));
        alone.args(["zfs", "set", "org.cenote:note=x", "tank"]);
        // The last user gives its reservation back a moment after its answer.
        let begun = Instant::now();
        loop {
            let done = alone.output().unwrap();
            if done.status.success() {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{done:?}");
        }
    }
    let other = machine("0x00cafe04", &[]);
    other.done(&format!("zpool labelclear -f {address}"));
}

#[test]
fn a_target_with_accounts_wants_a_secret_from_a_file() {
    let accounts = "[[initiator]]\nuser = \"host\"\nsecret = \"twelve chars\"\n\
                    [target]\nuser = \"storage\"\nsecret = \"other chars!\"\n";
    let storage = Storage::new(Some(accounts));
    let mut bench = machine("0x00cafe05", &[]);
    let said = bench.fails(&format!("zpool create tank {}", storage.address()));
    assert!(said.contains("does not let this machine in"), "{said}");
    let file = private(
        &bench,
        "chap",
        "[[target]]\nuser = \"host\"\nsecret = \"twelve chars\"\n\
         target-user = \"storage\"\ntarget-secret = \"other chars!\"\n",
    );
    let address = format!("{}?chap={file}", storage.address());
    bench.done(&format!("zpool create -m none tank {address}"));
    let status = bench.done("zpool status -P tank") + &bench.done("zpool history tank");
    assert!(status.contains(&storage.address()) && !status.contains("chars"), "{status}");
    bench.signal(Signal::KILL);
    bench.start_as("0x00cafe05");
    assert!(bench.done("zpool status tank").contains("state: ONLINE"), "the record names the file");
    bench.done("zpool export tank");
}
