//! Pools that move among machines: two daemons with the same disks and a witness.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::serve::bench::{Bench, zdb_finds_nothing};
use crate::serve::remote::Exporter;

/// A lease is 1.5 s here; the rest is for a busy machine.
const FAIL_OVER_MAX: Duration = Duration::from_secs(20);

/// A daemon without a pool, whose settings name these disks.
fn machine(node: &str, witness: &Path, disks: &[String]) -> Bench {
    let bench = Bench::new(&[]);
    let settings = format!(
        "node = \"{node}\"\nwitness = \"{}\"\nlease = \"1500 ms\"\n\
         [[pool]]\nname = \"tank\"\ndisks = {disks:?}\n\
         taken = [\"/usr/bin/touch\", \"{}\"]\nleft = [\"/usr/bin/touch\", \"{}\"]\n",
        witness.display(),
        bench.text("taken"),
        bench.text("left"),
    );
    fs::write(bench.path("ha.toml"), settings).unwrap();
    fs::set_permissions(bench.path("ha.toml"), fs::Permissions::from_mode(0o600)).unwrap();
    bench
}

fn join(bench: &mut Bench) {
    if bench.daemon.is_some() {
        bench.signal(Signal::TERM);
    }
    let settings = bench.text("ha.toml");
    bench.start(&["--ha", &settings]);
}

#[track_caller]
fn until_it_has(bench: &Bench) -> Duration {
    let begun = Instant::now();
    bench.until("ha status -H", |status| status.contains("\thas it\t"));
    assert!(begun.elapsed() < FAIL_OVER_MAX, "{:?}", begun.elapsed());
    begun.elapsed()
}

/// A folder with two disks of a pool, exported, and a folder for the witness.
fn pool() -> (tempfile::TempDir, [String; 2]) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("witness")).unwrap();
    let disks = ["one", "two"].map(|name| {
        let path = folder.path().join(name);
        fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
        path.to_str().unwrap().to_owned()
    });
    (folder, disks)
}

/// A mirror over two servers of disks, open on the first of two machines.
fn mirror() -> (tempfile::TempDir, [Exporter; 2], [Bench; 2]) {
    let (folder, disks) = pool();
    let servers = disks.map(|disk| Exporter::new(disk.into()));
    let (witness, places) = (folder.path().join("witness"), servers.each_ref().map(Exporter::address));
    let mut machines = ["a", "b"].map(|node| machine(node, &witness, &places));
    machines[0].done(&format!("zpool create -m none tank mirror {} {}", places[0], places[1]));
    machines[0].done("zpool export tank");
    join(&mut machines[0]);
    until_it_has(&machines[0]);
    (folder, servers, machines)
}

#[test]
fn a_pool_moves_to_another_machine_by_a_failure_by_a_stop_and_by_request() {
    let (folder, disks) = pool();
    let witness = folder.path().join("witness");
    let (mut a, mut b) = (machine("a", &witness, &disks), machine("b", &witness, &disks));
    // Made under the keepers' eyes, it is adopted: by its own machine, since it is in use there.
    join(&mut a);
    a.done(&format!("zpool create -m none tank mirror {} {}", disks[0], disks[1]));
    until_it_has(&a);
    join(&mut b);
    assert!(a.path("taken").exists() && !b.path("taken").exists());

    // Killed: what was acknowledged is there.
    a.fill(1);
    a.done("zpool sync tank");
    a.signal(Signal::KILL);
    until_it_has(&b);
    assert_eq!(b.run(&["cat", "tank:/1"]).stdout, fs::read(a.path("d/file")).unwrap());
    let why = b.fails(&format!("zpool import -d {} tank", disks[0]));
    assert!(why.contains("already exists"), "{why}");

    // The other one comes back, and does not take it by itself, though its record names the pool.
    join(&mut a);
    let status = a.until("ha status -H", |status| status.contains("\tb\t"));
    assert!(status.contains("watches it"), "{status}");
    let why = a.fails(&format!("zpool import -f -d {} tank", disks[0]));
    assert!(why.contains("ha switch"), "{why}");

    // By request, there and back.
    a.done("ha switch tank");
    until_it_has(&a);
    assert!(b.path("left").exists());
    a.fill(2);
    let why = a.fails("ha switch tank a");
    assert!(why.contains("this machine has"), "{why}");
    a.done("ha switch tank b");
    until_it_has(&b);
    assert_eq!(b.run(&["cat", "tank:/1"]).stdout.len(), 3_000_000);

    // A stop hands it over at once.
    b.signal(Signal::TERM);
    until_it_has(&a);

    // Exported by hand, it stays so.
    a.done("zpool export tank");
    a.until("ha status -H", |status| status.contains("exported") && status.contains("watches it"));
    std::thread::sleep(Duration::from_secs(4));
    assert!(a.done("zpool list -H").is_empty());
    a.done("ha switch tank");
    until_it_has(&a);
    a.signal(Signal::TERM);
    zdb_finds_nothing(folder.path(), "tank");
}

