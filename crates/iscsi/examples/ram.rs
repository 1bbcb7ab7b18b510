//! A target with a RAM disk or a null disk, for client test suites and for measuring the protocol's cost.
//!
//! `ram ADDRESS MIB [null]`: the target is `iqn.2026-11.org.cenote:ram`.
#![allow(clippy::unwrap_used, reason = "a tool that can't go on must stop")]

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cenote_disk::{Disk, Errno, Failure, Limits};
use cenote_iscsi::{Accounts, Identity, Luns, Portal, Targets, Unit, Units, Visit};
use cenote_runtime::Runtime;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::{Mutex, RwLock};

const TARGET: &str = "iqn.2026-11.org.cenote:ram";
const BLOCK_BYTES: usize = 16 << 10;

struct Ram {
    content: RwLock<Vec<u8>>,
    size_bytes: u64,
    kept: Mutex<Option<String>>,
}

impl Ram {
    fn is_null(&self) -> bool {
        self.size_bytes != self.content.read().len() as u64
    }
}

impl Disk for Ram {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Failure>> {
        static ZEROS: [u8; 1 << 24] = [0; 1 << 24];
        let len = (range.end - range.start) as usize;
        let data = match self.is_null() {
            true => Bytes::from_static(&ZEROS[..len]),
            false => Bytes::copy_from_slice(&self.content.read()[range.start as usize..][..len]),
        };
        ready(Ok(data)).boxed()
    }
    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), Failure>> {
        if !self.is_null() {
            self.content.write()[offset as usize..][..data.len()].copy_from_slice(&data);
        }
        ready(Ok(())).boxed()
    }
    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        if !self.is_null() {
            self.content.write()[range.start as usize..range.end as usize].fill(0);
        }
        ready(Ok(())).boxed()
    }
    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.zero(range)
    }
    fn flush(&self) -> BoxFuture<'_, Result<(), Failure>> {
        ready(Ok(())).boxed()
    }
    fn prefetch(&self, _: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        ready(Ok(())).boxed()
    }
    fn extent(&self, range: Range<u64>) -> BoxFuture<'_, Result<(bool, u64), Failure>> {
        let content = self.content.read();
        let part = &content[range.start as usize..range.end as usize];
        let mut blocks = part.chunks(BLOCK_BYTES).map(|block| block.iter().any(|&byte| byte != 0));
        let is_data = blocks.next().unwrap_or(false);
        let same = 1 + blocks.take_while(|it| *it == is_data).count() as u64;
        ready(Ok((is_data, range.end.min(range.start + same * BLOCK_BYTES as u64)))).boxed()
    }
}

impl Unit for Ram {
    fn identity(&self) -> Identity {
        Identity { id: 0x0123_4567_89ab_cdef, serial: "0123456789abcdef".into(), name: "ram".into() }
    }
    fn kept(&self) -> BoxFuture<'_, Result<Option<String>, Failure>> {
        ready(Ok(self.kept.lock().clone())).boxed()
    }
    fn keep(&self, text: Option<String>) -> BoxFuture<'_, Result<(), Failure>> {
        *self.kept.lock() = text;
        ready(Ok(())).boxed()
    }
}

struct One(Arc<Ram>);

impl Targets for One {
    fn list(&self) -> BoxFuture<'_, Vec<String>> {
        ready(vec![TARGET.into()]).boxed()
    }
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Units, Failure>> {
        let found = (name == TARGET).then(|| Units::from([(0, self.0.clone() as Arc<dyn Unit>)]));
        ready(found.ok_or_else(|| Failure::new(Errno::Invalid, "no such target"))).boxed()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (address, mib) = (arguments[1].clone(), arguments[2].parse::<u64>().unwrap());
    let is_null = arguments.get(3).is_some_and(|word| word == "null");
    let size_bytes = mib << 20;
    let content = RwLock::new(vec![0; if is_null { 0 } else { size_bytes as usize }]);
    let one = Arc::new(One(Arc::new(Ram { content, size_bytes, kept: Mutex::default() })));
    let runtime = Runtime::real(None);
    let (luns, limits) = (Arc::new(Luns::default()), Limits::new(&runtime, 256 << 20, 64));
    runtime.clone().block_on(async move {
        let listener = tokio::net::TcpListener::bind(&address).await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let portal = Portal { here: address.clone(), all: vec![address.clone()] };
            let (runtime, limits, one, luns) = (runtime.clone(), limits.clone(), one.clone(), luns.clone());
            let serving = runtime.clone();
            let serve = async move {
                let accounts = Accounts::default();
                let stream = Box::new(stream);
                let (share, leaving) = (limits.share(None), futures::future::pending().boxed());
                let visit = Visit { stream, share, leaving };
                let ended =
                    cenote_iscsi::serve(visit, &serving, &limits, &*one, &accounts, &portal, &luns).await;
                if let Err(error) = ended {
                    std::io::Write::write_all(&mut std::io::stderr(), format!("{error}\n").as_bytes()).ok();
                }
            };
            runtime.spawn(serve).detach();
        }
    });
}
