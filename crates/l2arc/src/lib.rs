//! Cache devices (L2ARC): blocks that did not fit into memory are read from a cache device instead of the
//! pool, even after an export and import, here or by OpenZFS.
//!
//! ```text
//!   read from the pool --offer--> staging --feed--> ring on a device --read--> verified by its pointer
//!                                                     |                ^
//!                                                     '-- log --> rebuild at import
//! ```
//!
//! Idea: stored blocks pass by on their way from the pool into memory (`cenote_pool::SecondLevel`):
//! compressed, encrypted, just verified. A sample of them is written to the devices, at a steady rate. So
//! nothing is compressed or encrypted twice, and memory holds only a name and a place for each ([`index`]).
//! Each block is verified by its pointer. A failing device is dropped; the pool has everything.
//!
//! OpenZFS instead feeds from the tails of its lists (blocks about to be evicted), and includes blocks
//! written by txgs. Here, a written block gets to a device once read again.
//!
//! Read in this order: [`CacheDevices`], `device` (one device), `ring` (its arithmetic), `index`, `staging`,
//! `rebuild`; on disk: `cenote_format::l2arc`.
//!
//! Locking: all methods may be called concurrently. A round of feeding or a rebuild holds `turn`, across
//! awaits. The mutexes of index, staging, rings and the list of devices are held briefly, never across an
//! await; order: list, index, ring.
//!
//! Memory: the index (some 30 bytes a block, bounded by [`CacheDevices::set_index_bytes`]), and two rounds of
//! feeding.
//!
//! Source: OpenZFS `arc.c` ("Level 2 ARC", "Persistent L2ARC").
#![forbid(unsafe_code)]

mod device;
mod index;
mod rebuild;
mod ring;
mod settings;
mod staging;
mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_device::{Counters, Device};
use cenote_format::blkptr::Blkptr;
use cenote_format::label::{LABEL_BYTES, VDEV_LABEL_END_SIZE};
use cenote_format::units::Guid;
use cenote_pool::{Offer, SecondLevel};
use cenote_runtime::Runtime;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};

use device::CacheDevice;
use index::{BlockName, Index, MAX_DEVICE_BYTES, MAX_DEVICES, Place};
use rebuild::Rebuilt;
use ring::Shape;
use staging::{Staged, Staging};
use stats::L2Counters;

pub use settings::L2Settings;
pub use stats::L2Stats;

/// The use in memory of a block that waits for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// No longer in memory.
    Gone,
    /// Read ahead, and not used yet.
    Ahead,
    /// Used once.
    Once,
    /// Used again.
    Often,
}

/// The cache devices of a pool. A clone costs one atomic increment.
#[derive(Clone)]
pub struct CacheDevices(Arc<Shared>);

/// Content and traffic of a cache device.
#[derive(Debug, Clone)]
pub struct DeviceUse {
    /// Its guid.
    pub vdev: Guid,
    /// Bytes in use, with log blocks.
    pub used_bytes: u64,
    /// Size of its ring.
    pub capacity_bytes: u64,
    /// Its traffic.
    pub counters: Arc<Counters>,
}

struct Shared {
    runtime: Runtime,
    pool: Mutex<Guid>,
    settings: L2Settings,
    /// Read for each block.
    has_devices: AtomicBool,
    devices: RwLock<Vec<Arc<CacheDevice>>>,
    index: Mutex<Index>,
    most_index_bytes: AtomicU64,
    staging: Mutex<Staging>,
    /// The next device to feed.
    next: AtomicUsize,
    turn: tokio::sync::Mutex<()>,
    counters: L2Counters,
}

impl CacheDevices {
    /// No devices yet.
    pub fn new(runtime: &Runtime, pool: Guid) -> CacheDevices {
        CacheDevices(Arc::new(Shared {
            runtime: runtime.clone(),
            pool: pool.into(),
            settings: L2Settings::default(),
            has_devices: AtomicBool::new(false),
            devices: RwLock::default(),
            index: Mutex::default(),
            most_index_bytes: AtomicU64::new(u64::MAX),
            staging: Mutex::default(),
            next: AtomicUsize::new(0),
            turn: tokio::sync::Mutex::default(),
            counters: L2Counters::default(),
        }))
    }

