//! A disk with a moving head: one operation at a time, in order of arrival.
//!
//! An operation that begins where the last one ended costs only its transfer; any other also a seek and part
//! of a turn. Writes are on the platter when they complete, and a flush waits for a turn.
//!
//! Source: the seek curve of a disk of 4 TB and 7200 turns a minute, measured by Western Digital for DiskSim:
//! 1.65 + 8.18 sqrt(x) + 4.20 x ms for a part x of the full stroke, within 0.15 ms.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Device, DeviceInfo, Io};
use cenote_runtime::Runtime;
use tokio::sync::Mutex;

const TURN_NS: u64 = 8_333_333;
const BYTES_PER_S: u64 = 150_000_000;
/// Share of the full stroke that this device's bytes cover.
const STROKE: f64 = 0.1;

/// A modelled disk over a device that takes no time. Clones share the head.
#[derive(Clone)]
pub(crate) struct Spinning {
    inner: Arc<dyn Device>,
    runtime: Runtime,
    /// End of the last operation. The lock is fair, so operations are served in order of arrival.
    head: Arc<Mutex<u64>>,
}

impl Spinning {
    pub(crate) fn new(inner: Arc<dyn Device>, runtime: &Runtime) -> Spinning {
        Spinning { inner, runtime: runtime.clone(), head: Arc::default() }
    }

    fn seek(&self, from: u64, to: u64) -> Duration {
        let part = from.abs_diff(to) as f64 / self.inner.size_bytes().max(1) as f64 * STROKE;
        let moves = Duration::from_secs_f64((1.65 + 8.18 * part.sqrt() + 4.20 * part) / 1e3);
        moves + Duration::from_nanos(self.runtime.random_u64() % TURN_NS)
    }

    async fn turn_to(&self, offset: u64, bytes: u64) {
        let mut head = self.head.lock().await;
        let seek = if *head == offset { Duration::ZERO } else { self.seek(*head, offset) };
        let moves = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / BYTES_PER_S);
        self.runtime.sleep(seek + moves).await;
        *head = offset + bytes;
    }
}

impl Device for Spinning {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        let of = self.clone();
        Io::pending(&self.runtime, async move {
            of.turn_to(offset, len as u64).await;
            of.inner.read_at(offset, len).await
        })
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        let of = self.clone();
        Io::pending(&self.runtime, async move {
            of.turn_to(offset, data.len() as u64).await;
            of.inner.write_at(offset, data).await
        })
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        let of = self.clone();
        self.write_at(offset, data).then(move |()| of.flush())
    }

    fn flush(&self) -> Io<()> {
        let of = self.clone();
        Io::pending(&self.runtime, async move {
            let _head = of.head.lock().await;
            of.runtime.sleep(Duration::from_nanos(TURN_NS)).await;
            of.inner.flush().await
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.inner.discard(offset, len)
    }
}
