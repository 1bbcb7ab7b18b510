//! Pools on disks of other machines: daemons that export devices, and one with the pool.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::disks::noise;
use crate::serve::bench::{Bench, PATIENCE, zdb_finds_nothing};

const MIB: u64 = 1 << 20;
/// The deadline of a remote disk is 7 s; the rest is for a busy machine.
const STALL_MAX: Duration = Duration::from_secs(25);

/// A daemon without pools that exports a file as `x`.
pub struct Exporter {
    folder: tempfile::TempDir,
    disk: PathBuf,
    port: u16,
    tls: Option<PathBuf>,
    daemon: Option<Child>,
}

impl Exporter {
    pub fn new(disk: PathBuf) -> Exporter {
        Exporter::with(disk, None)
    }

    /// With a folder of certificates, or for everybody.
    fn with(disk: PathBuf, tls: Option<PathBuf>) -> Exporter {
        fs::File::create(&disk).unwrap().set_len(256 * MIB).unwrap();
        // Free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let mut exporter = Exporter { folder, disk, port, tls, daemon: None };
        exporter.start();
        exporter
    }

    pub fn start(&mut self) {
        let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.current_dir(self.folder.path()).env_remove("CENOTE_DISKS");
        program.args(["serve", "-d", ".", "--socket", "sock"]);
        match &self.tls {
            Some(folder) => program.arg("--tls").arg(folder),
            None => program.arg("--insecure"),
        };
        program.arg("--nbd").arg(format!("127.0.0.1:{}", self.port));
        program.arg("--export").arg(format!("x={}", self.disk.display()));
        let mut daemon = program.stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(daemon.stderr.take().unwrap()).lines();
        self.daemon = Some(daemon);
        let is_ready = messages.by_ref().map_while(Result::ok).any(|line| line.contains("serving"));
        assert!(is_ready, "the daemon ended");
        std::thread::spawn(move || messages.for_each(drop));
    }

    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().ok();
            daemon.wait().ok();
        }
    }

    pub fn address(&self) -> String {
        format!("nbd://127.0.0.1:{}/x", self.port)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Copies a file of 3 MB that can't be compressed into the pool.
fn fill(bench: &Bench, seed: u64) {
    fs::write(bench.path("d/file"), noise(seed, 3_000_000)).unwrap();
    bench.done(&format!("cp file tank:/{seed}"));
}

/// The bytes of the last resilver in `zpool status`: `resilvered 3.45M in ...`.
fn resilvered_bytes(status: &str) -> u64 {
    let words = status.split("resilvered ").nth(1).unwrap_or_else(|| panic!("no resilver: {status}"));
    let word = words.split(' ').next().unwrap();
    let (number, unit) = word.split_at(word.len() - 1);
    let unit = match unit {
        "B" => 1.0,
        "K" => 1024.0,
        "M" => 1024.0 * 1024.0,
        _ => panic!("{word} is much: {status}"),
    };
    (number.parse::<f64>().unwrap() * unit) as u64
}

#[test]
fn a_mirror_over_two_servers_survives_the_loss_of_either_and_of_its_own_daemon() {
    let disks = tempfile::tempdir().unwrap();
    let mut one = Exporter::new(disks.path().join("one"));
    let two = Exporter::new(disks.path().join("two"));
    let mut bench = Bench::new(&[]);
    let (first, second) = (one.address(), two.address());
    bench.done(&format!("zpool create -m none tank mirror {first} {second}"));
    let status = bench.done("zpool status tank");
    assert!(
        status.contains(&first) && status.contains(&second) && status.contains("state: ONLINE"),
        "{status}"
    );
    // A disk in use is not taken, not even by force.
    let said = bench.fails(&format!("zpool create -f other {second}"));
    assert!(said.contains("is in use by this program"), "{said}");
    // The exporter keeps its device from other programs of its machine.
    let foreign = bench.run(&["zpool", "labelclear", "-f", one.disk.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&foreign.stderr).contains("in use"), "{foreign:?}");
    (1..8).for_each(|seed| fill(&bench, seed));
    bench.done("zpool sync tank");

    // A server dies: writes wait for its return up to the deadline, then go on without it.
    one.kill();
    let begun = Instant::now();
    fill(&bench, 8);
    bench.done("zpool sync tank");
    assert!(begun.elapsed() < STALL_MAX, "{:?}", begun.elapsed());
    let status = bench.until("zpool status tank", |status| status.contains("state: DEGRADED"));
    assert!(status.contains(&first), "{status}");
    fill(&bench, 9);

    // It returns: only the writes that it missed are copied.
    one.start();
    let status = bench.until("zpool status tank", |status| {
        status.contains("state: ONLINE") && status.contains("resilvered") && !status.contains("in progress")
    });
    let bytes = resilvered_bytes(&status);
    assert!(bytes > 3 * MIB && bytes < 12 * MIB, "{status}");
    let status = bench.done("zpool scrub -w tank") + &bench.done("zpool status tank");
    assert!(status.contains("with 0 errors") && !status.contains("repaired 1"), "{status}");

    // A server that restarts within the deadline is only a delay.
    one.kill();
    std::thread::scope(|scope| {
        let filling = scope.spawn(|| fill(&bench, 10));
        std::thread::sleep(Duration::from_secs(2));
        one.start();
        filling.join().unwrap();
    });
    bench.done("zpool sync tank");
    let status = bench.done("zpool status tank");
    assert!(status.contains("state: ONLINE") && status.contains("No known data errors"), "{status}");

    // A killed daemon finds its remote disks again, by its record.
    bench.signal(Signal::KILL);
    let record = fs::read_to_string(bench.path("pools.json")).unwrap();
    assert!(record.contains(&first), "{record}");
    bench.start(&[]);
    assert!(bench.done("zpool status tank").contains("state: ONLINE"));
    for seed in 1..11 {
        let read = bench.run(&["cat", &format!("tank:/{seed}")]).stdout;
        assert!(read == noise(seed, 3_000_000), "{seed}");
    }
    bench.done("zpool export tank");
    // Without the daemon, and by address.
    let mut alone = bench.program();
    alone.env("CENOTE_SOCKET", "").env("CENOTE_DISKS", format!("{first}:{second}"));
    let found = alone.args(["zpool", "import"]).output().unwrap();
    let found = String::from_utf8_lossy(&found.stdout);
    assert!(found.contains("pool: tank") && found.contains(&second), "{found}");
    drop((one, two));
    zdb_finds_nothing(disks.path(), "tank");
    let label = bench.done(&format!("dump label {}", disks.path().join("one").display()));
    assert!(label.contains("/dev/cenote/nbd/127.0.0.1:"), "{label}");
}

/// Certificates of an authority for a server and a client called `localhost`, each in a folder.
fn certificates(folder: &Path) -> Option<[PathBuf; 2]> {
    let openssl = |line: &str| {
        let done = Command::new("openssl").args(line.split(' ')).current_dir(folder).output();
        done.is_ok_and(|done| done.status.success())
    };
    fs::write(folder.join("san"), "subjectAltName=DNS:localhost").unwrap();
    let ca =
        "req -x509 -newkey rsa:2048 -nodes -keyout ca-key.pem -out ca-cert.pem -days 2 -subj /CN=authority";
    if !openssl(ca) {
        println!("skipped: openssl is not installed");
        return None;
    }
    Some(["server", "client"].map(|side| {
        let of_side = folder.join(side);
        fs::create_dir(&of_side).unwrap();
        let ask = "req -newkey rsa:2048 -nodes -subj /CN=localhost";
        assert!(openssl(&format!("{ask} -keyout {side}/{side}-key.pem -out {side}.csr")));
        let sign = "x509 -req -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile san";
        assert!(openssl(&format!("{sign} -in {side}.csr -out {side}/{side}-cert.pem")));
        fs::copy(folder.join("ca-cert.pem"), of_side.join("ca-cert.pem")).unwrap();
        of_side
    }))
}

#[test]
fn a_disk_within_tls_is_for_clients_with_a_certificate() {
    let (disks, tls) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some([server, client]) = certificates(tls.path()) else { return };
    let exporter = Exporter::with(disks.path().join("one"), Some(server.clone()));
    let mut bench = Bench::new(&[]);
    let address = format!("nbds://localhost:{}/x", exporter.port);
    let plain = format!("nbd://localhost:{}/x", exporter.port);
    let said = bench.fails(&format!("zpool create tank {plain}"));
    assert!(said.contains("within TLS only: use nbds://"), "{said}");
    // The server's folder has its authority, but no certificate of a client.
    let said = bench.fails(&format!("zpool create tank {address}?tls-certificates={}", server.display()));
    assert!(said.contains("TLS failed") || said.contains("the connection ended"), "{said}");
    bench.done(&format!("zpool create -m none tank {address}?tls-certificates={}", client.display()));
    let status = bench.done("zpool status -P tank");
    assert!(status.contains(&address) && !status.contains("certificates"), "{status}");
    fill(&bench, 1);
    bench.signal(Signal::KILL);
    bench.start(&[]);
    assert!(bench.done("zpool status tank").contains("state: ONLINE"), "the record has the certificates");
    bench.done("zpool export tank");
    drop(exporter);
    zdb_finds_nothing(disks.path(), "tank");
}

/// A program that serves a file at a socket, to a single client; it ends with the test.
struct Foreign(Child);

impl Drop for Foreign {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn qemu_nbd(file: &Path, socket: &Path) -> Option<Foreign> {
    let mut program = Command::new("qemu-nbd");
    program.args(["-f", "raw", "-t", "-x", "x", "-k"]).arg(socket).arg(file).stderr(Stdio::null());
    let Ok(child) = program.spawn() else {
        println!("skipped: qemu-nbd is not installed");
        return None;
    };
    let server = Foreign(child);
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < PATIENCE, "qemu-nbd does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(server)
}

#[test]
fn a_pool_on_a_foreign_server_needs_a_single_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("disk"), folder.path().join("sock"));
    fs::File::create(&file).unwrap().set_len(128 * MIB).unwrap();
    let Some(server) = qemu_nbd(&file, &socket) else { return };
    let address = format!("nbd+unix:///x?socket={}", socket.display());
    let run = |line: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
        program.current_dir(folder.path()).env("CENOTE_SOCKET", "").env("CENOTE_DISKS", &address);
        let output = program.args(line.split(' ')).output().unwrap();
        (output.status.success(), format!("{output:?}"), output.stdout)
    };
    let done = |line: &str| {
        let (is_done, said, output) = run(line);
        assert!(is_done, "{line}: {said}");
        output
    };
    done(&format!("zpool create tank {address}"));
    let (is_done, said, _) = run(&format!("zpool create other {address}"));
    assert!(!is_done && said.contains("exported pool 'tank'"), "{said}");
    fs::write(folder.path().join("content"), vec![7; 3_000_000]).unwrap();
    done("cp content tank:/content");
    assert!(done("cat tank:/content") == vec![7; 3_000_000]);
    done(&format!("dump label {address}"));
    drop(server);
    let disks = tempfile::tempdir().unwrap();
    fs::rename(&file, disks.path().join("disk")).unwrap();
    zdb_finds_nothing(disks.path(), "tank");
    fs::rename(disks.path().join("disk"), &file).unwrap();
    fs::remove_file(&socket).ok();
    let Some(server) = qemu_nbd(&file, &socket) else { return };
    done(&format!("zpool labelclear -f {address}"));
    let (is_done, said, _) = run("zpool import");
    assert!(!is_done && said.contains("no ZFS label here"), "{said}");
    drop(server);
}

