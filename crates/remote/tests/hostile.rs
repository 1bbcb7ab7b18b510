//! The client against servers that lie, stop in the middle, or answer at random: it must neither panic, nor
//! believe them, nor wait for ever.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use cenote_device::Device;
use cenote_disk::Stream;
use cenote_remote::{Dial, ServerDisk, ServerError, nbd};
use cenote_runtime::{Runtime, SimConfig};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const SIZE_BYTES: u64 = 1 << 20;
/// HAS_FLAGS, FLUSH, FUA, TRIM.
const FLAGS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5;

const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const ACK: u32 = 1;
const INFO: u32 = 3;

/// A way to servers: each connection gets the next script, then the last one again.
struct Scripts {
    runtime: Runtime,
    scripts: Vec<Script>,
    made: AtomicUsize,
}

type Script = Arc<dyn Fn(DuplexStream) -> BoxFuture<'static, io::Result<()>> + Send + Sync>;

impl Dial for Scripts {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        let (here, there) = tokio::io::duplex(64 << 10);
        let number = self.made.fetch_add(1, Ordering::Relaxed).min(self.scripts.len() - 1);
        let serving = (self.scripts[number])(there);
        self.runtime.spawn(serving.map(drop)).detach();
        futures::future::ready(Ok(Box::new(here) as Box<dyn Stream>)).boxed()
    }
}

fn script<F: Future<Output = io::Result<()>> + Send + 'static>(
    serve: impl Fn(DuplexStream) -> F + Send + Sync + 'static,
) -> Script {
    Arc::new(move |stream| serve(stream).boxed())
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    reply.put_u64(OPTION_REPLY);
    reply.put_u32(option);
    reply.put_u32(kind);
    reply.put_u32(data.len() as u32);
    reply.put_slice(data);
    reply
}

fn about(size: u64, flags: u16) -> Vec<u8> {
    let mut about = vec![0, 0];
    about.put_u64(size);
    about.put_u16(flags);
    about
}

async fn greet(stream: &mut DuplexStream) -> io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").await?;
    assert_eq!(stream.read_u32().await?, 3);
    Ok(())
}

/// The number of the next option.
async fn option(stream: &mut DuplexStream) -> io::Result<u32> {
    assert_eq!(stream.read_u64().await?, 0x4948_4156_454f_5054);
    let (option, len) = (stream.read_u32().await?, stream.read_u32().await?);
    let mut data = vec![0; len as usize];
    stream.read_exact(&mut data).await?;
    Ok(option)
}

/// Agrees on structured replies and the export.
async fn agree(stream: &mut DuplexStream) -> io::Result<()> {
    greet(stream).await?;
    assert_eq!(option(stream).await?, 8);
    stream.write_all(&option_reply(8, ACK, b"")).await?;
    assert_eq!(option(stream).await?, 7);
    stream.write_all(&option_reply(7, INFO, &about(SIZE_BYTES, FLAGS))).await?;
    stream.write_all(&option_reply(7, ACK, b"")).await
}

