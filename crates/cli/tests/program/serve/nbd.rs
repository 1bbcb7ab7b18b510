//! Volumes served by NBD to a small client. `proof/nbd` uses foreign clients.

use std::fs;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use serde_json::Value;

use crate::serve::bench::{Bench, zdb_finds_nothing};

pub(super) const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
pub(super) const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const FUA: u16 = 1;

/// A client of one export, with simple replies.
pub(super) struct Client {
    stream: UnixStream,
    size_bytes: u64,
    is_read_only: bool,
}

/// A connection that has sent an option.
fn asked(bench: &Bench, option: u32, data: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(bench.path("nbd")).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting[..16], *b"NBDMAGICIHAVEOPT");
    let mut ask = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &option.to_be_bytes()].concat();
    ask.extend((data.len() as u32).to_be_bytes());
    ask.extend(data);
    stream.write_all(&ask).unwrap();
    stream
}

/// The next reply to it: its type and its data.
fn reply(stream: &mut UnixStream) -> (u32, Vec<u8>) {
    let mut head = [0; 20];
    stream.read_exact(&mut head).unwrap();
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    let (kind, mut data) = (word(12), vec![0; word(16) as usize]);
    stream.read_exact(&mut data).unwrap();
    (kind, data)
}

/// The names of all listed exports.
fn listed(bench: &Bench) -> Vec<String> {
    let mut stream = asked(bench, 3, b"");
    let names = std::iter::from_fn(|| Some(reply(&mut stream)).filter(|(kind, _)| *kind == 2));
    let name = |data: Vec<u8>| {
        let len = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
        String::from_utf8(data[4..4 + len].to_vec()).unwrap()
    };
    names.map(|(_, data)| name(data)).collect()
}

impl Client {
    /// Connects to an export; returns the server's message if refused.
    pub(super) fn open(bench: &Bench, name: &str) -> Result<Client, String> {
        let go = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat();
        let mut stream = asked(bench, 7, &go);
        let (mut size_bytes, mut flags) = (0, 0);
        loop {
            let (kind, data) = reply(&mut stream);
            match kind {
                1 => return Ok(Client { stream, size_bytes, is_read_only: flags & 2 != 0 }),
                3 if data.starts_with(&[0, 0]) => {
                    size_bytes = u64::from_be_bytes(data[2..10].try_into().unwrap());
                    flags = u16::from_be_bytes(data[10..12].try_into().unwrap());
                }
                3 => {}
                _ => return Err(String::from_utf8(data).unwrap()),
            }
        }
    }

    /// Sends a request; returns the data of a read, or the error number.
    pub(super) fn ask(
        &mut self,
        flags: u16,
        command: u16,
        range: Range<u64>,
        data: &[u8],
    ) -> io::Result<Vec<u8>> {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(42u64.to_be_bytes());
        request.extend(range.start.to_be_bytes());
        request.extend(((range.end - range.start) as u32).to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request)?;
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error as i32));
        }
        let mut read = vec![0; if command == READ { (range.end - range.start) as usize } else { 0 }];
        self.stream.read_exact(&mut read)?;
        Ok(read)
    }
}

/// A daemon with a pool and a volume of 64 MiB.
fn bench() -> (Bench, String) {
    let mut bench = Bench::new(&["a"]);
    bench.done("zpool create -m none tank a");
    bench.done("zfs create -V 64M -b 16k tank/v");
    let door = format!("--nbd=unix:{}", bench.text("nbd"));
    bench.signal(Signal::TERM);
    bench.start(&[&door]);
    (bench, door)
}

