//! A machine with a disk and an iSCSI target: the project's own, over pipes in memory.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use cenote_disk::{Disk, Errno, Failure, Limits, Stream};
use cenote_iscsi::{Accounts, Identity, Luns, Portal, Targets, Unit, Units, Visit};
use cenote_remote::iscsi::{self, Chap, Login, Owner, Sharing};
use cenote_remote::{Dial, ServerDisk, ServerError};
use cenote_runtime::{AbortOnDrop, Runtime};
use futures::FutureExt;
use futures::future::{BoxFuture, pending, ready};
use parking_lot::Mutex;

use crate::ram::Ram;

pub const SIZE_BYTES: usize = 16 << 20;
pub const TARGET: &str = "iqn.2026-11.org.cenote:ram";
pub const LUN: u8 = 3;

/// The disk of the target.
struct Served {
    ram: Ram,
    kept: Mutex<Option<String>>,
    /// Smaller than the memory at first.
    size_bytes: AtomicU64,
}

/// The machine.
pub struct Machine {
    runtime: Runtime,
    served: Arc<Served>,
    accounts: Accounts,
    luns: Mutex<Luns>,
    is_up: AtomicBool,
    tasks: Mutex<Vec<AbortOnDrop<()>>>,
    made: AtomicUsize,
    /// Connections up to this number hear nothing.
    silent_up_to: Arc<AtomicUsize>,
    goodbyes: Arc<AtomicUsize>,
}

/// A process of a machine of its own.
pub fn owner(machine: u32) -> Owner {
    Owner::with(machine, 1)
}

impl Machine {
    pub fn new(runtime: &Runtime) -> Arc<Machine> {
        Machine::with(runtime, Accounts::default())
    }

    pub fn with(runtime: &Runtime, accounts: Accounts) -> Arc<Machine> {
        let (kept, size_bytes) = (Mutex::default(), AtomicU64::new(SIZE_BYTES as u64 / 2));
        let served = Arc::new(Served { ram: Ram::sized(SIZE_BYTES), kept, size_bytes });
        let (luns, tasks, made, silent_up_to, goodbyes) = Default::default();
        let (runtime, is_up) = (runtime.clone(), AtomicBool::new(true));
        let machine = Machine { runtime, served, accounts, luns, is_up, tasks, made, silent_up_to, goodbyes };
        Arc::new(machine)
    }

    pub async fn open(self: &Arc<Machine>, sharing: Sharing) -> Result<ServerDisk, ServerError> {
        self.open_as(owner(1), sharing).await
    }

    pub async fn open_as(
        self: &Arc<Machine>,
        owner: Owner,
        sharing: Sharing,
    ) -> Result<ServerDisk, ServerError> {
        self.log_in(owner, None, sharing).await
    }

    pub async fn log_in(
        self: &Arc<Machine>,
        owner: Owner,
        chap: Option<Chap>,
        sharing: Sharing,
    ) -> Result<ServerDisk, ServerError> {
        let initiator = "iqn.2026-11.org.example:host".into();
        let login = Login { target: TARGET.into(), lun: LUN, initiator, chap, owner };
        self.open_with(login, sharing).await
    }

    pub async fn open_with(
        self: &Arc<Machine>,
        login: Login,
        sharing: Sharing,
    ) -> Result<ServerDisk, ServerError> {
        let dial = Arc::new(Way(self.clone()));
        iscsi::open("iscsi://test/disk".into(), login, dial, sharing, &self.runtime).await
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.tasks.lock().clear();
    }

    /// Stops the target, which forgets all but the disk and stored reservations.
    pub fn stop(&self, loses_cache: bool) {
        self.is_up.store(false, Ordering::Relaxed);
        self.cut();
        *self.luns.lock() = Luns::default();
        if loses_cache {
            self.served.ram.lose_cache();
        }
    }

    pub fn start(&self) {
        self.is_up.store(true, Ordering::Relaxed);
    }

    /// No connection of now answers any more.
    pub fn fall_silent(&self) {
        self.silent_up_to.store(self.connections(), Ordering::Relaxed);
    }

