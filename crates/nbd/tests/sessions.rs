//! Whole sessions over an in-memory pipe.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use cenote_disk::{Disk, Ended, Errno, Failure, Limits};
use cenote_nbd::handshake::Outcome;
use cenote_nbd::wire::{Command, can, flag, info, option, reply};
use cenote_nbd::{Export, Exports, Extent, Handshake, Listed, Offer, transmit};
use cenote_runtime::{Runtime, SimConfig};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const DISK_BYTES: usize = 1 << 20;
const BLOCK_BYTES: u32 = 4096;
const CHANGED: &str = "test:changed";

/// A RAM disk whose zero blocks are holes.
#[derive(Default)]
struct Ram {
    content: Mutex<Vec<u8>>,
    flushes: Mutex<usize>,
    is_read_only: bool,
}

impl Ram {
    fn new(is_read_only: bool) -> Arc<Ram> {
        Arc::new(Ram { content: Mutex::new(vec![0; DISK_BYTES]), is_read_only, ..Ram::default() })
    }
}

fn span(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl Disk for Ram {
    fn size_bytes(&self) -> u64 {
        DISK_BYTES as u64
    }
    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }
    fn is_read_only(&self) -> bool {
        self.is_read_only
    }
    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Failure>> {
        let read = async move {
            if range.start == 13 << 12 {
                return Err(Failure::new(Errno::Io, "block 13 is bad"));
            }
            Ok(Bytes::copy_from_slice(&self.content.lock().unwrap()[span(&range)]))
        };
        read.boxed()
    }
    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), Failure>> {
        let range = offset..offset + data.len() as u64;
        self.content.lock().unwrap()[span(&range)].copy_from_slice(&data);
        futures::future::ready(Ok(())).boxed()
    }
    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.content.lock().unwrap()[span(&range)].fill(0);
        futures::future::ready(Ok(())).boxed()
    }
    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.zero(range)
    }
    fn flush(&self) -> BoxFuture<'_, Result<(), Failure>> {
        *self.flushes.lock().unwrap() += 1;
        futures::future::ready(Ok(())).boxed()
    }
    fn prefetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.read(range).map(|done| done.map(drop)).boxed()
    }
    fn extent(&self, _: Range<u64>) -> BoxFuture<'_, Result<(bool, u64), Failure>> {
        unreachable!("NBD asks for extents in a context")
    }
}

impl Export for Ram {
    fn description(&self) -> String {
        "a disk in memory".into()
    }
    fn contexts<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Vec<String>> {
        let found = if query == CHANGED { vec![CHANGED.to_owned()] } else { Vec::new() };
        futures::future::ready(found).boxed()
    }
    fn extents<'a>(
        &'a self,
        context: &'a str,
        range: Range<u64>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Extent>, Failure>> {
        let content = self.content.lock().unwrap();
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = (at + 1).next_multiple_of(BLOCK_BYTES.into()).min(range.end);
            let is_zero = content[span(&(at..end))].iter().all(|&byte| byte == 0);
            let flags = match (context == CHANGED, is_zero) {
                (true, is_zero) => u32::from(!is_zero),
                (false, true) => Extent::HOLE | Extent::ZERO,
                (false, false) => 0,
            };
            match extents.last_mut() {
                Some(last) if last.flags == flags => last.len_bytes += end - at,
                _ => extents.push(Extent { len_bytes: end - at, flags }),
            }
            at = end;
        }
        extents.truncate(most);
        futures::future::ready(Ok(extents)).boxed()
    }
}

struct Disks(Vec<(&'static str, Arc<Ram>)>);

impl Exports for Disks {
    fn list(&self) -> BoxFuture<'_, Vec<Listed>> {
        let listed = |(name, _): &(&str, Arc<Ram>)| Listed {
            name: (*name).into(),
            description: "a disk in memory".into(),
        };
        futures::future::ready(self.0.iter().map(listed).collect()).boxed()
    }
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Export>, Failure>> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        let found = found.map(|(_, disk)| disk.clone() as Arc<dyn Export>);
        futures::future::ready(found.ok_or_else(|| Failure::new(Errno::Invalid, "no such disk"))).boxed()
    }
}