#[test]
fn a_stopped_machine_writes_nothing_when_it_wakes_up() {
    // These servers have no locks, so the lease alone keeps the old owner away.
    let (_folder, _servers, [mut a, mut b]) = mirror();
    join(&mut b);
    let daemon = rustix::process::Pid::from_child(a.daemon.as_ref().unwrap());
    rustix::process::kill_process(daemon, Signal::STOP).unwrap();
    until_it_has(&b);
    b.fill(1);
    rustix::process::kill_process(daemon, Signal::CONT).unwrap();
    // It lets the pool go, and sees the new owner.
    a.until("ha status -H", |status| status.contains("watches it\tb\t"));
    assert!(a.path("left").exists());
    b.done("zpool scrub -w tank");
    let status = b.done("zpool status tank");
    assert!(status.contains("with 0 errors") && status.contains("state: ONLINE"), "{status}");
    // A machine that renews but does not let go is fenced.
    a.done("ha fence tank");
    until_it_has(&a);
    b.until("ha status -H", |status| status.contains("watches it\ta\t"));
    assert_eq!(a.run(&["cat", "tank:/1"]).stdout.len(), 3_000_000);
    a.signal(Signal::TERM);
    b.signal(Signal::TERM);
}

#[test]
fn an_older_half_of_a_mirror_never_wins() {
    let (_folder, [mut one, mut two], [mut a, mut b]) = mirror();
    a.fill(1);
    // One half fails, and the other goes on alone.
    two.kill();
    a.fill(2);
    a.done("zpool sync tank");
    let status = a.done("ha status -H");
    assert!(status.contains("1 device"), "the witness knows before the txg counts as written: {status}");
    // Both the machine and the newer half fail; the older half is back.
    a.signal(Signal::KILL);
    one.kill();
    two.start();
    join(&mut b);
    let status = b.until("ha status -H", |status| status.contains("lack data"));
    assert!(status.contains("watches it") || status.contains("takes it"), "{status}");
    // With the newer half all is there, and the other one is resilvered.
    one.start();
    until_it_has(&b);
    assert_eq!(b.run(&["cat", "tank:/2"]).stdout.len(), 3_000_000);
    b.until("ha status -H", |status| status.contains("\t-\t"));
    b.until("zpool status tank", |status| {
        status.contains("state: ONLINE") && !status.contains("in progress")
    });
    b.done("zpool scrub -w tank");
    let status = b.done("zpool status tank");
    assert!(status.contains("with 0 errors"), "{status}");
    b.signal(Signal::TERM);
}

#[test]
fn settings_that_are_wrong_are_named() {
    let bench = Bench::new(&[]);
    let refused = |text: &str, mode: u32| {
        fs::write(bench.path("ha.toml"), text).unwrap();
        fs::set_permissions(bench.path("ha.toml"), fs::Permissions::from_mode(mode)).unwrap();
        fs::create_dir_all(bench.path("apart")).unwrap();
        let socket = bench.text("apart/sock");
        bench.fails(&format!("serve --socket {socket} --ha {}", bench.text("ha.toml")))
    };
    let good = "node = \"a\"\nwitness = \"/nosuch\"\n[[pool]]\nname = \"tank\"\n";
    for (text, mode, why) in [
        (good.replace("node", "nod"), 0o600, "unknown field"),
        (good.replace("/nosuch", "http://x"), 0o600, "none of etcd://"),
        (good.to_owned(), 0o666, "writ"),
    ] {
        let said = refused(&text, mode);
        assert!(said.contains("ha.toml") && said.contains(why), "{said}");
    }
    assert!(bench.fails("ha status").contains("without --ha"));
}
