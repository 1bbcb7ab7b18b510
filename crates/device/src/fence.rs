//! A layer that lets a pool's writes pass only while the pool is known to be ours.
//!
//! Idea: another machine may take a pool once it has seen no heartbeat of ours for long enough. So each
//! heartbeat that lands extends a lease, and writes after its end are refused, even if the process was
//! stopped meanwhile, or its threads starved. Once the engine has noticed, the fence is shut for good, and
//! refuses reads, too: they might show another machine's blocks.
//!
//! A write that began in time may still be under way in the kernel. The importer waits for twice the lease.
//!
//! Two grant leases, each for its own reason: heartbeats on the disks (multihost), and a witness that all
//! machines ask ([`Tenure`]). A write passes while both last.
//!
//! Storage with its own locks ([`StorageLock`]), and an object store, refuse writes by themselves once
//! another machine has taken the disk. The first sign of it shuts the fence over all devices of the pool, so
//! that no operation succeeds on the others, and the engine is told. A change that ends later does not count
//! as made.
//!
//! Locking: atomics; one mutex for the engine's ear, held for one look or change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use cenote_runtime::{Instant, Runtime};
use parking_lot::Mutex;

use crate::error::Op;
use crate::io::Io;
use crate::{Device, DeviceError, DeviceInfo, Distance, StorageLock, Tenure};

/// Why writes are refused without a sign of life of this machine.
const NO_HEARTBEAT: &str = "no multihost heartbeat of this machine has landed in time";
/// The same with a witness.
const NO_TENURE: &str = "this machine could not renew its lease of the pool at the witness in time";

/// Stands before all devices of a pool. Clones share one state.
#[derive(Clone)]
pub struct Fence(Arc<Shared>);

struct Shared {
    runtime: Runtime,
    /// `u64::MAX`: without end.
    until_ns: AtomicU64,
    tenure: Option<Tenure>,
    is_shut: AtomicBool,
    loss: Mutex<Loss>,
}

/// The loss of a pool to another machine.
#[derive(Default)]
struct Loss {
    why: Option<Arc<str>>,
    tell: Option<TellLoss>,
}

/// Is told why the pool is lost.
type TellLoss = Box<dyn Fn(&Arc<str>) + Send + Sync>;

impl Fence {
    /// Without a lease everything passes.
    pub fn new(runtime: &Runtime) -> Fence {
        Fence::under(runtime, None)
    }

    /// A fence that a witness keeps open.
    pub fn under(runtime: &Runtime, tenure: Option<Tenure>) -> Fence {
        let (until_ns, is_shut) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        Fence(Arc::new(Shared {
            runtime: runtime.clone(),
            until_ns,
            tenure,
            is_shut,
            loss: Mutex::default(),
        }))
    }

    /// Puts a device behind this fence.
    pub fn over(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let fence = self.clone();
        device.on_fenced(Box::new(move |why| fence.lose(why)));
        let nature = &device.info().nature;
        let may_be_taken = nature.distance != Distance::Local || nature.storage_lock != StorageLock::None;
        Arc::new(Fenced { inner: device, fence: self.clone(), may_be_taken })
    }

    /// Shuts the fence because another machine has, or may have, the pool: the storage or a witness says so.
    pub fn lose(&self, why: &str) {
        self.shut();
        let mut loss = self.0.loss.lock();
        if loss.why.is_none() {
            let why = loss.why.insert(why.into()).clone();
            loss.tell.iter().for_each(|tell| tell(&why));
        }
    }

    /// Has `tell` called when the pool is lost ([`Fence::lose`]); at once, if it is. It must not block.
    pub fn on_loss(&self, tell: impl Fn(&Arc<str>) + Send + Sync + 'static) {
        let mut loss = self.0.loss.lock();
        loss.why.iter().for_each(&tell);
        loss.tell = Some(Box::new(tell));
    }

    /// Why the pool is lost, if it is.
    pub fn loss(&self) -> Option<Arc<str>> {
        if self.is_shut() { self.0.loss.lock().why.clone() } else { None }
    }

    /// Lets writes pass until then; `None`: without limit.
    pub fn lease(&self, until: Option<Instant>) {
        self.0.until_ns.store(until.map_or(u64::MAX, Instant::as_ns), Ordering::Release);
    }

    /// Lets nothing pass any more.
    pub fn shut(&self) {
        self.0.is_shut.store(true, Ordering::Release);
    }

    /// Whether [`Fence::shut`] was called.
    pub fn is_shut(&self) -> bool {
        self.0.is_shut.load(Ordering::Acquire)
    }

