//! A layer that lets a pool's writes pass only while the pool is known to be ours.
//!
//! Idea: another machine may take a pool once it has seen no heartbeat of ours for long enough. So each
//! heartbeat that lands extends a lease, and a write that begins after its end is refused, even if nobody has
//! noticed yet: the process may have been stopped, or its threads starved. Once the engine has noticed, the
//! fence is shut for good, and reads are refused, too: they might show another machine's blocks.
//!
//! A disk that another machine has taken over ([`DeviceError::Taken`]) shuts the fence, too: the pool must
//! not go on with its other disks, since that machine may have their mirrors.
//!
//! A write that began in time may still be under way in the kernel. The importer waits for twice the lease.
//!
//! Locking: none; relaxed atomics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use cenote_runtime::{Instant, Runtime};

use crate::error::Op;
use crate::io::Io;
use crate::{Device, DeviceError, DeviceInfo, Distance};

/// Stands before all devices of a pool. Clones share one state.
#[derive(Clone)]
pub struct Fence(Arc<Shared>);

struct Shared {
    runtime: Runtime,
    /// `u64::MAX`: without end.
    until_ns: AtomicU64,
    is_shut: AtomicBool,
}

impl Fence {
    /// Without a lease everything passes.
    pub fn new(runtime: &Runtime) -> Fence {
        let (until_ns, is_shut) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        Fence(Arc::new(Shared { runtime: runtime.clone(), until_ns, is_shut }))
    }

    /// Puts a device behind this fence.
    pub fn over(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(Fenced { inner: device, fence: self.clone() })
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
        self.is_shut() || until_ns != u64::MAX && self.0.runtime.now().as_ns() > until_ns
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
}

impl Fenced {
    fn pass<T: Send>(&self, op: Op, begin: impl FnOnce(&dyn Device) -> Io<T>) -> Io<T> {
        let is_refused = match op {
            Op::Read => self.fence.is_shut(),
            Op::Write | Op::Flush | Op::Discard => self.fence.refuses_writes(),
        };
        match is_refused {
            true => Io::done(Err(DeviceError::Fenced { path: self.info().path.clone(), op })),
            false if self.info().nature.distance == Distance::Local => begin(&*self.inner),
            false => {
                let fence = self.fence.clone();
                begin(&*self.inner).inspect(move |result| {
                    if matches!(result, Err(DeviceError::Taken { .. })) {
                        fence.shut();
                    }
                })
            }
        }
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cenote_runtime::SimConfig;

    use super::*;
    use crate::MemoryDevice;

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
}