    /// The tunables.
    pub fn settings(&self) -> &L2Settings {
        &self.0.settings
    }

    /// Limits the memory of the index.
    pub fn set_index_bytes(&self, most_bytes: u64) {
        self.0.most_index_bytes.store(most_bytes, Ordering::Relaxed);
    }

    /// Memory in use.
    pub fn memory_bytes(&self) -> u64 {
        self.0.index.lock().bytes() + self.0.staging.lock().bytes()
    }

    /// Adds a device, open for writing. Its content is known once [`CacheDevices::keep_feeding`] has read its
    /// log. Returns `false` if too small or too large, or there are too many.
    #[boxed]
    pub async fn add(&self, vdev: Guid, ashift: u32, device: Arc<dyn Device>) -> bool {
        let shared = &*self.0;
        let _turn = shared.turn.lock().await;
        let size_bytes = device.size_bytes() / LABEL_BYTES * LABEL_BYTES;
        let end_bytes = size_bytes.saturating_sub(VDEV_LABEL_END_SIZE);
        let persistent_from = shared.settings.persistent_from_bytes();
        let pool = *shared.pool.lock();
        let shape = Shape::new(pool, vdev, ashift, end_bytes, persistent_from);
        if shape.capacity_bytes() < LEAST_RING_BYTES || size_bytes > MAX_DEVICE_BYTES {
            return false;
        }
        let Some(number) = self.free_number() else { return false };
        let (device, is_known) = CacheDevice::open(&shared.runtime, number, shape, device).await;
        if !is_known {
            shared.counters.rebuild_unsupported.one();
            if device.write_header().await.is_none() {
                return false;
            }
        }
        shared.devices.write().push(Arc::new(device));
        shared.has_devices.store(true, Ordering::Relaxed);
        true
    }

    /// Removes a device; it is closed after its last read.
    pub fn remove(&self, vdev: Guid) {
        let shared = &*self.0;
        let mut devices = shared.devices.write();
        let Some(at) = devices.iter().position(|device| device.vdev == vdev) else { return };
        let gone = devices.remove(at);
        shared.index.lock().retain(|place| place.device != gone.number);
        if devices.is_empty() {
            shared.has_devices.store(false, Ordering::Relaxed);
            shared.staging.lock().clear();
        }
    }

    /// Ends the use of all devices after the round under way: they are closed, and keep their content.
    #[boxed]
    pub async fn end(&self) {
        let _turn = self.0.turn.lock().await;
        for vdev in self.devices() {
            self.remove(vdev);
        }
    }

    /// Hands the devices' content over to a new pool guid. A device that can't be written leaves.
    #[boxed]
    pub async fn set_pool(&self, pool: Guid) {
        let shared = &*self.0;
        let _turn = shared.turn.lock().await;
        *shared.pool.lock() = pool;
        let devices: Vec<_> = shared.devices.read().clone();
        for device in devices {
            device.ring.lock().shape.pool = pool;
            if device.write_header().await.is_none() {
                self.remove(device.vdev);
            }
        }
    }

    /// Content and traffic of each device.
    pub fn usage(&self) -> Vec<DeviceUse> {
        let of = |device: &Arc<CacheDevice>| {
            let ring = device.ring.lock();
            DeviceUse {
                vdev: device.vdev,
                used_bytes: ring.used_bytes(),
                capacity_bytes: ring.shape.capacity_bytes(),
                counters: device.counters.clone(),
            }
        };
        self.0.devices.read().iter().map(of).collect()
    }

    /// The devices in use.
    pub fn devices(&self) -> Vec<Guid> {
        self.0.devices.read().iter().map(|device| device.vdev).collect()
    }