/// The client side.
struct Client {
    stream: DuplexStream,
    is_extended: bool,
}

/// A reply in transmission.
#[derive(Debug, PartialEq, Eq)]
struct Chunk {
    is_last: bool,
    kind: u16,
    cookie: u64,
    payload: Vec<u8>,
}

impl Client {
    async fn greeted(mut stream: DuplexStream) -> Client {
        assert_eq!(stream.read_u64().await.unwrap(), 0x4e42_444d_4147_4943);
        assert_eq!(stream.read_u64().await.unwrap(), 0x4948_4156_454f_5054);
        assert_eq!(stream.read_u16().await.unwrap(), 3);
        stream.write_u32(3).await.unwrap();
        Client { stream, is_extended: false }
    }

    /// All replies to an option, including the final one.
    async fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.stream.write_all(&option_message(option, data)).await.unwrap();
        let mut replies = Vec::new();
        loop {
            assert_eq!(self.stream.read_u64().await.unwrap(), 0x0003_e889_0455_65a9);
            assert_eq!(self.stream.read_u32().await.unwrap(), option);
            let kind = self.stream.read_u32().await.unwrap();
            let mut data = vec![0; self.stream.read_u32().await.unwrap() as usize];
            self.stream.read_exact(&mut data).await.unwrap();
            replies.push((kind, data));
            if kind == reply::ACK || kind >= 1 << 31 {
                return replies;
            }
        }
    }

    async fn go(&mut self, name: &str) -> Vec<(u32, Vec<u8>)> {
        let mut data = named(name);
        data.put_u16(0);
        self.option(option::GO, &data).await
    }

    async fn ask(&mut self, (flags, command): (u16, u16), cookie: u64, range: Range<u64>, data: &[u8]) {
        let mut request = BytesMut::new();
        request.put_u32(if self.is_extended { 0x21e4_1c71 } else { 0x2560_9513 });
        request.put_u16(if self.is_extended && !data.is_empty() { flags | flag::PAYLOAD_LEN } else { flags });
        request.put_u16(command);
        request.put_u64(cookie);
        request.put_u64(range.start);
        let len = range.end - range.start;
        if self.is_extended {
            request.put_u64(len);
        } else {
            request.put_u32(len as u32);
        }
        request.put_slice(data);
        self.stream.write_all(&request).await.unwrap();
    }

    async fn simple(&mut self, data_bytes: usize) -> (u32, u64, Vec<u8>) {
        assert_eq!(self.stream.read_u32().await.unwrap(), 0x6744_6698);
        let (error, cookie) = (self.stream.read_u32().await.unwrap(), self.stream.read_u64().await.unwrap());
        let mut data = vec![0; if error == 0 { data_bytes } else { 0 }];
        self.stream.read_exact(&mut data).await.unwrap();
        (error, cookie, data)
    }

    async fn chunk(&mut self) -> Chunk {
        let magic = self.stream.read_u32().await.unwrap();
        assert_eq!(magic, if self.is_extended { 0x6e8a_278c } else { 0x668e_33ef });
        let is_last = self.stream.read_u16().await.unwrap() == 1;
        let kind = self.stream.read_u16().await.unwrap();
        let cookie = self.stream.read_u64().await.unwrap();
        let len = match self.is_extended {
            true => {
                self.stream.read_u64().await.unwrap();
                self.stream.read_u64().await.unwrap()
            }
            false => self.stream.read_u32().await.unwrap().into(),
        };
        let mut payload = vec![0; len as usize];
        self.stream.read_exact(&mut payload).await.unwrap();
        Chunk { is_last, kind, cookie, payload }
    }
}

/// Encodes an option.
fn option_message(option: u32, data: &[u8]) -> Vec<u8> {
    let mut message = b"IHAVEOPT".to_vec();
    message.put_u32(option);
    message.put_u32(data.len() as u32);
    message.put_slice(data);
    message
}

fn named(name: &str) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_u32(name.len() as u32);
    data.put_slice(name.as_bytes());
    data
}