    /// Whether writes are refused.
    pub fn refuses_writes(&self) -> bool {
        let until_ns = self.0.until_ns.load(Ordering::Acquire);
        self.is_shut()
            || until_ns != u64::MAX && self.0.runtime.now().as_ns() > until_ns
            || self.tenure_has_ended()
    }

    fn tenure_has_ended(&self) -> bool {
        self.0.tenure.as_ref().is_some_and(|tenure| tenure.has_ended(self.0.runtime.now()))
    }

    /// The witness's grant, if the pool has a witness.
    pub fn tenure(&self) -> Option<&Tenure> {
        self.0.tenure.as_ref()
    }
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fence({})", if self.is_shut() { "shut" } else { "open" })
    }
}

struct Fenced {
    inner: Arc<dyn Device>,
    fence: Fence,
    /// The storage may take it away.
    may_be_taken: bool,
}

impl Fenced {
    fn pass<T: Send>(&self, op: Op, begin: impl FnOnce(&dyn Device) -> Io<T>) -> Io<T> {
        let is_refused = match op {
            Op::Read => self.fence.is_shut(),
            Op::Write | Op::Flush | Op::Discard => self.fence.refuses_writes(),
        };
        if is_refused {
            return Io::done(Err(self.refusal(op)));
        }
        let io = begin(&*self.inner);
        if !self.may_be_taken {
            return io;
        }
        let fence = self.fence.clone();
        io.inspect(move |result| {
            if let Err(DeviceError::Fenced { why, .. }) = result {
                fence.lose(why);
            }
        })
    }

    fn refusal(&self, op: Op) -> DeviceError {
        let no_sign = || if self.fence.tenure_has_ended() { NO_TENURE } else { NO_HEARTBEAT };
        let why = self.fence.loss().unwrap_or_else(|| no_sign().into());
        DeviceError::Fenced { path: self.info().path.clone(), op, why }
    }
}

impl Device for Fenced {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        self.pass(Op::Read, |inner| inner.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.pass(Op::Write, |inner| inner.write_at(offset, data))
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.pass(Op::Write, |inner| inner.write_through(offset, data))
    }

    fn read_pieces(&self, offset: u64, lens: Vec<usize>) -> Io<Vec<Bytes>> {
        self.pass(Op::Read, |inner| inner.read_pieces(offset, lens))
    }

    fn write_pieces(&self, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
        self.pass(Op::Write, |inner| inner.write_pieces(offset, pieces))
    }

    fn flush(&self) -> Io<()> {
        self.pass(Op::Flush, |inner| inner.flush())
    }

    fn lose_unflushed(&self) {
        self.inner.lose_unflushed();
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.pass(Op::Discard, |inner| inner.discard(offset, len))
    }

    fn has_hole(&self, offset: u64, len: u64) -> Io<bool> {
        self.inner.has_hole(offset, len)
    }

    fn is_there(&self) -> Io<bool> {
        self.inner.is_there()
    }

    fn size_now(&self) -> Io<u64> {
        self.inner.size_now()
    }

    fn grown(&self) -> Io<Option<Arc<dyn Device>>> {
        let fence = self.fence.clone();
        self.inner.grown().map(move |grown| Ok(grown?.map(|device| fence.over(device))))
    }

