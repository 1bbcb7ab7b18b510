//! Volumes served by iSCSI to a small initiator. `proof/iscsi` uses foreign clients.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use crate::serve::bench::{Bench, zdb_finds_nothing};

const PREFIX: &str = "iqn.2026-11.org.cenote:";
const LOGIN: u8 = 0x43;
const COMMAND: u8 = 0x01;
const TEXT: u8 = 0x04;

/// An initiator in a session.
struct Initiator {
    stream: TcpStream,
    number: u32,
    /// The logical unit addressed by commands.
    lun: u8,
}

impl Initiator {
    /// Sends a PDU: opcode, flags, word 20, the bytes from byte 32 on, and data. Returns the reply's header
    /// and data.
    fn ask(&mut self, head: [u8; 2], word: u32, rest: &[u8], data: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut bhs = vec![0; 48];
        bhs[..2].copy_from_slice(&head);
        bhs[4..8].copy_from_slice(&(data.len() as u32).to_be_bytes());
        bhs[8] = if head[0] == LOGIN { 0x80 } else { 0 };
        bhs[9] = self.lun;
        bhs[16..20].copy_from_slice(&self.number.to_be_bytes());
        bhs[20..24].copy_from_slice(&word.to_be_bytes());
        bhs[24..28].copy_from_slice(&self.number.to_be_bytes());
        bhs[32..32 + rest.len()].copy_from_slice(rest);
        bhs.extend(data);
        bhs.resize(bhs.len().next_multiple_of(4), 0);
        self.number += u32::from(head[0] != LOGIN);
        self.stream.write_all(&bhs).unwrap();
        let mut reply = vec![0; 48];
        self.stream.read_exact(&mut reply).unwrap();
        let len = u32::from_be_bytes([0, reply[5], reply[6], reply[7]]) as usize;
        let mut data = vec![0; len.next_multiple_of(4)];
        self.stream.read_exact(&mut data).unwrap();
        data.truncate(len);
        (reply, data)
    }

    /// Logs in; returns the status if refused.
    fn login(port: u16, keys: &str) -> Result<Initiator, u16> {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut initiator = Initiator { stream, number: 1, lun: 0 };
        // The first name counts.
        let keys = format!("{keys}\0InitiatorName=iqn.host\0");
        let (reply, _) = initiator.ask([LOGIN, 0x87], 0, b"", keys.as_bytes());
        match u16::from_be_bytes([reply[36], reply[37]]) {
            0 => Ok(initiator),
            status => Err(status),
        }
    }

    fn enter(port: u16, name: &str) -> Result<Initiator, u16> {
        Initiator::login(port, &format!("TargetName={PREFIX}{name}"))
    }

    fn read(&mut self, lba: u8) -> Vec<u8> {
        let (reply, data) = self.ask([COMMAND, 0xc0], 512, &[0x28, 0, 0, 0, 0, lba, 0, 0, 1, 0], b"");
        assert_eq!((reply[0], reply[3]), (0x25, 0));
        data
    }

    /// WRITE (10), or another command with data; its status.
    fn send(&mut self, cdb: &[u8], data: &[u8]) -> u8 {
        self.ask([COMMAND, 0xa0], data.len() as u32, cdb, data).0[3]
    }

    fn write(&mut self, lba: u8, byte: u8) -> u8 {
        self.send(&[0x2a, 0, 0, 0, 0, lba, 0, 0, 1, 0], &[byte; 512])
    }
}

/// The names of all targets.
fn targets(port: u16) -> Vec<String> {
    let mut initiator = Initiator::login(port, "SessionType=Discovery").ok().unwrap();
    let (_, text) = initiator.ask([TEXT, 0x80], u32::MAX, b"", b"SendTargets=All\0");
    let text = String::from_utf8(text).unwrap();
    text.split('\0').filter_map(|pair| Some(pair.strip_prefix("TargetName=")?.to_owned())).collect()
}

