//! Targets that lie, stop in the middle, or answer at random: the client must neither panic, nor believe
//! them, nor wait for ever.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cenote_device::Device;
use cenote_disk::Stream;
use cenote_disk::stream::write_pieces;
use cenote_iscsi::pdu::{Bhs, Digests, FINAL, PduReader, RESERVED_TAG, at, opcode, put_pdu};
use cenote_remote::iscsi::{self, Login, Owner, Sharing};
use cenote_remote::{Dial, ServerDisk, ServerError};
use cenote_runtime::{Runtime, SimConfig};
use futures::FutureExt;
use futures::future::{BoxFuture, pending, ready};
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

const SECOND: Duration = Duration::from_secs(1);
/// A server that answers, but not this request, is given up after 30 s; more may have begun before.
const PATIENCE: Duration = Duration::from_secs(60);
const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const TO_FULL_FEATURE: u8 = 3;

/// A target's end of a connection.
struct Target {
    reader: PduReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
    stat_sn: u32,
}

type Handler = fn(&mut Target, Bhs) -> BoxFuture<'_, io::Result<()>>;

impl Target {
    fn new(stream: DuplexStream) -> Target {
        let (reader, writer) = tokio::io::split(stream);
        Target { reader: PduReader::new(reader), writer, stat_sn: 1 }
    }

    async fn next(&mut self) -> io::Result<Bhs> {
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let bhs = self.reader.head().await.map_err(|_| gone())?.ok_or_else(gone)?;
        self.reader.data(bhs.data_bytes()).await.map_err(|_| gone())?;
        Ok(bhs)
    }

    /// Sends a message; the length in its header may be another one.
    async fn send(&mut self, mut bhs: Bhs, data: &[u8]) -> io::Result<()> {
        bhs.put(at::STAT_SN, self.stat_sn);
        bhs.put(at::MAX_CMD_SN, 1000);
        self.stat_sn += 1;
        let (mut pieces, mut arena) = (Vec::new(), BytesMut::new());
        let data = Bytes::copy_from_slice(data);
        put_pdu(&mut pieces, &mut arena, &bhs.with_data_bytes(data.len()), &data, Digests::default());
        write_pieces(&mut self.writer, &mut pieces).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Grants every stage, with these parameters.
    async fn log_in(&mut self, parameters: &str) -> io::Result<()> {
        loop {
            let bhs = self.next().await?;
            let reply = Bhs::new(opcode::LOGIN_RESPONSE, bhs.flags());
            self.send(reply, parameters.as_bytes()).await?;
            if bhs.flags() & 3 == TO_FULL_FEATURE {
                return Ok(());
            }
        }
    }

    /// Describes a disk of 8 MiB; reads and writes are for the handler.
    async fn serve(&mut self, handle: Handler) -> io::Result<()> {
        self.log_in("MaxRecvDataSegmentLength=65536\0ImmediateData=Yes\0FirstBurstLength=8192\0").await?;
        loop {
            let bhs = self.next().await?;
            if bhs.opcode() != opcode::SCSI_COMMAND {
                continue;
            }
            let cdb = &bhs.0[at::CDB..];
            let mut capacity = [0; 32];
            (capacity[6], capacity[7], capacity[10]) = (0x3f, 0xff, 2);
            match (cdb[0], cdb[1], cdb[2]) {
                (0x88 | 0x8a, ..) => handle(self, bhs).await?,
                (0x12, 0, _) => self.data_in(&bhs, 0, &[0; 36]).await?,
                (0x12, 1, 0) => self.data_in(&bhs, 0, &[0, 0, 0, 2, 0, 0x83]).await?,
                (0x12, 1, page) => self.data_in(&bhs, 0, &[0, page, 0, 4, 1, 2, 3, 4]).await?,
                (0x9e, ..) => self.data_in(&bhs, 0, &capacity).await?,
                (0x1a, ..) => self.data_in(&bhs, 0, &[3, 0, 0, 0]).await?,
                (0x5e | 0x5f, ..) => self.respond(&bhs, CHECK_CONDITION, &INVALID_OPCODE).await?,
                _ => self.respond(&bhs, GOOD, b"").await?,
            }
        }
    }

    async fn respond(&mut self, to: &Bhs, status: u8, sense: &[u8]) -> io::Result<()> {
        let mut bhs = Bhs::new(opcode::SCSI_RESPONSE, FINAL).with(at::ITT, to.itt());
        bhs.0[3] = status;
        self.send(bhs, sense).await
    }

    /// Data with a good status.
    async fn data_in(&mut self, to: &Bhs, offset: u32, data: &[u8]) -> io::Result<()> {
        let bhs = Bhs::new(opcode::DATA_IN, FINAL | 1).with(at::ITT, to.itt()).with(at::OFFSET, offset);
        self.send(bhs, data).await
    }

    async fn r2t(&mut self, to: &Bhs, offset: u32, len: u32) -> io::Result<()> {
        let bhs = Bhs::new(opcode::R2T, FINAL).with(at::ITT, to.itt()).with(at::TTT, 7);
        self.send(bhs.with(at::OFFSET, offset).with(at::LEN, len), b"").await
    }
}

const INVALID_OPCODE: [u8; 20] = [0, 18, 0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0];

/// A way to targets: each connection meets the same one.
struct Way<F> {
    runtime: Runtime,
    made: AtomicUsize,
    serve: F,
}

impl<F: Fn(DuplexStream, usize) -> BoxFuture<'static, io::Result<()>> + Send + Sync> Dial for Way<F> {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        let (here, there) = tokio::io::duplex(64 << 10);
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.runtime.spawn((self.serve)(there, number).map(drop)).detach();
        ready(Ok(Box::new(here) as Box<dyn Stream>)).boxed()
    }
}

