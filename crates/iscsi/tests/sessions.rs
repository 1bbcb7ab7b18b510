//! Whole sessions over a pipe in memory: what an initiator says, and what it is told.
//! `proof/iscsi` has clients that are not ours.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cenote_disk::{Disk, Ended, Errno, Failure, Limits};
use cenote_iscsi::pdu::{Bhs, Digests, FINAL, at, opcode, put_pdu};
use cenote_iscsi::{Account, Accounts, Identity, Luns, Portal, Targets, Unit, chap};
use cenote_runtime::{Runtime, SimConfig};
use futures::FutureExt;
use futures::future::{BoxFuture, join, ready};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const DISK_BYTES: usize = 1 << 20;
const TARGET: &str = "iqn.2026-11.org.cenote:ram";
const IMMEDIATE: u8 = 0x40;
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;

/// A disk in memory.
#[derive(Default)]
struct Ram {
    content: Mutex<Vec<u8>>,
    flushes: Mutex<usize>,
    kept: Mutex<Option<String>>,
}

type Done<T> = Result<T, Failure>;

impl Disk for Ram {
    fn size_bytes(&self) -> u64 {
        DISK_BYTES as u64
    }
    fn block_bytes(&self) -> u32 {
        4096
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Done<Bytes>> {
        let content = self.content.lock().unwrap();
        let read = Bytes::copy_from_slice(&content[range.start as usize..range.end as usize]);
        let bad = Failure::new(Errno::Io, "block 13 is bad");
        ready(if range.start == 13 * 512 { Err(bad) } else { Ok(read) }).boxed()
    }
    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Done<()>> {
        self.content.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(&data);
        ready(Ok(())).boxed()
    }
    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, Done<()>> {
        self.content.lock().unwrap()[range.start as usize..range.end as usize].fill(0);
        ready(Ok(())).boxed()
    }
    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, Done<()>> {
        self.zero(range)
    }
    fn flush(&self) -> BoxFuture<'_, Done<()>> {
        *self.flushes.lock().unwrap() += 1;
        ready(Ok(())).boxed()
    }
    fn prefetch(&self, _: Range<u64>) -> BoxFuture<'_, Done<()>> {
        ready(Ok(())).boxed()
    }
    fn extent(&self, range: Range<u64>) -> BoxFuture<'_, Done<(bool, u64)>> {
        ready(Ok((true, range.end))).boxed()
    }
}

impl Unit for Ram {
    fn identity(&self) -> Identity {
        Identity::new(1, 2, "ram")
    }
    fn kept(&self) -> BoxFuture<'_, Done<Option<String>>> {
        ready(Ok(self.kept.lock().unwrap().clone())).boxed()
    }
    fn keep(&self, text: Option<String>) -> BoxFuture<'_, Done<()>> {
        *self.kept.lock().unwrap() = text;
        ready(Ok(())).boxed()
    }
}

/// A server with one disk.
#[derive(Default)]
struct Server {
    disk: Arc<Ram>,
    accounts: Accounts,
    luns: Luns,
}

impl Targets for Server {
    fn list(&self) -> BoxFuture<'_, Vec<String>> {
        ready(vec![TARGET.into()]).boxed()
    }
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Done<Arc<dyn Unit>>> {
        let found = (name == TARGET).then(|| self.disk.clone() as Arc<dyn Unit>);
        ready(found.ok_or_else(|| Failure::new(Errno::Invalid, "no such target"))).boxed()
    }
}

impl Server {
    fn new(accounts: Accounts) -> Server {
        let server = Server { accounts, ..Server::default() };
        *server.disk.content.lock().unwrap() = vec![0; DISK_BYTES];
        server
    }
}

/// What a client does with a server; how the connection ended.
fn session(server: &Server, talk: impl AsyncFnOnce(Client)) -> Result<(), Ended> {
    let work = |runtime: Runtime| async move {
        let (here, there) = tokio::io::duplex(1 << 20);
        let portal = Portal { here: "192.0.2.1:3260".into(), all: vec!["192.0.2.2:3260".into()] };
        let mut limits = Limits::new(64 << 20);
        limits.patience = Duration::from_secs(60);
        let (accounts, luns) = (&server.accounts, &server.luns);
        let there = Box::new(there);
        let serving = cenote_iscsi::serve(there, &runtime, &limits, server, accounts, &portal, luns);
        let client = Client { stream: here, digests: Digests::default(), cmd_sn: 1, itt: 0 };
        join(serving, talk(client)).await.0
    };
    Runtime::simulate(SimConfig::default(), work).0
}