struct Asked {
    command: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

async fn request(stream: &mut DuplexStream) -> io::Result<Asked> {
    assert_eq!(stream.read_u32().await?, 0x2560_9513);
    let (_flags, command) = (stream.read_u16().await?, stream.read_u16().await?);
    let (cookie, offset) = (stream.read_u64().await?, stream.read_u64().await?);
    let len = stream.read_u32().await?;
    let mut data = vec![0; if command == 1 { len as usize } else { 0 }];
    stream.read_exact(&mut data).await?;
    Ok(Asked { command, cookie, offset, len })
}

fn chunk(flags: u16, kind: u16, cookie: u64, payload: &[u8]) -> Vec<u8> {
    chunk_saying(flags, kind, cookie, payload.len() as u32, payload)
}

fn chunk_saying(flags: u16, kind: u16, cookie: u64, len: u32, payload: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::new();
    chunk.put_u32(0x668e_33ef);
    chunk.put_u16(flags);
    chunk.put_u16(kind);
    chunk.put_u64(cookie);
    chunk.put_u32(len);
    chunk.put_slice(payload);
    chunk
}

fn data(at: u64, bytes: &[u8]) -> Vec<u8> {
    [&at.to_be_bytes()[..], bytes].concat()
}

fn hole(at: u64, len: u32) -> Vec<u8> {
    [&at.to_be_bytes()[..], &len.to_be_bytes()].concat()
}

fn simple(error: u32, cookie: u64, data: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    reply.put_u32(0x6744_6698);
    reply.put_u32(error);
    reply.put_u64(cookie);
    reply.put_slice(data);
    reply
}

/// Serves as agreed: sevens.
fn honest() -> Script {
    script(|mut stream| async move {
        agree(&mut stream).await?;
        loop {
            let asked = request(&mut stream).await?;
            let reply = match asked.command {
                0 => chunk(1, 1, asked.cookie, &data(asked.offset, &vec![7; asked.len as usize])),
                _ => chunk(1, 0, asked.cookie, b""),
            };
            stream.write_all(&reply).await?;
        }
    })
}

/// Agrees, and answers each request with these bytes.
fn lies(reply: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Script {
    let reply = Arc::new(reply);
    script(move |mut stream| {
        let reply = reply.clone();
        async move {
            agree(&mut stream).await?;
            loop {
                let asked = request(&mut stream).await?;
                stream.write_all(&reply(&asked)).await?;
            }
        }
    })
}

fn way(runtime: &Runtime, scripts: Vec<Script>) -> Arc<Scripts> {
    Arc::new(Scripts { runtime: runtime.clone(), scripts, made: AtomicUsize::new(0) })
}

async fn open(runtime: &Runtime, scripts: Vec<Script>) -> Result<ServerDisk, ServerError> {
    nbd::open("nbd://hostile/x".into(), "x".into(), way(runtime, scripts), false, runtime).await
}

/// Answers to the read of 4 KiB at 4 KiB, each wrong in its own way.
fn wrong_answers() -> Vec<(&'static str, Script)> {
    const HALF: [u8; 2048] = [7; 2048];
    let end = |script: fn(Asked) -> Vec<u8>| {
        self::script(move |mut stream| async move {
            agree(&mut stream).await?;
            let asked = request(&mut stream).await?;
            stream.write_all(&script(asked)).await
        })
    };
    vec![
        ("no magic", lies(|_| vec![0xff; 64])),
        ("another cookie", lies(|asked| chunk(1, 1, asked.cookie + 1, &data(4096, &[7; 4096])))),
        ("a simple reply", lies(|asked| simple(0, asked.cookie, &[7; 4096]))),
        ("extended headers", lies(|_| vec![0x6e, 0x8a, 0x27, 0x8c, 0, 0, 0, 0])),
        ("nothing", lies(|asked| chunk(1, 0, asked.cookie, b""))),
        ("half", lies(|asked| chunk(1, 1, asked.cookie, &data(4096, &HALF)))),
        ("more", lies(|asked| chunk(1, 1, asked.cookie, &data(4096, &[7; 4097])))),
        ("4 GiB", lies(|asked| chunk_saying(1, 1, asked.cookie, u32::MAX, &data(4096, &HALF)))),
        ("no data", lies(|asked| chunk(1, 1, asked.cookie, &data(4096, b"")))),
        ("before the range", lies(|asked| chunk(1, 1, asked.cookie, &data(4095, &[7; 4096])))),
        ("at the end of time", lies(|asked| chunk(1, 1, asked.cookie, &data(u64::MAX, &[7; 4096])))),
        (
            "twice the same half",
            lies(|asked| {
                let half = |flags| chunk(flags, 1, asked.cookie, &data(4096, &HALF));
                [half(0), half(1)].concat()
            }),
        ),
        (
            "halves that overlap",
            lies(|asked| {
                let half = |flags, at| chunk(flags, 1, asked.cookie, &data(at, &HALF));
                [half(0, 6144), half(1, 5000)].concat()
            }),
        ),
        ("a large hole", lies(|asked| chunk(1, 2, asked.cookie, &hole(4096, u32::MAX)))),
        ("an empty hole", lies(|asked| chunk(0, 2, asked.cookie, &hole(4096, 0)))),
        ("a short hole", lies(|asked| chunk(1, 2, asked.cookie, &[0; 11]))),
        ("a status", lies(|asked| chunk(1, 5, asked.cookie, &[0; 12]))),
        ("a short error", lies(|asked| chunk(1, 1 << 15 | 1, asked.cookie, &[0; 5]))),
        (
            "an error with a long message",
            lies(|asked| chunk(1, 1 << 15 | 1, asked.cookie, &[0, 0, 0, 5, 9, 9])),
        ),
        ("a huge error", lies(|asked| chunk_saying(1, 1 << 15 | 1, asked.cookie, 1 << 20, &[0; 6]))),
        ("an end", end(|_| Vec::new())),
        ("an end in a header", end(|asked| chunk(1, 1, asked.cookie, b"")[..10].to_vec())),
        ("an end in the data", end(|asked| chunk_saying(1, 1, asked.cookie, 4104, &data(4096, &HALF)))),
        ("the end of the server", lies(|asked| chunk(1, 1 << 15 | 1, asked.cookie, &[0, 0, 0, 108, 0, 0]))),
        ("silence", lies(|_| Vec::new())),
        ("silence in the data", lies(|asked| chunk_saying(1, 1, asked.cookie, 4104, &data(4096, &HALF)))),
    ]
}

#[test]
fn a_wrong_answer_is_asked_for_again_and_an_honest_server_is_believed() {
    for (name, wrong) in wrong_answers() {
        Runtime::simulate(SimConfig::default(), |runtime| async move {
            let device = open(&runtime, vec![wrong, honest()]).await.unwrap();
            let read = device.read_at(4096, 4096).await;
            assert_eq!(read.unwrap_or_else(|error| panic!("{name}: {error}")), vec![7; 4096], "{name}");
            let took = runtime.now().as_ns() / 1_000_000_000;
            assert!(took < if name.starts_with("silence") { 9 } else { 1 }, "{name}: {took} s");
        });
    }
}

#[test]
fn a_server_that_is_always_wrong_fails_requests_in_time() {
    for (name, wrong) in wrong_answers() {
        Runtime::simulate(SimConfig::default(), |runtime| async move {
            let device = open(&runtime, vec![wrong]).await.unwrap();
            assert!(device.read_at(4096, 4096).await.is_err(), "{name}");
            let took = runtime.now().as_ns() / 1_000_000_000;
            assert!(took <= 40, "{name}: {took} s");
        });
    }
}

#[test]
fn an_error_in_the_middle_of_a_read_fails_it_alone() {
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let broken = lies(|asked| {
            let mut error = BytesMut::new();
            error.put_u32(5);
            error.put_u16(13);
            error.put_slice(b"it\x1b[31m burns");
            let first = chunk(0, 1, asked.cookie, &data(asked.offset, &[7; 16]));
            [first, chunk(0, 1 << 15 | 1, asked.cookie, &error), chunk(1, 0, asked.cookie, b"")].concat()
        });
        let device = open(&runtime, vec![broken]).await.unwrap();
        let error = device.read_at(4096, 4096).await.unwrap_err().to_string();
        assert!(error.contains("it [31m burns"), "without control characters: {error:?}");
        assert!(device.is_there().await.unwrap());
    });
}