    fn on_fenced(&self, tell: crate::TellFenced) {
        self.inner.on_fenced(tell);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cenote_runtime::SimConfig;

    use super::*;
    use crate::{MemoryDevice, TellFenced};

    #[test]
    fn a_lease_that_ran_out_stops_writes_and_a_shut_fence_reads_too() {
        Runtime::simulate(SimConfig::default(), |rt| async move {
            let fence = Fence::new(&rt);
            let below = Arc::new(MemoryDevice::new("disk", 4096));
            let device = fence.over(below.clone());
            let write = |byte| device.write_at(0, Bytes::from(vec![byte]));
            rt.sleep(Duration::from_secs(1000)).await;
            write(1).await.unwrap();
            fence.lease(Some(rt.now() + Duration::from_secs(1)));
            rt.sleep(Duration::from_secs(1)).await;
            write(2).await.unwrap();
            rt.sleep(Duration::from_millis(1)).await;
            assert!(matches!(write(3).await, Err(DeviceError::Fenced { op: Op::Write, .. })));
            let through = device.write_through(0, Bytes::from_static(b"\x03"));
            assert!(through.await.is_err() && device.flush().await.is_err());
            assert!(device.discard(0, 512).await.is_err());
            assert!(device.write_pieces(0, vec![Bytes::from_static(b"\x03")]).await.is_err());
            assert_eq!(device.read_at(0, 1).await.unwrap()[..], [2]);
            fence.lease(Some(rt.now() + Duration::from_secs(1)));
            write(4).await.unwrap();
            fence.shut();
            fence.lease(None);
            assert!(write(5).await.is_err() && device.read_at(0, 1).await.is_err());
            assert_eq!(below.live_image()[0], 4);
        });
    }

    #[test]
    fn a_witness_grants_a_lease_beside_heartbeats() {
        Runtime::simulate(SimConfig::default(), |rt| async move {
            let tenure = Tenure::new(|_| Box::pin(std::future::ready(Ok(()))));
            let fence = Fence::under(&rt, Some(tenure.clone()));
            let device = fence.over(Arc::new(MemoryDevice::new("disk", 4096)));
            let write = || device.write_at(0, Bytes::from_static(b"x"));
            rt.sleep(Duration::from_secs(1)).await;
            assert!(write().await.unwrap_err().to_string().contains("witness"), "none was granted yet");
            tenure.extend(Some(rt.now() + Duration::from_secs(1)));
            fence.lease(Some(rt.now() + Duration::from_millis(500)));
            write().await.unwrap();
            rt.sleep(Duration::from_millis(501)).await;
            assert!(write().await.unwrap_err().to_string().contains("heartbeat"));
            fence.lease(None);
            write().await.unwrap();
            rt.sleep(Duration::from_millis(500)).await;
            assert!(write().await.is_err() && device.read_at(0, 1).await.is_ok());
            tenure.extend(None);
            write().await.unwrap();
        });
    }

    /// A disk with a lock in the storage, which may be broken.
    struct Lockable {
        inner: MemoryDevice,
        info: DeviceInfo,
        is_lost: AtomicBool,
        tell: Mutex<Vec<TellFenced>>,
    }

    impl Lockable {
        fn new() -> Arc<Lockable> {
            let inner = MemoryDevice::new("image", 4096);
            let mut info = inner.info().clone();
            info.nature.storage_lock = StorageLock::Held;
            let (is_lost, tell) = Default::default();
            Arc::new(Lockable { inner, info, is_lost, tell })
        }

        fn refused<T: Send>(&self, op: Op) -> Option<Io<T>> {
            let error = DeviceError::Fenced { path: self.info.path.clone(), op, why: "taken".into() };
            self.is_lost.load(Ordering::Relaxed).then(|| Io::done(Err(error)))
        }
    }

    impl Device for Lockable {
        fn info(&self) -> &DeviceInfo {
            &self.info
        }

        fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
            self.refused(Op::Read).unwrap_or_else(|| self.inner.read_at(offset, len))
        }

        fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
            self.refused(Op::Write).unwrap_or_else(|| self.inner.write_at(offset, data))
        }

        fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
            self.write_at(offset, data)
        }

        fn flush(&self) -> Io<()> {
            self.refused(Op::Flush).unwrap_or_else(|| self.inner.flush())
        }

        fn discard(&self, offset: u64, len: u64) -> Io<()> {
            self.refused(Op::Discard).unwrap_or_else(|| self.inner.discard(offset, len))
        }

        fn on_fenced(&self, tell: TellFenced) {
            self.tell.lock().push(tell);
        }
    }

    fn noting(fence: &Fence) -> Arc<Mutex<Vec<String>>> {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let note = told.clone();
        fence.on_loss(move |why| note.lock().push(why.to_string()));
        told
    }

    #[test]
    fn a_lost_lock_shuts_the_fence_over_all_devices_and_is_told_once() {
        Runtime::simulate(SimConfig::default(), |rt| async move {
            for is_noticed_by_an_operation in [true, false] {
                let fence = Fence::new(&rt);
                let (lockable, other) = (Lockable::new(), Arc::new(MemoryDevice::new("disk", 4096)));
                let (image, disk) = (fence.over(lockable.clone()), fence.over(other));
                let told = noting(&fence);
                image.write_at(0, Bytes::from_static(b"1")).await.unwrap();
                disk.write_at(0, Bytes::from_static(b"1")).await.unwrap();
                lockable.is_lost.store(true, Ordering::Relaxed);
                match is_noticed_by_an_operation {
                    true => assert!(image.flush().await.is_err()),
                    false => lockable.tell.lock().iter().for_each(|tell| tell("taken")),
                }
                let error = disk.write_at(0, Bytes::from_static(b"2")).await.unwrap_err().to_string();
                assert!(error.contains("taken"), "{error}");
                assert!(disk.read_at(0, 1).await.is_err() && image.read_at(0, 1).await.is_err());
                assert_eq!(*told.lock(), ["taken"]);
                assert_eq!(*noting(&fence).lock(), ["taken"], "a later ear");
            }
        });
    }
}
