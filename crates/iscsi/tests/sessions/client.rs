//! An initiator over an in-memory pipe, and a server with RAM disks.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cenote_disk::{Disk, Ended, Errno, Failure, Limits};
use cenote_iscsi::pdu::{Bhs, Digests, FINAL, at, opcode, put_pdu};
use cenote_iscsi::{Accounts, Identity, Luns, Portal, Targets, Unit, Units, Visit};
use cenote_runtime::{Runtime, SimConfig};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all, pending, ready};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

pub const DISK_BYTES: usize = 1 << 20;
pub const TARGET: &str = "iqn.2026-11.org.cenote:ram";
pub const IMMEDIATE: u8 = 0x40;
pub const READS: u8 = 0x40;
pub const WRITES: u8 = 0x20;

/// A RAM disk.
#[derive(Default)]
pub struct Ram {
    pub number: u64,
    pub content: Mutex<Vec<u8>>,
    pub flushes: Mutex<usize>,
    pub kept: Mutex<Option<String>>,
}

pub type Done<T> = Result<T, Failure>;

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
        Identity::new(1, self.number, "ram")
    }
    fn kept(&self) -> BoxFuture<'_, Done<Option<String>>> {
        ready(Ok(self.kept.lock().unwrap().clone())).boxed()
    }
    fn keep(&self, text: Option<String>) -> BoxFuture<'_, Done<()>> {
        *self.kept.lock().unwrap() = text;
        ready(Ok(())).boxed()
    }
}

/// A server with a target of two disks, as units 0 and 7.
#[derive(Default)]
pub struct Server {
    pub disk: Arc<Ram>,
    pub other: Arc<Ram>,
    pub accounts: Accounts,
    pub luns: Luns,
    /// Time after which clients must leave.
    pub leaves_after: Option<Duration>,
}

impl Targets for Server {
    fn list(&self) -> BoxFuture<'_, Vec<String>> {
        ready(vec![TARGET.into()]).boxed()
    }
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Done<Units>> {
        let (disk, other) = (self.disk.clone() as Arc<dyn Unit>, self.other.clone() as Arc<dyn Unit>);
        let found = (name == TARGET).then(|| Units::from([(0, disk), (7, other)]));
        ready(found.ok_or_else(|| Failure::new(Errno::Invalid, "no such target"))).boxed()
    }
}

impl Server {
    pub fn new(accounts: Accounts) -> Server {
        let disk = |number| {
            let content = Mutex::new(vec![0; DISK_BYTES]);
            Arc::new(Ram { number, content, ..Ram::default() })
        };
        let (luns, leaves_after) = Default::default();
        Server { disk: disk(0), other: disk(7), accounts, luns, leaves_after }
    }
}

fn sleep(runtime: &Runtime, time: Duration) -> BoxFuture<'static, ()> {
    let runtime = runtime.clone();
    async move { runtime.sleep(time).await }.boxed()
}

/// Runs a client against a server. Returns how the connection ended.
pub fn session(server: &Server, talk: impl AsyncFnOnce(Client)) -> Result<(), Ended> {
    let [ended] = sessions(server, async |[client]| talk(client).await);
    ended
}

/// Like [`session`], with several concurrent clients.
pub fn sessions<const N: usize>(
    server: &Server,
    talk: impl AsyncFnOnce([Client; N]),
) -> [Result<(), Ended>; N] {
    let work = |runtime: Runtime| async move {
        let portal = Portal { here: "192.0.2.1:3260".into(), all: vec!["192.0.2.2:3260".into()] };
        let mut limits = Limits::new(&runtime, 64 << 20, 1);
        limits.patience = Duration::from_secs(60);
        let (accounts, luns) = (&server.accounts, &server.luns);
        let mut serving = Vec::new();
        let clients = std::array::from_fn(|_| {
            let (here, there) = tokio::io::duplex(1 << 20);
            let leaving = match server.leaves_after {
                Some(time) => sleep(&runtime, time),
                None => pending().boxed(),
            };
            let visit = Visit { stream: Box::new(there), share: limits.share(None), leaving };
            serving.push(cenote_iscsi::serve(visit, &runtime, &limits, server, accounts, &portal, luns));
            Client { stream: here, digests: Digests::default(), cmd_sn: 1, itt: 0, lun: 0 }
        });
        let (ended, ()) = futures::join!(join_all(serving), talk(clients));
        ended.try_into().unwrap()
    };
    Runtime::simulate(SimConfig::default(), work).0
}

/// The initiator's end.
pub struct Client {
    pub stream: DuplexStream,
    pub digests: Digests,
    pub cmd_sn: u32,
    pub itt: u32,
    /// LUN of commands.
    pub lun: u8,
}

/// Outcome of a command: status, data, sense key and code, residual count.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub status: u8,
    pub data: Vec<u8>,
    pub sense: Option<(u8, u16)>,
    pub residual: u32,
}

impl Client {
    pub async fn send(&mut self, bhs: Bhs, data: &[u8]) {
        let (mut pieces, mut arena) = (Vec::new(), bytes::BytesMut::new());
        let data = Bytes::copy_from_slice(data);
        put_pdu(&mut pieces, &mut arena, &bhs.with_data_bytes(data.len()), &data, self.digests);
        // The server may have disconnected.
        self.stream.write_all(&pieces.concat()).await.ok();
    }

    /// The next PDU; `None` if the connection has ended.
    pub async fn next(&mut self) -> Option<(Bhs, Vec<u8>)> {
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

    /// Sends a login request for a stage and its successor. Returns status and text of the response.
    pub async fn login(&mut self, stage: u8, next: Option<u8>, text: &[&str]) -> Option<(u16, Vec<String>)> {
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

    /// Logs in to the target, with additional keys.
    pub async fn enter(&mut self, more: &[&str]) -> Vec<String> {
        let target = format!("TargetName={TARGET}");
        let text = [&["InitiatorName=iqn.host", &*target, "SessionType=Normal"][..], more].concat();
        let (status, answer) = self.login(1, Some(3), &text).await.unwrap();
        assert_eq!(status, 0);
        answer
    }

    /// Sends a command with immediate data, and answers R2Ts with the rest.
    pub async fn ask(&mut self, cdb: &[u8], expects: u32, data: &[u8], immediate: usize) -> Told {
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
        bhs.0[at::LUN + 1] = self.lun;
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

    pub async fn read(&mut self, lba: u8, blocks: u8) -> Told {
        self.ask(&[0x28, 0, 0, 0, 0, lba, 0, 0, blocks, 0], u32::from(blocks) * 512, b"", 0).await
    }

    pub async fn write(&mut self, lba: u8, data: &[u8], immediate: usize) -> Told {
        let blocks = (data.len() / 512) as u16;
        let [high, low] = blocks.to_be_bytes();
        self.ask(&[0x2a, 0, 0, 0, 0, lba, 0, high, low, 0], 0, data, immediate).await
    }
}

pub fn good(data: &[u8]) -> Told {
    Told { data: data.to_vec(), ..Told::default() }
}

pub fn sense(key: u8, code: u16) -> Option<(u8, u16)> {
    Some((key, code))
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 | 1).collect()
}