/// The initiator's end.
struct Client {
    stream: DuplexStream,
    digests: Digests,
    cmd_sn: u32,
    itt: u32,
}

/// What a command was told: its status, data, sense key and code, and residual count.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    status: u8,
    data: Vec<u8>,
    sense: Option<(u8, u16)>,
    residual: u32,
}

impl Client {
    async fn send(&mut self, bhs: Bhs, data: &[u8]) {
        let (mut pieces, mut arena) = (Vec::new(), bytes::BytesMut::new());
        let data = Bytes::copy_from_slice(data);
        put_pdu(&mut pieces, &mut arena, &bhs.with_data_bytes(data.len()), &data, self.digests);
        // The server may have gone already.
        self.stream.write_all(&pieces.concat()).await.ok();
    }

    /// The next PDU; none if the connection has ended.
    async fn next(&mut self) -> Option<(Bhs, Vec<u8>)> {
        let mut bhs = Bhs([0; 48]);
        self.stream.read_exact(&mut bhs.0).await.ok()?;
        let digest = |has: bool| vec![0; if has { 4 } else { 0 }];
        let mut sum = digest(self.digests.header);
        self.stream.read_exact(&mut sum).await.unwrap();
        if self.digests.header {
            assert_eq!(sum, crc32c::crc32c(&bhs.0).to_le_bytes());
        }
        let mut data = vec![0; bhs.data_bytes().next_multiple_of(4)];
        self.stream.read_exact(&mut data).await.unwrap();
        if !data.is_empty() && self.digests.data {
            let mut sum = digest(true);
            self.stream.read_exact(&mut sum).await.unwrap();
            assert_eq!(sum, crc32c::crc32c(&data).to_le_bytes());
        }
        data.truncate(bhs.data_bytes());
        Some((bhs, data))
    }

    /// A login request for a stage, which asks for the next one; status and text of the response.
    async fn login(&mut self, stage: u8, next: Option<u8>, text: &[&str]) -> Option<(u16, Vec<String>)> {
        let transit = next.map_or(0, |next| FINAL | next);
        let mut bhs = Bhs::new(opcode::LOGIN | IMMEDIATE, transit | stage << 2).with(at::CMD_SN, self.cmd_sn);
        bhs.0[8..14].copy_from_slice(&[0x80, 0, 0, 0, 0, 1]);
        let text: String = text.iter().map(|pair| format!("{pair}\0")).collect();
        self.send(bhs, text.as_bytes()).await;
        let (reply, data) = self.next().await?;
        assert_eq!(reply.opcode(), opcode::LOGIN_RESPONSE);
        let pairs = String::from_utf8(data).unwrap();
        let pairs = pairs.split('\0').filter(|pair| !pair.is_empty()).map(str::to_owned).collect();
        Some((u16::from_be_bytes([reply.0[36], reply.0[37]]), pairs))
    }

    /// Logs in to the target, with more of what has to be agreed on.
    async fn enter(&mut self, more: &[&str]) -> Vec<String> {
        let target = format!("TargetName={TARGET}");
        let text = [&["InitiatorName=iqn.host", &*target, "SessionType=Normal"][..], more].concat();
        let (status, answer) = self.login(1, Some(3), &text).await.unwrap();
        assert_eq!(status, 0);
        answer
    }

    /// Sends a command with immediate data, and serves R2Ts with the rest of its data.
    async fn ask(&mut self, cdb: &[u8], expects: u32, data: &[u8], immediate: usize) -> Told {
        self.itt += 1;
        let flags = if !data.is_empty() {
            WRITES
        } else if expects > 0 {
            READS
        } else {
            0
        };
        let len = if data.is_empty() { expects } else { data.len() as u32 };
        let mut bhs = Bhs::new(opcode::SCSI_COMMAND, FINAL | flags)
            .with(at::ITT, self.itt)
            .with(at::EXPECTED_BYTES, len)
            .with(at::CMD_SN, self.cmd_sn);
        bhs.0[at::CDB..][..cdb.len()].copy_from_slice(cdb);
        self.cmd_sn += 1;
        self.send(bhs, &data[..immediate]).await;
        let mut told = Told::default();
        loop {
            let (reply, came) = self.next().await.unwrap();
            assert_eq!(reply.itt(), self.itt);
            match reply.opcode() {
                opcode::R2T => {
                    let (start, len) = (reply.word(at::OFFSET) as usize, reply.word(at::LEN) as usize);
                    let parts = data[start..start + len].chunks(8192).enumerate();
                    for (number, part) in parts {
                        let end = (number + 1) * 8192 >= len;
                        let bhs = Bhs::new(opcode::DATA_OUT, if end { FINAL } else { 0 })
                            .with(at::ITT, self.itt)
                            .with(at::TTT, reply.word(at::TTT))
                            .with(at::DATA_SN, number as u32)
                            .with(at::OFFSET, (start + number * 8192) as u32);
                        self.send(bhs, part).await;
                    }
                    continue;
                }
                opcode::DATA_IN => told.data.extend(came),
                opcode::SCSI_RESPONSE => {
                    told.sense = came.get(2..).map(|it| (it[2] & 15, u16::from_be_bytes([it[12], it[13]])));
                }
                other => panic!("opcode {other:x}"),
            }
            if reply.opcode() == opcode::SCSI_RESPONSE || reply.flags() & 1 != 0 {
                (told.status, told.residual) = (reply.0[3], reply.word(at::RESIDUAL));
                return told;
            }
        }
    }