fn contexts_of(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = named(name);
    data.put_u32(queries.len() as u32);
    queries.iter().for_each(|query| data.put_slice(&named(query)));
    data
}

/// Runs a client against a server with two disks, `rw` and `ro`. Returns how the server ended.
fn session<F: Future<Output = ()>>(
    rw: &Arc<Ram>,
    offer: Offer,
    client: impl FnOnce(DuplexStream) -> F,
) -> Result<(), Ended> {
    let (here, there) = tokio::io::duplex(64 << 10);
    let disks = Disks(vec![("rw", rw.clone()), ("ro", Ram::new(true))]);
    let (ended, _) = Runtime::simulate(SimConfig::default(), |runtime| async move {
        let limits = Limits::new(&runtime, 64 << 20, 1);
        let server = async {
            let mut stream: Box<dyn cenote_disk::Stream> = Box::new(there);
            match Handshake::new(&mut *stream, &disks, offer).run(&runtime, &limits).await? {
                Outcome::Chosen(chosen) => {
                    transmit(stream, chosen, &runtime, &limits, limits.share(None)).await
                }
                Outcome::StartTls | Outcome::Left => Ok(()),
            }
        };
        futures::join!(server, client(here)).0
    });
    ended
}

#[test]
fn exports_are_listed_described_and_refused() {
    let ended = session(&Ram::new(false), Offer::Plain, async |stream| {
        let mut client = Client::greeted(stream).await;
        let listed = client.option(option::LIST, b"").await;
        assert_eq!(listed.len(), 3);
        assert_eq!(listed[0].1, [&b"\0\0\0\x02rw"[..], b"a disk in memory"].concat());
        let mut wanted = named("ro");
        wanted.extend([0, 1, 0, 2]);
        let told = client.option(option::INFO, &wanted).await;
        let of = |kind: u16| told.iter().find(|(_, data)| data.starts_with(&kind.to_be_bytes())).unwrap();
        assert_eq!(of(info::DESCRIPTION).1[2..], *b"a disk in memory");
        let flags = u16::from_be_bytes(of(info::EXPORT).1[10..12].try_into().unwrap());
        assert!(flags & can::READ_ONLY != 0 && flags & can::MULTI_CONN != 0 && flags & can::TRIM == 0);
        assert_eq!(client.go("nothing").await, [(reply::ERR_UNKNOWN, b"no such disk".to_vec())]);
        assert_eq!(client.option(77, b"what").await[0].0, reply::ERR_UNSUP);
        assert_eq!(client.option(option::STARTTLS, b"").await[0].0, reply::ERR_POLICY);
        assert_eq!(client.option(option::GO, b"\0\0\0\x09rw").await[0].0, reply::ERR_INVALID);
        assert_eq!(client.option(option::ABORT, b"").await[0].0, reply::ACK);
    });
    assert!(ended.is_ok(), "{ended:?}");
}

#[test]
fn what_is_written_is_read_by_simple_replies() {
    let disk = Ram::new(false);
    let ended = session(&disk, Offer::Plain, async |stream| {
        let mut client = Client::greeted(stream).await;
        assert_eq!(client.go("rw").await.last().unwrap().0, reply::ACK);
        client.ask((flag::FUA, 1), 7, 100..105, b"hello").await;
        assert_eq!(client.simple(0).await, (0, 7, vec![]));
        client.ask((0, 0), 8, 99..106, b"").await;
        assert_eq!(client.simple(7).await, (0, 8, b"\0hello\0".to_vec()));
        // Beyond the end; unknown command; block status without a context.
        let end = DISK_BYTES as u64;
        client.ask((0, 0), 9, end - 1..end + 1, b"").await;
        assert_eq!(client.simple(2).await.0, Errno::Invalid as u32);
        client.ask((0, 1), 9, end - 1..end + 1, b"ab").await;
        assert_eq!(client.simple(0).await.0, Errno::NoSpace as u32);
        client.ask((0, 99), 9, 0..1, b"").await;
        assert_eq!(client.simple(0).await.0, Errno::NotSupported as u32);
        client.ask((0, 7), 9, 0..1, b"").await;
        assert_eq!(client.simple(0).await.0, Errno::Invalid as u32);
        client.ask((0, 4), 10, 0..4096, b"").await;
        assert_eq!(client.simple(0).await, (0, 10, vec![]));
        client.ask((0, 0), 11, 100..105, b"").await;
        assert_eq!(client.simple(5).await.2, [0; 5]);
        client.ask((0, 2), 12, 0..0, b"").await;
    });
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(*disk.flushes.lock().unwrap(), 1, "FUA");
}