    /// Feeds the devices forever. `used` tells the use of a block in memory; `is_warm`: memory is full.
    pub async fn keep_feeding(self, used: impl Fn(&Blkptr) -> Use, is_warm: impl Fn() -> bool) {
        loop {
            self.rebuild().await;
            let round_bytes = self.0.settings.round_bytes(is_warm());
            let written_bytes = self.feed(&used, round_bytes).await;
            self.0.runtime.sleep(self.0.settings.pause(written_bytes > round_bytes / 2)).await;
        }
    }

    /// Reads the logs of new devices.
    #[boxed]
    pub async fn rebuild(&self) {
        let shared = &*self.0;
        let _turn = shared.turn.lock().await;
        let devices: Vec<_> = shared.devices.read().clone();
        for device in devices.iter().filter(|device| device.is_to_rebuild.swap(false, Ordering::Relaxed)) {
            if !shared.settings.rebuilds() {
                continue;
            }
            let counters = &shared.counters;
            let rebuilt = rebuild::walk(device, |block| {
                let mut index = shared.index.lock();
                rebuild::enter(device, &block, &mut index, counters);
                index.bytes() <= shared.most_index_bytes.load(Ordering::Relaxed)
            });
            match rebuilt.await {
                Rebuilt::Whole => counters.rebuild_success.one(),
                Rebuilt::Damaged => counters.rebuild_cksum_lb_errors.one(),
                Rebuilt::Full => counters.rebuild_lowmem.one(),
            }
            if device.ring.lock().log_count() == 0 {
                device.ring.lock().forget_logs();
            }
        }
    }

    /// Writes up to `round_bytes` of waiting blocks to the next device; returns the bytes written.
    pub async fn feed(&self, used: impl Fn(&Blkptr) -> Use, round_bytes: u64) -> u64 {
        let shared = &*self.0;
        let _turn = shared.turn.lock().await;
        let Some(device) = self.next_device() else { return 0 };
        let blocks = self.choose(&device, &used, round_bytes);
        if blocks.is_empty() {
            return 0;
        }
        shared.counters.writes_sent.one();
        let Some(fed) = device.write(blocks).await else {
            shared.counters.writes_error.one();
            self.remove(device.vdev);
            return 0;
        };
        shared.counters.writes_done.one();
        shared.counters.write_bytes.add(fed.bytes);
        shared.counters.log_blk_writes.add(fed.logs);
        let mut index = shared.index.lock();
        if fed.begins_anew {
            let ring = device.ring.lock();
            index.retain(|place| place.device != device.number || ring.is_there(place));
        }
        fed.blocks.into_iter().for_each(|(name, place)| index.insert(name, place));
        fed.bytes
    }

    /// Current statistics.
    pub fn stats(&self) -> L2Stats {
        let shared = &*self.0;
        let mut stats = shared.counters.stats();
        for device in shared.devices.read().iter() {
            let ring = device.ring.lock();
            stats.devices += 1;
            stats.asize += ring.used_bytes();
            stats.log_blk_count += ring.log_count();
            stats.log_blk_asize += ring.log_asize();
        }
        let index = shared.index.lock();
        (stats.bufs, stats.hdr_size) = (index.len(), index.bytes());
        drop(index);
        stats.staged_size = shared.staging.lock().bytes();
        stats
    }

    /// Takes blocks out of staging that qualify and are on no device, as many as fit.
    fn choose(&self, device: &CacheDevice, used: &impl Fn(&Blkptr) -> Use, round_bytes: u64) -> Vec<Staged> {
        let shared = &*self.0;
        let index_is_full = {
            let index = shared.index.lock();
            index.bytes() > shared.most_index_bytes.load(Ordering::Relaxed)
        };
        if index_is_full {
            shared.staging.lock().clear();
            return Vec::new();
        }
        let (mfu_only, no_prefetch) = (shared.settings.is_mfu_only(), shared.settings.excludes_prefetch());
        let qualifies = |block: &Staged| match used(&block.bp) {
            Use::Often => true,
            Use::Once => !mfu_only,
            Use::Gone | Use::Ahead => !(mfu_only || no_prefetch && block.is_ahead),
        };
        let shape = device.ring.lock().shape;
        let most_asize = round_bytes.min(shape.capacity_bytes() / 4);
        let mut asize = 0;
        let fits = |block: &Staged| {
            asize += shape.asize(block.stored.len() as u64);
            asize <= most_asize
        };
        shared.staging.lock().take(qualifies, fits)
    }