    async fn read(&mut self, lba: u8, blocks: u8) -> Told {
        self.ask(&[0x28, 0, 0, 0, 0, lba, 0, 0, blocks, 0], u32::from(blocks) * 512, b"", 0).await
    }

    async fn write(&mut self, lba: u8, data: &[u8], immediate: usize) -> Told {
        let blocks = (data.len() / 512) as u16;
        let [high, low] = blocks.to_be_bytes();
        self.ask(&[0x2a, 0, 0, 0, 0, lba, 0, high, low, 0], 0, data, immediate).await
    }
}

fn good(data: &[u8]) -> Told {
    Told { data: data.to_vec(), ..Told::default() }
}

fn sense(key: u8, code: u16) -> Option<(u8, u16)> {
    Some((key, code))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 | 1).collect()
}

#[test]
fn targets_are_found_with_the_addresses_to_reach_them() {
    let ended = session(&Server::new(Accounts::default()), async |mut client| {
        let text = ["InitiatorName=iqn.host", "SessionType=Discovery", "MaxRecvDataSegmentLength=512"];
        let (status, answer) = client.login(1, Some(3), &text).await.unwrap();
        assert_eq!((status, &answer[0][..]), (0, "MaxRecvDataSegmentLength=262144"));
        let bhs = Bhs::new(opcode::TEXT, FINAL).with(at::ITT, 7).with(at::TTT, u32::MAX).with(at::CMD_SN, 1);
        client.send(bhs, b"SendTargets=All\0").await;
        let (reply, text) = client.next().await.unwrap();
        assert_eq!((reply.opcode(), reply.itt()), (opcode::TEXT_RESPONSE, 7));
        let wanted =
            format!("TargetName={TARGET}\0TargetAddress=192.0.2.1:3260,1\0TargetAddress=192.0.2.2:3260,1\0");
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
        let bhs = Bhs::new(opcode::LOGOUT, FINAL).with(at::ITT, 8).with(at::CMD_SN, 2);
        client.send(bhs, b"").await;
        assert_eq!(client.next().await.unwrap().0.opcode(), opcode::LOGOUT_RESPONSE);
        assert!(client.next().await.is_none());
    });
    ended.unwrap();
}

#[test]
fn what_is_written_is_read_again() {
    let server = Server::new(Accounts::default());
    let ended = session(&server, async |mut client| {
        client
            .enter(&["MaxBurstLength=65536", "FirstBurstLength=16384", "MaxRecvDataSegmentLength=8192"])
            .await;
        let small = pattern(512);
        assert_eq!(client.write(3, &small, 512).await, good(b""), "immediate data");
        let large = pattern(200 * 1024);
        assert_eq!(client.write(20, &large, 4096).await, good(b""), "immediate data, then four bursts");
        assert_eq!(client.read(3, 1).await, good(&small));
        assert_eq!(client.read(20, 200).await, good(&large[..200 * 512]));
        let bad = client.read(13, 1).await;
        assert_eq!((bad.status, bad.sense, bad.residual), (2, sense(3, 0x1100), 512), "a block is bad");
        let beyond = client.ask(&[0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 0], 512, b"", 0).await;
        assert_eq!(beyond.sense, sense(5, 0x2100), "beyond the end");
        let more = client.ask(&[0x28, 0, 0, 0, 0, 3, 0, 0, 1, 0], 1000, b"", 0).await;
        assert_eq!((more.data.len(), more.residual), (512, 488), "more was expected than there is");
        // SYNCHRONIZE CACHE, and FUA.
        assert_eq!(client.ask(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0, b"", 0).await, good(b""));
        assert_eq!(client.ask(&[0x2a, 8, 0, 0, 0, 3, 0, 0, 1, 0], 0, &small, 512).await, good(b""));
        assert_eq!(*server.disk.flushes.lock().unwrap(), 2);
        // COMPARE AND WRITE: what is there, what shall be.
        let [old, new] = [pattern(512), vec![9; 512]];
        let swap = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0];
        assert_eq!(client.ask(&swap, 0, &[&old[..], &new].concat(), 1024).await, good(b""));
        let again = client.ask(&swap, 0, &[&old[..], &new].concat(), 1024).await;
        assert_eq!(again.sense, sense(14, 0x1d00), "it has changed");
        assert_eq!(client.read(3, 1).await, good(&new));
    });
    ended.unwrap();
}