#[test]
fn holes_and_errors_come_in_chunks() {
    let disk = Ram::new(false);
    for is_extended in [false, true] {
        disk.content.lock().unwrap().fill(0);
        disk.content.lock().unwrap()[8192..12288].fill(0xab);
        let ended = session(&disk, Offer::Plain, async |stream| {
            let mut client = Client::greeted(stream).await;
            let form = if is_extended { option::EXTENDED_HEADERS } else { option::STRUCTURED_REPLY };
            assert_eq!(client.option(form, b"").await[0].0, reply::ACK);
            let queries = contexts_of("rw", &["base:allocation", CHANGED, "other:thing"]);
            let set = client.option(option::SET_META_CONTEXT, &queries).await;
            assert_eq!(set.len(), 3, "{set:?}");
            client.go("rw").await;
            client.is_extended = is_extended;

            client.ask((0, 0), 1, 4096..16384, b"").await;
            let chunks = [client.chunk().await, client.chunk().await, client.chunk().await];
            assert_eq!(chunks.each_ref().map(|chunk| chunk.kind), [2, 1, 2]);
            assert_eq!(chunks.each_ref().map(|chunk| chunk.is_last), [false, false, true]);
            assert_eq!(chunks[0].payload, [&4096u64.to_be_bytes()[..], &4096u32.to_be_bytes()].concat());
            assert_eq!(chunks[1].payload[8..], [0xab; 4096]);
            // DF: not in pieces.
            client.ask((flag::DF, 0), 2, 4096..16384, b"").await;
            let whole = client.chunk().await;
            assert!(whole.is_last && whole.kind == 1 && whole.payload.len() == 8 + 12288);

            client.ask((0, 7), 3, 0..DISK_BYTES as u64, b"").await;
            let (base, changed) = (client.chunk().await, client.chunk().await);
            assert!(!base.is_last && changed.is_last);
            let word =
                |chunk: &Chunk, at: usize| u32::from_be_bytes(chunk.payload[at..at + 4].try_into().unwrap());
            match is_extended {
                false => {
                    assert_eq!([0, 4, 8, 12, 16].map(|at| word(&base, at)), [0, 8192, 3, 4096, 0]);
                    assert_eq!([0, 4, 8, 12, 16].map(|at| word(&changed, at)), [1, 8192, 0, 4096, 1]);
                }
                true => {
                    assert_eq!([0, 4, 12, 20, 28, 36].map(|at| word(&base, at)), [0, 3, 8192, 3, 4096, 0])
                }
            }
            client.ask((flag::REQ_ONE, 7), 3, 0..DISK_BYTES as u64, b"").await;
            assert_eq!(client.chunk().await.payload.len(), if is_extended { 24 } else { 12 });
            client.chunk().await;

            client.ask((0, 0), 4, 13 << 12..(13 << 12) + 1, b"").await;
            let failed = client.chunk().await;
            assert_eq!((failed.kind, failed.cookie), ((1 << 15) + 1, 4));
            assert_eq!(failed.payload[6..], *b"block 13 is bad");
            client.ask((0, 1), 5, 0..3, b"abc").await;
            assert_eq!((client.chunk().await.kind, client.chunk_count()), (0, 0));
            client.ask((0, 2), 6, 0..0, b"").await;
        });
        assert!(ended.is_ok(), "{ended:?}");
    }
    assert_eq!(disk.content.lock().unwrap()[..3], *b"abc");
}

impl Client {
    /// Unread bytes, at most 1.
    fn chunk_count(&mut self) -> usize {
        let mut byte = [0];
        self.stream.read(&mut byte).now_or_never().map_or(0, |read| read.unwrap())
    }
}