/// A daemon with a pool of two volumes, and the port that serves them.
fn bench() -> (Bench, u16) {
    let mut bench = Bench::new(&["a"]);
    bench.done("zpool create -m none -o compatibility=openzfs-2.3 tank a");
    bench.done("zfs create -V 32M -b 16k tank/v");
    bench.done("zfs create -s -V 64M -b 16k tank/Other_1");
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    bench.signal(Signal::TERM);
    bench.start(&[&format!("--iscsi=127.0.0.1:{port}"), "--insecure"]);
    (bench, port)
}

#[test]
fn what_is_synchronized_outlives_the_daemon_and_so_do_reservations() {
    let (mut bench, port) = bench();
    assert_eq!(targets(port), [format!("{PREFIX}tank:.4fther.5f1"), format!("{PREFIX}tank:v")]);
    let mut initiator = Initiator::enter(port, "tank:v").ok().unwrap();
    assert_eq!(initiator.write(1, 7), 0);
    assert_eq!(initiator.ask([COMMAND, 0x80], 0, &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], b"").0[3], 0);
    // Registers with a persistent key, and reserves the volume for writing.
    let mut list = [0; 24];
    (list[15], list[20]) = (9, 1);
    assert_eq!(initiator.send(&[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list), 0);
    (list[7], list[15], list[20]) = (9, 0, 0);
    assert_eq!(initiator.send(&[0x5f, 1, 1, 0, 0, 0, 0, 0, 24, 0], &list), 0);
    bench.signal(Signal::KILL);
    bench.start(&[&format!("--iscsi=127.0.0.1:{port}"), "--insecure"]);

    let other = format!("InitiatorName=iqn.other\0TargetName={PREFIX}tank:v");
    let mut other = Initiator::login(port, &other).ok().unwrap();
    assert_eq!((other.read(1), other.write(1, 9)), (vec![7; 512], 0x18), "RESERVATION CONFLICT");
    let mut initiator = Initiator::enter(port, "tank:v").ok().unwrap();
    assert_eq!((initiator.write(1, 8), initiator.read(1)), (0, vec![8; 512]), "it holds the reservation");
    assert_eq!(Initiator::enter(port, "tank:no").err(), Some(0x0203));
    drop((initiator, other));
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn a_session_keeps_the_pool_and_others_see_what_they_may() {
    let (bench, port) = bench();
    let mut initiator = Initiator::enter(port, "tank:v").ok().unwrap();
    initiator.write(0, 1);
    bench.done("zfs snapshot tank/v@one");
    initiator.write(0, 2);
    let mut before = Initiator::enter(port, "tank:v.40one").ok().unwrap();
    assert_eq!((before.read(0), before.write(0, 3)), (vec![1; 512], 2), "a snapshot is read-only");
    bench.done("zfs set org.cenote:serve=off tank/Other_1");
    assert_eq!(targets(port), [format!("{PREFIX}tank:v")]);
    assert_eq!(Initiator::enter(port, "tank:.4fther.5f1").err(), Some(0x0202));
    let busy = bench.fails("zpool export tank");
    assert!(busy.contains("iSCSI 127.0.0.1:"), "{busy}");
    // The host learns that a volume has grown.
    bench.done("zfs set volsize=40M tank/v");
    assert_eq!(initiator.write(0, 2), 2, "UNIT ATTENTION");
    let (_, capacity) = initiator.ask([COMMAND, 0xc0], 8, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], b"");
    assert_eq!(capacity[..4], (40u32 * 2048 - 1).to_be_bytes());
    bench.done("zpool export -f tank");
    let mut asked = [0; 48];
    initiator.stream.read_exact(&mut asked).unwrap();
    assert_eq!((asked[0], asked[36]), (0x32, 1), "it is asked to log out, and does not");
    assert_eq!(initiator.stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn volumes_are_units_of_one_target_and_cloned_by_hosts() {
    let (mut bench, port) = bench();
    bench.done("zfs create -V 16M -b 16k tank/data");
    bench.done("zfs set org.cenote:iscsi.lun=cluster:1 tank/data");
    bench.signal(Signal::TERM);
    let (iscsi, name) = (format!("--iscsi=127.0.0.1:{port}"), "iqn.2026-11.com.example:one");
    bench.start(&[&iscsi, "--insecure", "--iscsi-name", name, "--iscsi-lun=cluster:0=tank/v"]);
    assert_eq!(targets(port), [format!("{name}:cluster"), format!("{name}:tank:.4fther.5f1")]);
    assert_eq!(Initiator::login(port, &format!("TargetName={name}:tank:data")).err(), Some(0x0203));
    let mut initiator = Initiator::login(port, &format!("TargetName={name}:cluster")).ok().unwrap();
    let (_, units) = initiator.ask([COMMAND, 0xc0], 64, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], b"");
    assert_eq!((units.len(), units[9], units[17]), (24, 0, 1));

    // 30 KiB, unaligned, within blocks of 16 KiB: the block in the middle is shared.
    let mut noise = 1u64;
    let data: Vec<u8> = (0..64 << 10)
        .map(|_| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (noise >> 56) as u8
        })
        .collect();
    assert_eq!(initiator.send(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 128, 0], &data), 0);
    let mut ids = Vec::new();
    for lun in [0, 1] {
        initiator.lun = lun;
        let (_, page) = initiator.ask([COMMAND, 0xc0], 255, &[0x12, 1, 0x83, 0, 255, 0], b"");
        assert_eq!(page[4..8], [1, 3, 0, 8]);
        ids.push(page[8..16].to_vec());
    }
    let mut list = vec![0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    for id in &ids {
        list.extend([&[0xe4, 0, 0, 0, 1, 3, 0, 8], &id[..], &[0; 12], &[0, 0, 2, 0]].concat());
    }
    list.extend([2, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 60]);
    list.extend([[0, 0, 0, 0, 0, 0, 0, 17], [0, 0, 0, 0, 0, 0, 0, 81]].concat());
    assert_eq!(initiator.send(&[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0, 0], &list), 0);
    let copied: Vec<u8> = (81..141).flat_map(|lba| initiator.read(lba)).collect();
    assert!(copied == data[17 * 512..77 * 512], "what was copied");
    // Copied and synchronized data outlives the daemon.
    assert_eq!(initiator.ask([COMMAND, 0x80], 0, &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], b"").0[3], 0);
    assert_eq!(bench.done("zpool get -H -o value bcloneused tank").trim(), "16K");
    bench.signal(Signal::KILL);
    bench.start(&[&iscsi, "--insecure", "--iscsi-name", name]);
    assert_eq!(targets(port).len(), 3, "without the daemon's map");
    let mut initiator = Initiator::login(port, &format!("TargetName={name}:cluster")).ok().unwrap();
    initiator.lun = 1;
    let copied: Vec<u8> = (81..141).flat_map(|lba| initiator.read(lba)).collect();
    assert!(copied == data[17 * 512..77 * 512], "what was synchronized");
    drop(initiator);
    bench.signal(Signal::TERM);
    zdb_finds_nothing(&bench.path("d"), "tank");
}

#[test]
fn other_machines_are_served_with_accounts_only() {
    let bench = Bench::new(&[]);
    let refused = |options: &[&str]| {
        let socket = bench.text("second/sock");
        let words = [&["serve", "--socket", &socket][..], options].concat();
        let output = bench.run(&words);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--iscsi", "0.0.0.0:0"]).contains("--iscsi-accounts"));
    assert!(refused(&["--iscsi", "unix:/x"]).contains("TCP"));
    assert!(refused(&["--iscsi-name", "storage"]).contains("iqn."));
    assert!(refused(&["--iscsi-lun", "one=tank/v"]).contains("TARGET:NUMBER=VOLUME"));
    let file = bench.path("accounts");
    fs::write(&file, "[[initiator]]\nuser = \"host\"\nsecret = \"short\"").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let file = bench.text("accounts");
    assert!(refused(&["--iscsi", "0.0.0.0:0", "--iscsi-accounts", &file]).contains("chmod 600"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(refused(&["--iscsi", "0.0.0.0:0", "--iscsi-accounts", &file]).contains("12 characters"));
}
