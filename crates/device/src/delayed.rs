//! A layer that adds delay: a fixed latency, a random one on top, and a rate.
//!
//! Operations wait for each other only as every device promises; the lab models disks with a queue and a
//! moving head.

use crate::io::Io;
use crate::order::{Order, Position};
use crate::{Device, DeviceInfo};
use bytes::Bytes;
use cenote_runtime::Runtime;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// The added delay of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    /// Added to every operation.
    pub fixed: Duration,
    /// Maximum of a uniformly distributed addition.
    pub jitter: Duration,
    /// Bytes per second of reads and writes; `None` for no limit.
    pub bytes_per_s: Option<NonZeroU64>,
}

/// A slow device; clones share its state.
#[derive(Clone)]
pub struct Delayed {
    inner: Arc<dyn Device>,
    runtime: Runtime,
    latency: Latency,
    order: Order,
}

impl Delayed {
    /// Slows a device down.
    pub fn new(inner: Arc<dyn Device>, latency: Latency, runtime: &Runtime) -> Delayed {
        Delayed { inner, runtime: runtime.clone(), latency, order: Order::default() }
    }

    fn delay(&self, bytes: u64) -> Duration {
        let jitter_ns = u64::try_from(self.latency.jitter.as_nanos()).unwrap_or(u64::MAX);
        let random = if jitter_ns > 0 { self.runtime.random_u64() % jitter_ns.saturating_add(1) } else { 0 };
        let moving = self.latency.bytes_per_s.map_or(0, |rate| bytes.saturating_mul(1_000_000_000) / rate);
        self.latency.fixed + Duration::from_nanos(random) + Duration::from_nanos(moving)
    }

    fn slowly<T: Send>(
        &self,
        bytes: u64,
        place: Position,
        operation: impl FnOnce(&dyn Device) -> Io<T> + Send + 'static,
    ) -> Io<T> {
        let (delay, inner, runtime) = (self.delay(bytes), self.inner.clone(), self.runtime.clone());
        Io::pending(&self.runtime, async move {
            let _turn = place.turn().await;
            runtime.sleep(delay).await;
            operation(&*inner).await
        })
    }
}

impl Device for Delayed {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        self.slowly(len as u64, Position::First(None), move |inner| inner.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        let len = data.len() as u64;
        self.slowly(len, self.order.enter(offset, len), move |inner| inner.write_at(offset, data))
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        let of = self.clone();
        self.write_at(offset, data).then(move |()| of.flush())
    }

    fn flush(&self) -> Io<()> {
        self.slowly(0, Position::First(None), |inner| inner.flush())
    }

    fn lose_unflushed(&self) {
        self.inner.lose_unflushed();
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.slowly(0, self.order.enter(offset, len), move |inner| inner.discard(offset, len))
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
}
