//! A layer that takes time: a fixed latency, a random one on top, and a rate.
//!
//! Operations do not wait for each other here; disks with a queue and a moving head are the lab's models.

use crate::error::Result;
use crate::io::Io;
use crate::{Device, DeviceInfo};
use bytes::Bytes;
use cenote_runtime::Runtime;
use std::future::Future;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// How much longer than on the device below an operation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    /// Added to every operation.
    pub fixed: Duration,
    /// Up to this much more, uniformly distributed.
    pub jitter: Duration,
    /// Bytes per second of reads and writes; `None` for no limit.
    pub bytes_per_s: Option<NonZeroU64>,
}

/// A slow device.
pub struct Delayed {
    inner: Arc<dyn Device>,
    runtime: Runtime,
    latency: Latency,
}

impl Delayed {
    /// Slows a device down.
    pub fn new(inner: Arc<dyn Device>, latency: Latency, runtime: &Runtime) -> Delayed {
        Delayed { inner, runtime: runtime.clone(), latency }
    }

    fn delay(&self, bytes: u64) -> Duration {
        let jitter_ns = u64::try_from(self.latency.jitter.as_nanos()).unwrap_or(u64::MAX);
        let random = if jitter_ns > 0 { self.runtime.random_u64() % jitter_ns.saturating_add(1) } else { 0 };
        let moving = self.latency.bytes_per_s.map_or(0, |rate| bytes.saturating_mul(1_000_000_000) / rate);
        self.latency.fixed + Duration::from_nanos(random) + Duration::from_nanos(moving)
    }

    /// First waits, then runs the operation: an operation that was not acknowledged may not have happened.
    fn slowly<'a, T, F>(&'a self, bytes: u64, operation: impl FnOnce() -> F + Send + 'a) -> Io<'a, T>
    where
        F: Future<Output = Result<T>> + Send + 'a,
    {
        let delay = self.delay(bytes);
        Io::pending(async move {
            self.runtime.sleep(delay).await;
            operation().await
        })
    }
}

impl Device for Delayed {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<'_, Bytes> {
        self.slowly(len as u64, move || self.inner.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<'_, ()> {
        self.slowly(data.len() as u64, move || self.inner.write_at(offset, data))
    }

    fn flush(&self) -> Io<'_, ()> {
        self.slowly(0, || self.inner.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Io<'_, ()> {
        self.slowly(0, move || self.inner.discard(offset, len))
    }

    fn advise(&self, offset: u64, len: u64) {
        self.inner.advise(offset, len);
    }

    fn has_hole(&self, offset: u64, len: u64) -> bool {
        self.inner.has_hole(offset, len)
    }

    fn is_there(&self) -> bool {
        self.inner.is_there()
    }
}