#[test]
fn digests_are_checked_both_ways() {
    let server = Server::new(Accounts::default());
    let ended = session(&server, async |mut client| {
        let answer = client.enter(&["HeaderDigest=CRC32C,None", "DataDigest=CRC32C"]).await;
        assert!(
            answer.contains(&"HeaderDigest=CRC32C".into()) && answer.contains(&"DataDigest=CRC32C".into())
        );
        client.digests = Digests { header: true, data: true };
        let data = pattern(1024);
        assert_eq!(client.write(0, &data, 1024).await, good(b""));
        assert_eq!(client.read(0, 2).await, good(&data));
        // One wrong bit, and nothing of it is written.
        let mut bhs = Bhs::new(opcode::SCSI_COMMAND, FINAL | WRITES)
            .with(at::ITT, 99)
            .with(at::EXPECTED_BYTES, 512)
            .with(at::CMD_SN, client.cmd_sn)
            .with_data_bytes(512);
        bhs.0[at::CDB] = 0x2a;
        bhs.0[at::CDB + 8] = 1;
        let sum = crc32c::crc32c(&bhs.0).to_le_bytes();
        client.stream.write_all(&[&bhs.0[..], &sum, &[7; 512], &[1; 4]].concat()).await.unwrap();
        assert!(client.next().await.is_none(), "the connection ends");
    });
    assert!(matches!(ended, Err(Ended::Protocol(why)) if why.contains("digest of data")));
    assert_eq!(server.disk.content.lock().unwrap()[..1024], pattern(1024));
}

fn accounts() -> Accounts {
    let account = |user: &str, secret: &str| Account { user: user.into(), secret: secret.into() };
    let initiators = vec![account("host", "a secret of hosts")];
    Accounts { initiators, target: Some(account("storage", "a secret of ours")) }
}

/// Logs in with CHAP; the status, and whether the target has shown that it knows its own secret.
async fn chap_login(client: &mut Client, user: &str, secret: &str) -> (u16, bool) {
    let target = format!("TargetName={TARGET}");
    let first = ["InitiatorName=iqn.host", &target, "AuthMethod=CHAP,None"];
    let (status, answer) = client.login(0, None, &first).await.unwrap();
    assert!(status == 0 && answer.contains(&"AuthMethod=CHAP".into()));
    let (_, asked) = client.login(0, None, &["CHAP_A=7,5"]).await.unwrap();
    let value = |pairs: &[String], key: &str| {
        pairs.iter().find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
    };
    assert_eq!(value(&asked, "CHAP_A").unwrap(), "7");
    let (id, challenge) = (value(&asked, "CHAP_I").unwrap(), value(&asked, "CHAP_C").unwrap());
    let sha = chap::Algorithm::Sha256;
    let response = sha.response(id.parse().unwrap(), secret, &chap::binary(&challenge).unwrap());
    let response = format!("CHAP_R={}", chap::hex(&response));
    let name = format!("CHAP_N={user}");
    let second = [&*name, &response, "CHAP_I=5", "CHAP_C=0x0102030405060708"];
    let (status, answer) = client.login(0, Some(3), &second).await.unwrap();
    let wanted = chap::hex(&sha.response(5, "a secret of ours", &[1, 2, 3, 4, 5, 6, 7, 8]));
    (
        status,
        value(&answer, "CHAP_R") == Some(wanted) && value(&answer, "CHAP_N").as_deref() == Some("storage"),
    )
}