    pub fn grow(&self) {
        self.served.size_bytes.store(SIZE_BYTES as u64, Ordering::Relaxed);
    }

    pub fn spoil(&self, at: u64) {
        *self.served.ram.bad.lock() = Some(at);
    }

    pub fn make_read_only(&self) {
        self.served.ram.is_read_only.store(true, Ordering::Relaxed);
    }

    pub fn live(&self, at: usize) -> u8 {
        self.served.ram.live.lock()[at]
    }

    pub fn durable(&self, at: usize) -> u8 {
        self.served.ram.durable.lock()[at]
    }

    /// The reservations stored with the disk.
    pub fn kept(&self) -> Option<String> {
        self.served.kept.lock().clone()
    }

    /// Connections made so far.
    pub fn connections(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Sessions that ended in order.
    pub fn goodbyes(&self) -> usize {
        self.goodbyes.load(Ordering::Relaxed)
    }

    fn accept(self: &Arc<Machine>) -> io::Result<Box<dyn Stream>> {
        if !self.is_up.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let (here, there) = tokio::io::duplex(256 << 10);
        let machine = self.clone();
        let luns = self.luns.lock().clone();
        let serving = async move {
            let limits = Limits::new(&machine.runtime, 64 << 20, 4);
            let portal = Portal::default();
            let visit =
                Visit { stream: Box::new(there), share: limits.share(None), leaving: pending().boxed() };
            let targets = Only(machine.served.clone());
            let (runtime, accounts) = (&machine.runtime, &machine.accounts);
            let ended =
                cenote_iscsi::serve(visit, runtime, &limits, &targets, accounts, &portal, &luns).await;
            if ended.is_ok() {
                machine.goodbyes.fetch_add(1, Ordering::Relaxed);
            }
        };
        self.tasks.lock().push(self.runtime.spawn(serving).abort_on_drop());
        Ok(Box::new(Mute { inner: here, number, silent_up_to: self.silent_up_to.clone() }))
    }
}

/// The client's end, which hears nothing once the machine has fallen silent.
struct Mute {
    inner: tokio::io::DuplexStream,
    number: usize,
    silent_up_to: Arc<AtomicUsize>,
}

impl tokio::io::AsyncRead for Mute {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        if self.number <= self.silent_up_to.load(Ordering::Relaxed) {
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
        ready(self.0.accept()).boxed()
    }

    fn domain(&self) -> Option<Arc<str>> {
        Some("test".into())
    }
}

struct Only(Arc<Served>);

impl Targets for Only {
    fn list(&self) -> BoxFuture<'_, Vec<String>> {
        ready(vec![TARGET.into()]).boxed()
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Units, Failure>> {
        let found = (name == TARGET).then(|| Units::from([(LUN, self.0.clone() as Arc<dyn Unit>)]));
        ready(found.ok_or_else(|| Failure::new(Errno::Invalid, "no such target"))).boxed()
    }
}

impl Disk for Served {
    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }
    fn block_bytes(&self) -> u32 {
        self.ram.block_bytes()
    }
    fn is_read_only(&self) -> bool {
        self.ram.is_read_only()
    }
    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Failure>> {
        self.ram.read(range)
    }
    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), Failure>> {
        self.ram.write(offset, data)
    }
    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.ram.zero(range)
    }
    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.ram.trim(range)
    }
    fn flush(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.ram.flush()
    }
    fn prefetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.ram.prefetch(range)
    }
    fn extent(&self, range: Range<u64>) -> BoxFuture<'_, Result<(bool, u64), Failure>> {
        self.ram.extent(range)
    }
}

impl Unit for Served {
    fn identity(&self) -> Identity {
        Identity::new(1, 2, "ram")
    }
    fn kept(&self) -> BoxFuture<'_, Result<Option<String>, Failure>> {
        ready(Ok(self.kept.lock().clone())).boxed()
    }
    fn keep(&self, text: Option<String>) -> BoxFuture<'_, Result<(), Failure>> {
        *self.kept.lock() = text;
        ready(Ok(())).boxed()
    }
}