async fn open(
    runtime: &Runtime,
    serve: impl Fn(DuplexStream, usize) -> BoxFuture<'static, io::Result<()>> + Send + Sync + 'static,
) -> Result<ServerDisk, ServerError> {
    let dial = Arc::new(Way { runtime: runtime.clone(), made: AtomicUsize::new(0), serve });
    let (target, initiator) = ("iqn.hostile".into(), "iqn.host".into());
    let login = Login { target, lun: 0, initiator, chap: None, owner: Owner::with(1, 1) };
    iscsi::open("iscsi://hostile/disk".into(), login, dial, Sharing::Writes, runtime).await
}

async fn open_on(runtime: &Runtime, handle: Handler) -> ServerDisk {
    let serve = move |stream, _| async move { Target::new(stream).serve(handle).await }.boxed();
    open(runtime, serve).await.unwrap()
}

#[test]
fn a_read_is_not_answered_by_other_data() {
    let handlers: [(&str, Handler); 12] = [
        ("more than asked for", |target, bhs| {
            async move { target.data_in(&bhs, 0, &[1; 8192]).await }.boxed()
        }),
        ("elsewhere", |target, bhs| async move { target.data_in(&bhs, 512, &[1; 4096]).await }.boxed()),
        ("far away", |target, bhs| async move { target.data_in(&bhs, u32::MAX, &[1; 4096]).await }.boxed()),
        ("a part", |target, bhs| async move { target.data_in(&bhs, 0, &[1; 512]).await }.boxed()),
        ("nothing", |target, bhs| async move { target.respond(&bhs, GOOD, b"").await }.boxed()),
        ("for another command", |target, bhs| {
            async move { target.data_in(&Bhs::new(0, 0).with(at::ITT, bhs.itt() + 1), 0, &[1; 4096]).await }
                .boxed()
        }),
        ("as an unknown message", |target, _| {
            async move { target.send(Bhs::new(0x3e, FINAL), b"").await }.boxed()
        }),
        ("rejected", |target, _| {
            async move { target.send(Bhs::new(opcode::REJECT, FINAL), &[0; 48]).await }.boxed()
        }),
        ("without end", |target, _| {
            async move {
                target.writer.write_all(&Bhs::new(opcode::DATA_IN, 0).with_data_bytes(0xff_ffff).0).await?;
                pending().await
            }
            .boxed()
        }),
        ("asked for as if it were a write", |target, bhs| {
            async move { target.r2t(&bhs, 0, 512).await }.boxed()
        }),
        ("never", |_, _| ready(Ok(())).boxed()),
        ("with a goodbye", |target, _| {
            async move {
                let mut bhs = Bhs::new(opcode::ASYNC, FINAL).with(at::ITT, RESERVED_TAG);
                bhs.0[36] = 1;
                target.send(bhs, b"").await
            }
            .boxed()
        }),
    ];
    for (what, handle) in handlers {
        Runtime::simulate(SimConfig::default(), |runtime| async move {
            let device = open_on(&runtime, handle).await;
            let begun = runtime.now();
            let error = device.read_at(0, 4096).await.map(drop).unwrap_err();
            let took = runtime.now().since(begun);
            assert!(took <= PATIENCE, "{what}: {error} after {took:?}");
        });
    }
}

#[test]
fn a_write_is_not_sent_twice_or_beyond_its_end_nor_believed_half_taken() {
    let handlers: [(&str, Handler); 6] = [
        ("too long", |target, bhs| async move { target.r2t(&bhs, 8192, 1 << 20).await }.boxed()),
        ("all", |target, bhs| async move { target.r2t(&bhs, 8192, u32::MAX).await }.boxed()),
        ("again", |target, bhs| async move { target.r2t(&bhs, 0, 8192).await }.boxed()),
        ("nothing", |target, bhs| async move { target.r2t(&bhs, 8192, 0).await }.boxed()),
        ("twice", |target, bhs| {
            async move {
                target.r2t(&bhs, 8192, 512).await?;
                target.r2t(&bhs, 8192, 512).await
            }
            .boxed()
        }),
        ("half taken", |target, bhs| async move { target.respond(&bhs, GOOD, b"").await }.boxed()),
    ];
    for (what, handle) in handlers {
        Runtime::simulate(SimConfig::default(), |runtime| async move {
            let device = open_on(&runtime, handle).await;
            let begun = runtime.now();
            let error = device.write_at(0, vec![1; 512 << 10].into()).await.unwrap_err();
            let took = runtime.now().since(begun);
            assert!(took <= PATIENCE, "{what}: {error} after {took:?}");
        });
    }
}

