//! Network disk clients: whole NBD and iSCSI sessions with a RAM disk.
//!
//! An input is the client's complete side of a session; the server's answers are read and dropped. The
//! session must end, with any error, and stay within its memory limits.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cenote_disk::{Disk, Failure, Limits, Stream};
use cenote_iscsi::{Accounts, Identity, Luns, Portal, Targets, Unit, Units, Visit};
use cenote_nbd::handshake::Outcome;
use cenote_nbd::{Export, Exports, Extent, Handshake, Listed, Offer, transmit};
use cenote_runtime::{Runtime, SimConfig};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const DISK_BYTES: usize = 256 << 10;
/// Memory limit for requests.
const MEMORY_BYTES: u64 = 4 << 20;

type Done<T> = Result<T, Failure>;

/// A RAM disk.
#[derive(Clone)]
pub(super) struct Ram(Arc<Mutex<Vec<u8>>>);

impl Ram {
    pub(super) fn new() -> Ram {
        Ram(Arc::new(Mutex::new(vec![0; DISK_BYTES])))
    }

    /// The server has checked every range: one beyond the disk is a bug.
    fn at<T>(&self, range: Range<u64>, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut content[range.start as usize..range.end as usize])
    }
}

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
        ready(Ok(self.at(range, |content| Bytes::copy_from_slice(content)))).boxed()
    }
    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Done<()>> {
        self.at(offset..offset + data.len() as u64, |content| content.copy_from_slice(&data));
        ready(Ok(())).boxed()
    }
    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, Done<()>> {
        self.at(range, |content| content.fill(0));
        ready(Ok(())).boxed()
    }
    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, Done<()>> {
        self.zero(range)
    }
    fn flush(&self) -> BoxFuture<'_, Done<()>> {
        ready(Ok(())).boxed()
    }
    fn prefetch(&self, range: Range<u64>) -> BoxFuture<'_, Done<()>> {
        self.at(range, |_| ());
        ready(Ok(())).boxed()
    }
    fn extent(&self, range: Range<u64>) -> BoxFuture<'_, Done<(bool, u64)>> {
        ready(Ok((true, range.end))).boxed()
    }
}

impl Export for Ram {
    fn description(&self) -> String {
        "a disk in memory".into()
    }
    fn contexts<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Vec<String>> {
        ready(vec![query.to_owned()]).boxed()
    }
    fn extents<'a>(&'a self, _: &'a str, range: Range<u64>, _: usize) -> BoxFuture<'a, Done<Vec<Extent>>> {
        self.at(range.clone(), |_| ());
        ready(Ok(vec![Extent { len_bytes: range.end - range.start, flags: 0 }])).boxed()
    }
}

impl Unit for Ram {
    fn identity(&self) -> Identity {
        Identity::new(1, 2, "ram")
    }
    fn kept(&self) -> BoxFuture<'_, Done<Option<String>>> {
        ready(Ok(None)).boxed()
    }
    fn keep(&self, _: Option<String>) -> BoxFuture<'_, Done<()>> {
        ready(Ok(())).boxed()
    }
}

impl Exports for Ram {
    fn list(&self) -> BoxFuture<'_, Vec<Listed>> {
        ready(vec![Listed { name: "ram".into(), description: String::new() }]).boxed()
    }
    fn open<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Done<Arc<dyn Export>>> {
        ready(Ok(Arc::new(self.clone()) as Arc<dyn Export>)).boxed()
    }
}

impl Targets for Ram {
    fn list(&self) -> BoxFuture<'_, Vec<String>> {
        ready(vec!["iqn.2026-11.org.cenote:ram".into()]).boxed()
    }
    fn open<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Done<Units>> {
        ready(Ok(Units::from([(0, Arc::new(self.clone()) as Arc<dyn Unit>)]))).boxed()
    }
}

/// Sends everything, then reads to the end.
async fn client(mut stream: DuplexStream, said: &[u8]) {
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let send = async {
        // The server may disconnect early.
        writer.write_all(said).await.ok();
        writer.shutdown().await.ok();
    };
    let mut answer = vec![0; 64 << 10];
    let read = async { while reader.read(&mut answer).await.is_ok_and(|count| count > 0) {} };
    futures::join!(send, read);
}

/// An NBD session.
pub fn nbd(data: &[u8]) {
    let ram = Ram::new();
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let (here, there) = tokio::io::duplex(64 << 10);
        let limits = Limits::new(&runtime, MEMORY_BYTES, 1);
        let server = async {
            let mut stream: Box<dyn Stream> = Box::new(there);
            let chosen = Handshake::new(&mut *stream, &ram, Offer::Plain).run(&runtime, &limits).await;
            if let Ok(Outcome::Chosen(chosen)) = chosen {
                transmit(stream, chosen, &runtime, &limits, limits.share(None)).await.ok();
            }
        };
        futures::join!(server, client(here, data));
    });
}

/// An iSCSI session.
pub fn iscsi(data: &[u8]) {
    let ram = Ram::new();
    Runtime::simulate(SimConfig::default(), |runtime| async move {
        let (here, there) = tokio::io::duplex(64 << 10);
        let limits = Limits::new(&runtime, MEMORY_BYTES, 1);
        let portal = Portal { here: "192.0.2.1:3260".into(), all: Vec::new() };
        let (accounts, luns) = (Accounts::default(), Luns::default());
        let (stream, leaving) = (Box::new(there), futures::future::pending().boxed());
        let visit = Visit { stream, share: limits.share(None), leaving };
        let served = cenote_iscsi::serve(visit, &runtime, &limits, &ram, &accounts, &portal, &luns);
        futures::join!(served, client(here, data)).0.ok();
    });
}