#[test]
fn what_is_agreed_must_make_sense() {
    let go = |replies: Vec<Vec<u8>>| {
        script(move |mut stream| {
            let replies = replies.concat();
            async move {
                greet(&mut stream).await?;
                option(&mut stream).await?;
                // ERR_UNSUP: replies are simple.
                stream.write_all(&option_reply(8, 1 << 31 | 1, b"")).await?;
                option(&mut stream).await?;
                stream.write_all(&replies).await
            }
        })
    };
    let info = |data: &[u8]| option_reply(7, INFO, data);
    let sizes = |sizes: [u32; 3]| {
        let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_be_bytes()).collect();
        info(&[&[0, 3][..], &sizes].concat())
    };
    let (size, ack) = (|| info(&about(SIZE_BYTES, FLAGS)), || option_reply(7, ACK, b""));
    let mut long = option_reply(7, INFO, b"");
    long.splice(16..20, u32::MAX.to_be_bytes());
    for (name, script) in [
        (
            "no NBD",
            script(|mut stream| async move { stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await }),
        ),
        (
            "oldstyle",
            script(
                |mut stream| async move { stream.write_all(b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53").await },
            ),
        ),
        ("an end", script(|mut stream| async move { stream.shutdown().await })),
        ("silence", script(|mut stream| async move { stream.read_u64().await.map(drop) })),
        ("no description", go(vec![ack()])),
        ("descriptions without end", go(vec![info(&[9, 9]); 100])),
        ("a short description", go(vec![info(&about(SIZE_BYTES, FLAGS)[..11]), ack()])),
        ("a long reply", go(vec![long])),
        ("another option", go(vec![option_reply(6, ACK, b"")])),
        ("no flags", go(vec![info(&about(SIZE_BYTES, 0)), ack()])),
        ("no flush", go(vec![info(&about(SIZE_BYTES, 1)), ack()])),
        ("blocks of 0", go(vec![size(), sizes([0, 0, 0]), ack()])),
        ("blocks of 3", go(vec![size(), sizes([3, 4096, 1 << 20]), ack()])),
        ("blocks too large", go(vec![size(), sizes([1 << 20, 1 << 20, 1 << 25]), ack()])),
        ("payloads below a block", go(vec![size(), sizes([4096, 4096, 512]), ack()])),
        ("a refusal", go(vec![option_reply(7, 1 << 31 | 6, b"no")])),
        ("an old server", go(vec![option_reply(7, 1 << 31 | 1, b"")])),
    ] {
        Runtime::simulate(SimConfig::default(), |runtime| async move {
            assert!(open(&runtime, vec![script]).await.is_err(), "{name}");
            assert!(runtime.now().as_ns() <= 4_000_000_000, "{name}");
        });
    }
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let fine = go(vec![size(), sizes([512, 65536, u32::MAX]), ack()]);
        let device = open(&runtime, vec![fine]).await.unwrap();
        assert_eq!((device.info().sector_bytes, device.size_bytes()), (4096, SIZE_BYTES));
    });
}

#[test]
fn a_server_that_returns_with_less_is_not_used() {
    let smaller = script(|mut stream| async move {
        greet(&mut stream).await?;
        option(&mut stream).await?;
        stream.write_all(&option_reply(8, ACK, b"")).await?;
        option(&mut stream).await?;
        stream.write_all(&option_reply(7, INFO, &about(SIZE_BYTES / 2, FLAGS))).await?;
        stream.write_all(&option_reply(7, ACK, b"")).await?;
        request(&mut stream).await.map(drop)
    });
    let ends = script(|mut stream| async move {
        agree(&mut stream).await?;
        request(&mut stream).await.map(drop)
    });
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let device = open(&runtime, vec![ends, smaller]).await.unwrap();
        let error = device.write_at(0, vec![1; 512].into()).await.unwrap_err().to_string();
        assert!(error.contains("shrunk"), "{error}");
        assert!(runtime.now().as_ns() < Duration::from_secs(12).as_nanos() as u64);
    });
}
