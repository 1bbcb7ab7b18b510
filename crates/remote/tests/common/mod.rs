//! A machine with a disk and an NBD server: the project's own, over pipes in memory.

mod ram;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cenote_disk::{Errno, Failure, Limits, Stream};
use cenote_nbd::handshake::Outcome;
use cenote_nbd::{Export, Exports, Extent, Handshake, Listed, Offer, transmit};
use cenote_remote::{Dial, ServerDisk, ServerError, nbd};
use cenote_runtime::{AbortOnDrop, Runtime};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use ram::{Ram, span};

pub const SIZE_BYTES: usize = 64 << 20;
const BLOCK_BYTES: u32 = 4096;

/// The machine.
pub struct Machine {
    runtime: Runtime,
    ram: Arc<Ram>,
    is_up: AtomicBool,
    tasks: Mutex<Vec<AbortOnDrop<()>>>,
    made: AtomicUsize,
    open: Arc<AtomicUsize>,
    goodbyes: Arc<AtomicUsize>,
    is_silent: Arc<AtomicBool>,
}

impl Machine {
    pub fn new(runtime: &Runtime) -> Arc<Machine> {
        Machine::sized(runtime, SIZE_BYTES)
    }

    pub fn sized(runtime: &Runtime, bytes: usize) -> Arc<Machine> {
        let ram = Arc::new(Ram::sized(bytes));
        let (tasks, made, open, goodbyes, is_silent) = Default::default();
        let is_up = AtomicBool::new(true);
        Arc::new(Machine { runtime: runtime.clone(), ram, is_up, tasks, made, open, goodbyes, is_silent })
    }

    pub async fn open(self: &Arc<Machine>, read_only: bool) -> Result<ServerDisk, ServerError> {
        self.open_export("disk", read_only).await
    }

    pub async fn open_export(
        self: &Arc<Machine>,
        export: &str,
        read_only: bool,
    ) -> Result<ServerDisk, ServerError> {
        let (name, dial) = ("nbd://test/disk".into(), Arc::new(Way(self.clone())));
        nbd::open(name, export.into(), dial, read_only, &self.runtime).await
    }

    /// Ends all connections.
    pub fn stop(&self, loses_cache: bool) {
        self.is_up.store(false, Ordering::Relaxed);
        self.tasks.lock().clear();
        if loses_cache {
            self.ram.lose_cache();
        }
    }

    /// Flushes are not answered until the next stop.
    pub fn hold_flushes(&self) {
        self.ram.holds_flushes.store(true, Ordering::Relaxed);
    }

    pub fn start(&self) {
        self.ram.holds_flushes.store(false, Ordering::Relaxed);
        self.is_up.store(true, Ordering::Relaxed);
    }

    /// No connection of now answers any more.
    pub fn fall_silent(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    pub fn spoil(&self, at: u64) {
        *self.ram.bad.lock() = Some(at);
    }

    pub fn make_read_only(&self) {
        self.ram.is_read_only.store(true, Ordering::Relaxed);
    }

    pub fn live(&self) -> Vec<u8> {
        self.ram.live.lock().clone()
    }

    pub fn durable(&self) -> Vec<u8> {
        self.ram.durable.lock().clone()
    }

    pub fn zeroed(&self) -> usize {
        self.ram.zeroed.load(Ordering::Relaxed)
    }

    /// Connections made so far.
    pub fn connections(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections that ended in order.
    pub fn goodbyes(&self) -> usize {
        self.goodbyes.load(Ordering::Relaxed)
    }

    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        if !self.is_up.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        // A new connection is not silent.
        self.is_silent.store(false, Ordering::Relaxed);
        let (here, there) = tokio::io::duplex(256 << 10);
        let (runtime, ram) = (self.runtime.clone(), self.ram.clone());
        let (open, goodbyes) = (self.open.clone(), self.goodbyes.clone());
        self.made.fetch_add(1, Ordering::Relaxed);
        open.fetch_add(1, Ordering::Relaxed);
        let serving = async move {
            let limits = Limits::new(&runtime, 256 << 20, 4);
            let mut stream: Box<dyn Stream> = Box::new(there);
            let exports = Only(ram);
            if let Ok(Outcome::Chosen(chosen)) =
                Handshake::new(&mut *stream, &exports, Offer::Plain).run(&runtime, &limits).await
                && transmit(stream, chosen, &runtime, &limits, limits.share(None)).await.is_ok()
            {
                goodbyes.fetch_add(1, Ordering::Relaxed);
            }
            open.fetch_sub(1, Ordering::Relaxed);
        };
        self.tasks.lock().push(self.runtime.spawn(serving).abort_on_drop());
        Ok(Box::new(Mute { inner: here, number: self.connections(), machine: self.is_silent.clone() }))
    }
}

/// The client's end, which hears nothing once the machine has fallen silent.
struct Mute {
    inner: tokio::io::DuplexStream,
    number: usize,
    machine: Arc<AtomicBool>,
}

impl tokio::io::AsyncRead for Mute {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        // The first four connections are those of the first session.
        if self.number <= 4 && self.machine.load(Ordering::Relaxed) {
            return std::task::Poll::Pending;
        }
        std::pin::Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl tokio::io::AsyncWrite for Mute {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        data: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.inner).poll_write(context, data)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// The way to a machine.
struct Way(Arc<Machine>);

impl Dial for Way {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        futures::future::ready(self.0.accept()).boxed()
    }

    fn domain(&self) -> Option<Arc<str>> {
        Some("test".into())
    }
}

struct Only(Arc<Ram>);

impl Exports for Only {
    fn list(&self) -> BoxFuture<'_, Vec<Listed>> {
        futures::future::ready(Vec::new()).boxed()
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Export>, Failure>> {
        let found = (name == "disk").then(|| self.0.clone() as Arc<dyn Export>);
        futures::future::ready(found.ok_or_else(|| Failure::new(Errno::Invalid, "no such disk"))).boxed()
    }
}

impl Export for Ram {
    fn description(&self) -> String {
        "a disk in memory".into()
    }

    fn contexts<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Vec<String>> {
        futures::future::ready(Vec::new()).boxed()
    }

    /// Zero blocks are holes, so that reads have several chunks.
    fn extents<'a>(
        &'a self,
        _: &'a str,
        range: Range<u64>,
        _: usize,
    ) -> BoxFuture<'a, Result<Vec<Extent>, Failure>> {
        let live = self.live.lock();
        let end = (range.start + 1).next_multiple_of(BLOCK_BYTES.into()).min(range.end);
        let is_zero = live[span(&(range.start..end))].iter().all(|byte| *byte == 0);
        let flags = if is_zero { Extent::HOLE | Extent::ZERO } else { 0 };
        futures::future::ready(Ok(vec![Extent { len_bytes: end - range.start, flags }])).boxed()
    }
}