    fn next_device(&self) -> Option<Arc<CacheDevice>> {
        let devices = self.0.devices.read();
        let turn = self.0.next.fetch_add(1, Ordering::Relaxed);
        devices.get(turn.checked_rem(devices.len())?).cloned()
    }

    fn free_number(&self) -> Option<u8> {
        let devices = self.0.devices.read();
        (0..MAX_DEVICES as u8).find(|number| devices.iter().all(|device| device.number != *number))
    }

    fn has(&self, bp: &Blkptr) -> bool {
        self.find(bp).is_some()
    }

    /// A block's place, if still there.
    fn find(&self, bp: &Blkptr) -> Option<(Arc<CacheDevice>, BlockName, Place)> {
        let shared = &*self.0;
        if !shared.has_devices.load(Ordering::Relaxed) {
            return None;
        }
        let name = BlockName::of(bp)?;
        let place = shared.index.lock().get(name)?;
        let devices = shared.devices.read();
        let device = devices.iter().find(|device| device.number == place.device)?.clone();
        let is_there = place.psize_bytes == bp.psize().0 && device.ring.lock().is_there(place);
        is_there.then_some((device, name, place))
    }
}

/// The smallest useful ring: a few of the largest blocks.
const LEAST_RING_BYTES: u64 = 64 << 20;

impl SecondLevel for CacheDevices {
    fn read<'a>(&'a self, bp: &'a Blkptr) -> Option<BoxFuture<'a, Option<Bytes>>> {
        let counters = &self.0.counters;
        BlockName::of(bp)?;
        let may_be_read = |(device, ..): &(Arc<CacheDevice>, BlockName, Place)| {
            !self.0.settings.reads_wait() || !device.is_written_to.load(Ordering::Relaxed)
        };
        let Some((device, name, place)) = self.find(bp).filter(may_be_read) else {
            counters.misses.one();
            return None;
        };
        Some(Box::pin(async move {
            let Some(stored) = device.read(place).await else {
                counters.io_error.one();
                self.0.index.lock().remove(name, place);
                return None;
            };
            // It may have been overwritten meanwhile.
            if !device.ring.lock().is_there(place) {
                counters.evict_reading.one();
                return None;
            }
            counters.hits.one();
            counters.read_bytes.add(stored.len() as u64);
            Some(stored)
        }))
    }

    fn reject(&self, bp: &Blkptr) {
        if let Some((_, name, place)) = self.find(bp) {
            self.0.counters.cksum_bad.one();
            self.0.index.lock().remove(name, place);
        }
    }

    fn offer(&self, bp: &Blkptr, stored: &Bytes, offer: Offer) {
        let shared = &*self.0;
        if !shared.has_devices.load(Ordering::Relaxed)
            || offer.is_special && shared.settings.excludes_special()
        {
            return;
        }
        let most_bytes = 2 * shared.settings.round_bytes(true);
        let Some(name) = BlockName::of(bp) else { return };
        if shared.staging.lock().bytes() + stored.len() as u64 > most_bytes || self.has(bp) {
            return;
        }
        // A copy: the slice may be part of a much larger buffer.
        let stored = Bytes::copy_from_slice(stored);
        let block = Staged { name, bp: *bp, stored, is_ahead: offer.is_ahead, passed: 0 };
        shared.staging.lock().push(block);
    }
}

impl std::fmt::Debug for CacheDevices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stats().fmt(f)
    }
}

#[cfg(test)]
mod tests;