#[test]
fn a_read_only_export_is_not_changed() {
    let ended = session(&Ram::new(false), Offer::Plain, async |stream| {
        let mut client = Client::greeted(stream).await;
        client.go("ro").await;
        for (cookie, (command, data)) in [(1, &b"abc"[..]), (4, b""), (6, b"")].into_iter().enumerate() {
            client.ask((0, command), cookie as u64, 0..3, data).await;
            assert_eq!(client.simple(0).await, (Errno::Perm as u32, cookie as u64, vec![]), "{command}");
        }
        client.ask((0, 3), 9, 0..0, b"").await;
        assert_eq!(client.simple(0).await.0, 0);
    });
    assert!(ended.is_ok(), "a client may go without a word: {ended:?}");
}

#[test]
fn without_tls_nothing_is_told_if_it_must_be() {
    let ended = session(&Ram::new(false), Offer::OnlyTls, async |stream| {
        let mut client = Client::greeted(stream).await;
        for option in [option::LIST, option::STRUCTURED_REPLY] {
            assert_eq!(client.option(option, b"").await[0].0, reply::ERR_TLS_REQD);
        }
        assert_eq!(client.go("rw").await[0].0, reply::ERR_TLS_REQD);
        assert_eq!(client.option(option::STARTTLS, b"").await[0].0, reply::ACK);
    });
    assert!(ended.is_ok(), "{ended:?}");
    let ended = session(&Ram::new(false), Offer::OnlyTls, async |stream| {
        let mut client = Client::greeted(stream).await;
        client.stream.write_all(&option_message(option::EXPORT_NAME, b"rw")).await.unwrap();
        assert_eq!(client.stream.read(&mut [0; 8]).await.unwrap(), 0, "the connection ends");
    });
    assert!(matches!(ended, Err(Ended::Protocol(_))));
}

#[test]
fn who_stalls_or_says_nonsense_is_disconnected() {
    let greeting = |bytes: &'static [u8]| {
        session(&Ram::new(false), Offer::Plain, async move |mut stream| {
            stream.write_all(bytes).await.unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
        })
    };
    assert!(matches!(greeting(b"\0\0\0\x01IHAVE"), Err(Ended::Stalled)));
    assert!(matches!(greeting(b"\0\0\0\x01GET / HTTP/1.1\r\n\r\n"), Err(Ended::Protocol(_))));
    assert!(matches!(greeting(b"\xff\0\0\0"), Err(Ended::Protocol(_))));
    for (request, why) in [
        (&b"\x25\x60\x95\x13\0\0\0\x01aaaaaaaa\0\0\0\0\0\0\0\0\xff\xff\xff\xff"[..], "payload"),
        (b"\x25\x60\x95\x14\0\0\0\x01aaaaaaaa\0\0\0\0\0\0\0\0\0\0\0\0", "magic"),
    ] {
        let ended = session(&Ram::new(false), Offer::Plain, async |stream| {
            let mut client = Client::greeted(stream).await;
            client.go("rw").await;
            client.stream.write_all(request).await.unwrap();
            assert_eq!(client.stream.read(&mut [0; 8]).await.unwrap(), 0, "the connection ends");
        });
        assert!(matches!(ended, Err(Ended::Protocol(told)) if told.contains(why)), "{why}");
    }
}

#[test]
fn a_client_that_does_not_read_is_let_go() {
    let ended = session(&Ram::new(false), Offer::Plain, async |stream| {
        let mut client = Client::greeted(stream).await;
        client.go("rw").await;
        for cookie in 0..200 {
            // The pipe fills up once the server stops reading.
            if client.ask((0, 0), cookie, 0..DISK_BYTES as u64, b"").now_or_never().is_none() {
                break;
            }
        }
        // Not dropped, so that the server must disconnect by itself.
        std::mem::forget(client);
    });
    assert!(matches!(ended, Err(Ended::Stalled)), "{ended:?}");
}

#[test]
fn commands_have_the_numbers_of_the_protocol() {
    assert_eq!(Command::from(7), Command::BlockStatus);
    assert_eq!(Command::from(8), Command::Unknown);
}