#[test]
fn who_does_not_know_the_secret_is_not_let_in() {
    let server = Server::new(accounts());
    session(&server, async |mut client| {
        assert_eq!(chap_login(&mut client, "host", "a secret of hosts").await, (0, true));
        assert_eq!(client.read(0, 1).await.status, 0);
    })
    .unwrap();
    for (user, secret) in
        [("host", "a wrong secret"), ("other", "a secret of hosts"), ("storage", "a secret of ours")]
    {
        session(&server, async |mut client| {
            assert_eq!(chap_login(&mut client, user, secret).await, (0x0201, false));
            assert!(client.next().await.is_none());
        })
        .unwrap();
    }
    // Nor who leaves the question out.
    let target = format!("TargetName={TARGET}");
    for (stage, more) in [(1, "HeaderDigest=None"), (0, "AuthMethod=None"), (0, "CHAP_N=host")] {
        session(&server, async |mut client| {
            let text = ["InitiatorName=iqn.host", &*target, more];
            let (status, answer) = client.login(stage, Some(3), &text).await.unwrap();
            assert!(status >= 0x0200 && answer.is_empty(), "{status:x} {answer:?}");
        })
        .unwrap();
    }
}

#[test]
fn reservations_outlive_the_server_and_exclude_others() {
    const REGISTER: [u8; 10] = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    const RESERVE: [u8; 10] = [0x5f, 1, 1, 0, 0, 0, 0, 0, 24, 0];
    let server = Server::new(Accounts::default());
    session(&server, async |mut client| {
        client.enter(&[]).await;
        let mut list = [0; 24];
        (list[15], list[20]) = (42, 1);
        assert_eq!(client.ask(&REGISTER, 0, &list, 24).await, good(b""));
        (list[7], list[15], list[20]) = (42, 0, 0);
        assert_eq!(client.ask(&RESERVE, 0, &list, 24).await, good(b""));
        assert_eq!(client.write(0, &pattern(512), 512).await, good(b""));
    })
    .unwrap();
    // The server starts again; another host comes.
    let server = Server { luns: Luns::default(), ..server };
    session(&server, async |mut client| {
        let target = format!("TargetName={TARGET}");
        client.login(1, Some(3), &["InitiatorName=iqn.other", &target]).await.unwrap();
        assert_eq!(client.write(0, &pattern(512), 512).await.status, 0x18, "RESERVATION CONFLICT");
        assert_eq!(client.read(0, 1).await, good(&pattern(512)), "it is exclusive for writing only");
    })
    .unwrap();
}

#[test]
fn hostile_messages_end_the_connection_and_nothing_else() {
    let command = |itt: u32, number: u32| {
        Bhs::new(opcode::SCSI_COMMAND, FINAL).with(at::ITT, itt).with(at::CMD_SN, number)
    };
    let data_out = Bhs::new(opcode::DATA_OUT, FINAL).with(at::ITT, 77).with(at::OFFSET, 1 << 30);
    let cases: &[(&str, Vec<Bhs>, bool)] = &[
        ("16 MiB in one message", vec![command(1, 1).with_data_bytes(0xff_ffff)], false),
        ("data without a command", vec![data_out], true),
        ("a command is left out", vec![command(1, 2)], false),
        ("a command from the past", vec![command(1, 0)], true),
        ("unknown opcodes", vec![Bhs::new(0x1f, FINAL).with(at::CMD_SN, 1), Bhs::new(0x3f, 0)], true),
        ("a command without flags", vec![Bhs::new(opcode::SCSI_COMMAND, 0).with(at::CMD_SN, 1)], false),
        ("much at once", vec![Bhs::new(opcode::NOP_OUT | IMMEDIATE, FINAL); 200], false),
        ("a second login", vec![Bhs::new(opcode::LOGIN | IMMEDIATE, FINAL)], true),
    ];
    for (what, messages, survives) in cases {
        let ended = session(&Server::new(Accounts::default()), async |mut client| {
            client.enter(&[]).await;
            for message in messages {
                client.stream.write_all(&message.0).await.ok();
            }
            client.stream.shutdown().await.ok();
            while client.next().await.is_some() {}
        });
        assert_eq!(ended.is_ok(), *survives, "{what}: {ended:?}");
    }
    for text in
        ["InitiatorName", "=", "\0\0", "InitiatorName=\0", "SessionType=Normal\0", "\u{fffd}=\u{fffd}"]
    {
        let ended = session(&Server::new(Accounts::default()), async |mut client| {
            let answer = client.login(1, Some(3), &[text]).await;
            assert!(answer.is_none_or(|(status, _)| status != 0), "{text:?}");
        });
        ended.unwrap();
    }
    let ended = session(&Server::new(Accounts::default()), async |mut client| {
        client.stream.write_all(&[0x43, 0x87, 0, 0, 0, 0, 0, 9]).await.unwrap();
        assert!(client.next().await.is_none());
    });
    assert!(matches!(ended, Err(Ended::Stalled)), "half a login: {ended:?}");
}
