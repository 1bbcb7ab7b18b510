//! A disk in memory, with a cache lost at a restart.
#![allow(dead_code, reason = "each protocol's tests use a part")]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use cenote_disk::{Disk, Errno, Failure};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

const BLOCK_BYTES: u32 = 4096;

/// A disk with a cache lost at a restart.
#[derive(Default)]
pub struct Ram {
    pub live: Mutex<Vec<u8>>,
    pub durable: Mutex<Vec<u8>>,
    pub bad: Mutex<Option<u64>>,
    pub zeroed: AtomicUsize,
    pub is_read_only: AtomicBool,
    pub holds_flushes: AtomicBool,
}

impl Ram {
    pub fn sized(bytes: usize) -> Ram {
        let image = || Mutex::new(vec![0; bytes]);
        Ram { live: image(), durable: image(), ..Ram::default() }
    }

    /// Forgets all that was not flushed.
    pub fn lose_cache(&self) {
        let durable = self.durable.lock().clone();
        *self.live.lock() = durable;
    }
}

pub fn span(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl Disk for Ram {
    fn size_bytes(&self) -> u64 {
        self.live.lock().len() as u64
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Relaxed)
    }

    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Failure>> {
        let is_bad = self.bad.lock().is_some_and(|at| range.contains(&at));
        let read = match is_bad {
            true => Err(Failure::new(Errno::Io, "bad block")),
            false => Ok(Bytes::copy_from_slice(&self.live.lock()[span(&range)])),
        };
        futures::future::ready(read).boxed()
    }

    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), Failure>> {
        let range = offset..offset + data.len() as u64;
        self.live.lock()[span(&range)].copy_from_slice(&data);
        futures::future::ready(Ok(())).boxed()
    }

    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.zeroed.fetch_add(1, Ordering::Relaxed);
        self.trim(range)
    }

    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.live.lock()[span(&range)].fill(0);
        futures::future::ready(Ok(())).boxed()
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Failure>> {
        if self.holds_flushes.load(Ordering::Relaxed) {
            return futures::future::pending().boxed();
        }
        self.durable.lock().copy_from_slice(&self.live.lock());
        futures::future::ready(Ok(())).boxed()
    }

    fn prefetch(&self, _: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        futures::future::ready(Ok(())).boxed()
    }

    fn extent(&self, range: Range<u64>) -> BoxFuture<'_, Result<(bool, u64), Failure>> {
        futures::future::ready(Ok((true, range.end))).boxed()
    }
}