#[test]
fn wrong_addresses_and_exports_are_refused_with_a_reason() {
    let bench = Bench::new(&["a"]);
    for (line, words) in [
        ("zpool create tank rbd://pool/image", "'rbd://' is not supported; a device is a path, nbd://"),
        ("zpool create tank nbd://user:secret@h/x", "certificates"),
        ("zpool create tank nbd://127.0.0.1:1/x", "cannot connect"),
        ("zpool create tank nbd+unix:///x", "'socket' must be given once"),
        ("zpool create tank nbds://h/x?tls-certificates=/nowhere", "ca-cert.pem"),
        ("zpool create tank s3://bucket", "s3://BUCKET/PREFIX"),
        ("dump label nvme://h/x", "'nvme://' is not supported"),
        ("zpool create tank iscsi://user:secret@h/iqn.a/0", "?chap=PATH"),
        ("zpool create tank iscsi://h/iqn.a", "iscsi://HOST/iqn."),
        ("zpool create tank iscsi://127.0.0.1:1/iqn.a/0", "cannot connect"),
        ("zpool create tank iscsi://h/iqn.a/0?chap=/nowhere", "/nowhere"),
        ("serve -d . --socket s --export x=a", "--export needs --nbd"),
        ("serve -d . --socket s --nbd unix:n --export tank/x=a", "no name of an export"),
        ("serve -d . --socket s --nbd unix:n --export x=a --export x=a", "given twice"),
        ("serve -d . --socket s --nbd unix:n --export x=nothing", "no such file"),
    ] {
        let said = bench.fails(line);
        assert!(said.contains(words) && !said.contains("secret"), "{line}: {said}");
    }
}