#[test]
fn what_is_flushed_outlives_the_daemon() {
    let (mut bench, door) = bench();
    let mut client = Client::open(&bench, "tank/v").unwrap();
    assert_eq!((client.size_bytes, client.is_read_only), (64 << 20, false));
    // Parts of blocks, a whole block, and discarded data.
    client.ask(0, WRITE, 1000..1005, b"hello").unwrap();
    client.ask(0, WRITE, 1005..1011, b" world").unwrap();
    client.ask(0, WRITE, 1 << 20..(1 << 20) + 32768, &[7; 32768]).unwrap();
    client.ask(0, TRIM, 1 << 20..(1 << 20) + 16384, b"").unwrap();
    client.ask(0, FLUSH, 0..0, b"").unwrap();
    client.ask(FUA, WRITE, 5_000_000..5_000_003, b"FUA").unwrap();
    assert_eq!(client.ask(0, READ, 64 << 20..(64 << 20) + 1, b"").unwrap_err().raw_os_error(), Some(22));
    bench.signal(Signal::KILL);
    bench.start(&[&door]);

    let mut client = Client::open(&bench, "").unwrap_or_else(|_| panic!("it is the only volume"));
    assert_eq!(client.ask(0, READ, 999..1012, b"").unwrap(), b"\0hello world\0");
    assert_eq!(client.ask(0, READ, 5_000_000..5_000_004, b"").unwrap(), b"FUA\0");
    let both = client.ask(0, READ, 1 << 20..(1 << 20) + 32768, b"").unwrap();
    assert!(both[..16384].iter().all(|&byte| byte == 0) && both[16384..].iter().all(|&byte| byte == 7));
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn volumes_are_served_as_their_properties_say() {
    let (bench, _) = bench();
    let mut client = Client::open(&bench, "tank/v").unwrap();
    client.ask(0, WRITE, 0..3, b"old").unwrap();
    bench.done("zfs snapshot tank/v@one");
    client.ask(0, WRITE, 0..3, b"new").unwrap();
    let mut before = Client::open(&bench, "tank/v@one").unwrap();
    assert!(before.is_read_only);
    assert_eq!(before.ask(0, READ, 0..3, b"").unwrap(), b"old");
    assert_eq!(before.ask(0, WRITE, 0..3, b"xxx").unwrap_err().raw_os_error(), Some(1));
    assert_eq!(client.ask(0, READ, 0..3, b"").unwrap(), b"new");
    // Snapshots are listed if the volume says so.
    assert_eq!(listed(&bench), ["tank/v"]);
    bench.done("zfs set snapdev=visible tank/v");
    assert_eq!(listed(&bench), ["tank/v", "tank/v@one"]);
    // The export's clients are shown.
    let clients = bench.done("volume clients -H tank");
    assert!(clients.starts_with("tank/v\tNBD ") && clients.contains("tank/v@one\tNBD "), "{clients}");
    let clients: Value = serde_json::from_str(&bench.done("volume clients -j")).unwrap();
    assert_eq!(clients["volumes"]["tank/v@one"]["clients"].as_array().unwrap().len(), 1, "{clients}");
    assert!(bench.fails("volume clients nothing").contains("no such pool"));
    // A command changes the same volume.
    fs::write(bench.path("d/image"), b"cmd").unwrap();
    bench.done("volume cp -f image tank/v");
    assert_eq!(client.ask(0, READ, 0..3, b"").unwrap(), b"cmd");

    bench.done("zfs set volsize=96M tank/v");
    client.ask(0, WRITE, 80 << 20..(80 << 20) + 1, b"x").unwrap();
    assert_eq!(Client::open(&bench, "tank/v").unwrap().size_bytes, 96 << 20);

    for (setting, why) in [("volmode=none", "volmode"), ("org.cenote:serve=off", "org.cenote:serve")] {
        bench.done(&format!("zfs set {setting} tank/v"));
        assert!(Client::open(&bench, "tank/v").is_err_and(|told| told.contains(why)));
        bench.done(&format!("zfs inherit {} tank/v", setting.split('=').next().unwrap()));
    }
    bench.done("zfs set org.cenote:serve=ro tank/v");
    assert!(Client::open(&bench, "tank/v").unwrap().is_read_only);
    bench.done("zfs create tank/fs");
    assert!(Client::open(&bench, "tank/fs").is_err_and(|told| told.contains("not a volume")));
    assert!(Client::open(&bench, "tank/x").is_err() && Client::open(&bench, "other/x").is_err());
}

#[test]
fn clients_keep_a_pool_until_they_are_sent_away() {
    let (mut bench, _) = bench();
    let mut client = Client::open(&bench, "tank/v").unwrap();
    client.ask(0, WRITE, 0..3, b"abc").unwrap();
    let busy = bench.fails("zpool export tank");
    let who = format!("process {}", std::process::id());
    assert!(busy.contains("is busy") && busy.contains("tank/v") && busy.contains(&who), "{busy}");
    assert!(bench.fails("zfs destroy tank/v").contains("busy"));
    bench.done("zpool export -f tank");
    assert!(client.ask(0, READ, 0..3, b"").is_err(), "the connection has ended");
    bench.done("zpool import tank");
    let mut client = Client::open(&bench, "tank/v").unwrap();
    assert_eq!(client.ask(0, READ, 0..3, b"").unwrap(), b"abc");
    drop(client);
    bench.until("zfs list -Ho name", |_| bench.run(&["zfs", "destroy", "tank/v"]).status.success());
    let mut other = Client::open(&bench, "tank/v");
    assert!(other.as_mut().is_err());

    // The daemon ends although a client is connected.
    bench.done("zfs create -V 64M tank/w");
    let _client = Client::open(&bench, "tank/w").unwrap();
    bench.signal(Signal::TERM);
    assert!(!bench.path("nbd").exists());
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn other_machines_are_served_through_tls_only() {
    let bench = Bench::new(&["a"]);
    let other = ["serve", "-d", ".", "--socket", "other", "--state", "other.json"];
    for (door, why) in [
        (&["--nbd", "0.0.0.0"][..], "--insecure"),
        (&["--nbd", "somewhere"], "is no address"),
        (&["--nbd", ":1", "--tls", "nowhere"], "server-cert.pem"),
    ] {
        let refused = bench.run(&[&other[..], door].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains(why), "{said}");
    }
}

#[test]
fn a_snapshot_that_a_client_reads_is_busy_and_a_read_only_volume_shows_what_commands_change() {
    let (mut bench, _) = bench();
    let mut writer = Client::open(&bench, "tank/v").unwrap();
    writer.ask(FUA, WRITE, 0..5, b"first").unwrap();
    bench.done("zfs snapshot tank/v@s");
    writer.ask(FUA, WRITE, 0..5, b"other").unwrap();
    drop(writer);

    let mut reader = Client::open(&bench, "tank/v@s").unwrap();
    let refused = bench.fails("zfs destroy tank/v@s");
    assert!(refused.contains("in use"), "{refused}");
    assert_eq!(reader.ask(0, READ, 0..5, b"").unwrap(), b"first");
    drop(reader);
    // The daemon sees the end of a connection a moment later.
    let begun = std::time::Instant::now();
    while !bench.run(&["zfs", "destroy", "tank/v@s"]).status.success() {
        assert!(begun.elapsed() < crate::serve::bench::PATIENCE, "the snapshot stays busy");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }

    // Read-only, but its tree still changes: freed blocks must not be read.
    bench.done("zfs snapshot tank/v@t");
    bench.done("zfs set readonly=on tank/v");
    let mut reader = Client::open(&bench, "tank/v").unwrap();
    assert!(reader.is_read_only);
    assert_eq!(reader.ask(0, READ, 0..5, b"").unwrap(), b"other");
    let refused = bench.fails("zfs rollback tank/v@t");
    assert!(refused.contains("in use") || refused.contains("busy"), "{refused}");
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

/// Holes record little of their birth: holes already present in the snapshot have not changed.
#[test]
fn what_has_changed_since_a_snapshot_is_what_was_written_or_freed() {
    let (bench, _) = bench();
    const MIB: u64 = 1 << 20;
    let mut client = Client::open(&bench, "tank/v").unwrap();
    let noise = crate::common::disks::noise(3, MIB as usize);
    client.ask(0, WRITE, 0..MIB, &noise).unwrap();
    client.ask(0, WRITE, 8 * MIB..9 * MIB, &noise).unwrap();
    bench.done("zfs snapshot tank/v@one");
    client.ask(0, WRITE, 4 * MIB..5 * MIB, &noise).unwrap();
    client.ask(0, TRIM, 8 * MIB..9 * MIB, b"").unwrap();
    client.ask(0, FLUSH, 0..0, b"").unwrap();
    let uri = format!("nbd+unix:///tank/v?socket={}", bench.text("nbd"));
    let mut nbdinfo = std::process::Command::new("nbdinfo");
    nbdinfo.args(["--map=cenote:changed-since=one", "--totals", "--json"]).arg(uri);
    let Ok(map) = nbdinfo.output() else { return println!("skipped: nbdinfo is not installed") };
    let map: Value = serde_json::from_slice(&map.stdout).unwrap();
    let changed = map.as_array().unwrap().iter().find(|kind| kind["type"] == 1).unwrap();
    assert_eq!(changed["size"], 2 * MIB, "{map}");
}