#[test]
fn an_error_is_one_of_its_command_alone_however_it_is_told() {
    let handlers: [(&str, Handler); 4] = [
        ("without sense data", |target, bhs| {
            async move { target.respond(&bhs, CHECK_CONDITION, b"").await }.boxed()
        }),
        ("sense key 3", |target, bhs| {
            async move { target.respond(&bhs, CHECK_CONDITION, &[0, 3, 0x70, 0, 3]).await }.boxed()
        }),
        ("sense key 4, code 44h/00h", |target, bhs| {
            async move { target.respond(&bhs, CHECK_CONDITION, &[255, 255, 0x72, 4, 0x44, 0]).await }.boxed()
        }),
        ("status 0x77", |target, bhs| async move { target.respond(&bhs, 0x77, &[9; 300]).await }.boxed()),
    ];
    for (wanted, handle) in handlers {
        Runtime::simulate(SimConfig::default(), |runtime| async move {
            let device = open_on(&runtime, handle).await;
            let error = device.read_at(0, 4096).await.map(drop).unwrap_err().to_string();
            assert!(error.contains(wanted), "{wanted}: {error}");
            device.flush().await.unwrap();
            assert!(runtime.now().as_ns() < 1_000_000_000);
        });
    }
}

#[test]
fn a_busy_target_is_asked_again_but_not_for_ever() {
    const BUSY: u8 = 8;
    let handle: Handler = |target, bhs| async move { target.respond(&bhs, BUSY, b"").await }.boxed();
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let device = open_on(&runtime, handle).await;
        device.read_at(0, 4096).await.map(drop).unwrap_err();
        let took_s = runtime.now().as_ns() / 1_000_000_000;
        assert!((30..60).contains(&took_s), "{took_s}");
        device.flush().await.unwrap();
    });
}

#[test]
fn a_bad_login_is_an_error_soon() {
    let endless = format!("X={}\0", "x".repeat(8000));
    for (parameters, wanted) in [
        ("MaxRecvDataSegmentLength=0\0", "out of range"),
        ("MaxRecvDataSegmentLength=512\0FirstBurstLength=1\0", "out of range"),
        ("DataDigest=CRC32C\0", "not offered"),
        ("no pair\0", "malformed"),
        ("AuthMethod=CHAP\0", "another name or secret"),
        ("\u{fffd}=x\0", ""),
        (&endless, ""),
    ] {
        let parameters: Arc<str> = parameters.into();
        Runtime::simulate(SimConfig::default(), |runtime| async move {
            let serve = move |stream, _| {
                let parameters = parameters.clone();
                async move {
                    let mut target = Target::new(stream);
                    target.log_in(&parameters).await?;
                    pending().await
                }
                .boxed()
            };
            let Err(error) = open(&runtime, serve).await else { panic!("it is open") };
            assert!(error.to_string().contains(wanted), "{wanted}: {error}");
            assert!(runtime.now().as_ns() < 10_000_000_000, "{error}");
        });
    }
}

#[test]
fn random_answers_do_no_harm() {
    for seed in 0..400u64 {
        Runtime::simulate(SimConfig { seed, ..SimConfig::default() }, |runtime| async move {
            let dice = runtime.clone();
            let serve = move |stream: DuplexStream, number: usize| {
                let dice = dice.clone();
                async move {
                    let mut target = Target::new(stream);
                    // Often a login first.
                    if number == 0 || !dice.random_u64().is_multiple_of(4) {
                        target.log_in("ImmediateData=Yes\0").await?;
                    }
                    loop {
                        if dice.random_u64().is_multiple_of(3) {
                            target.next().await?;
                        }
                        const TYPES: [u8; 9] = [0x20, 0x21, 0x21, 0x25, 0x25, 0x31, 0x32, 0x26, 0x3f];
                        let kind = TYPES[dice.random_u64() as usize % TYPES.len()];
                        let mut bhs = Bhs::new(kind, dice.random_u64() as u8);
                        for index in 2..48 {
                            let byte = dice.random_u64();
                            bhs.0[index] = if byte.is_multiple_of(2) { 0 } else { (byte >> 8) as u8 % 9 };
                        }
                        bhs.0[4] = 0;
                        bhs.put(at::ITT, dice.random_u64() as u32 % 8);
                        let data = vec![dice.random_u64() as u8; dice.random_u64() as usize % 64];
                        target.send(bhs, &data).await?;
                    }
                }
                .boxed()
            };
            let opening = runtime.timeout(10 * SECOND, open(&runtime, serve)).await;
            if let Ok(Ok(device)) = opening {
                drop(runtime.timeout(PATIENCE, device.read_at(0, 4096)).await.unwrap());
            }
        });
    }
}
