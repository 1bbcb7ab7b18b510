//! A device in memory, with a live image and a durable one.
//!
//! ```text
//!   write --> live image --> read          flush: the writes since the last flush become durable
//!              |
//!              +--> writes since the last flush --(power cut)--> durable image
//! ```
//!
//! A real disk may keep any part of its unflushed writes, in any order, sector by sector.
//! [`MemoryDevice::power_cut`] does that, by a seed: each sector is kept, lost or overtaken by an older one.
//! As with Linux's page cache, later flushes do not cover writes lost by a failed flush
//! ([`Device::lose_unflushed`]): they are read as written until the power is cut.
//!
//! Memory: twice the size, plus unflushed writes, plus lost writes not overwritten.
//!
//! Locking: one mutex guards both images; every operation completes inside the call that starts it.

use crate::error::{Op, Result};
use crate::io::Io;
use crate::{Device, DeviceInfo, Nature};
use bytes::Bytes;
use cenote_runtime::Rng;
use parking_lot::Mutex;

/// A device in memory.
pub struct MemoryDevice {
    info: DeviceInfo,
    images: Mutex<Images>,
}

struct Images {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Oldest first. None is older than a durable write to the same place.
    unflushed: Vec<(usize, Bytes)>,
    /// Writes lost by failed flushes; same order.
    lost: Vec<(usize, Bytes)>,
}

impl Images {
    /// Makes a write durable, superseding older ones there.
    fn make_durable(&mut self, at: usize, data: &Bytes) {
        self.durable[at..at + data.len()].copy_from_slice(data);
        cut_out(&mut self.lost, at, data.len());
    }
}

fn cut_out(writes: &mut Vec<(usize, Bytes)>, at: usize, len: usize) {
    let end = at + len;
    if !writes.iter().any(|(start, data)| *start < end && at < start + data.len()) {
        return;
    }
    let rest = |(start, data): (usize, Bytes)| {
        let before = data.slice(..at.saturating_sub(start).min(data.len()));
        let after = data.slice(end.saturating_sub(start).min(data.len())..);
        let after_at = start + data.len() - after.len();
        [(start, before), (after_at, after)].into_iter().filter(|(_, data)| !data.is_empty())
    };
    *writes = std::mem::take(writes).into_iter().flat_map(rest).collect();
}

impl MemoryDevice {
    /// A device of this many bytes, all zero.
    pub fn new(name: &str, size_bytes: usize) -> MemoryDevice {
        // Two zeroed vectors cost nothing until written to; a copy of one would.
        MemoryDevice::with_images(name, vec![0; size_bytes], vec![0; size_bytes])
    }

    /// A device with this durable content.
    pub fn with_content(name: &str, content: Vec<u8>) -> MemoryDevice {
        MemoryDevice::with_images(name, content.clone(), content)
    }

    fn with_images(name: &str, live: Vec<u8>, durable: Vec<u8>) -> MemoryDevice {
        let info = DeviceInfo {
            path: name.into(),
            size_bytes: live.len() as u64,
            sector_bytes: 512,
            rotational: Some(false),
            read_only: false,
            others_may_write: false,
            nature: Nature::LOCAL,
        };
        let images = Images { live, durable, unflushed: Vec::new(), lost: Vec::new() };
        MemoryDevice { info, images: Mutex::new(images) }
    }

    /// Changes the sector size: the unit in which a power cut tears writes.
    pub fn with_sector_bytes(mut self, sector_bytes: u32) -> MemoryDevice {
        self.info.sector_bytes = sector_bytes.max(1);
        self
    }

    /// Cuts the power: each unflushed or lost sector is kept or dropped, in random order. The result is the
    /// content.
    pub fn power_cut(&self, rng: &mut Rng) {
        let sector = self.info.sector_bytes as usize;
        let images = &mut *self.images.lock();
        let mut sectors: Vec<(usize, Bytes)> = Vec::new();
        for (offset, data) in images.lost.drain(..).chain(images.unflushed.drain(..)) {
            split_sectors(offset, &data, sector, &mut sectors);
        }
        // All, none or half: crashes just after and just before a flush are as likely as those between.
        let kept = [0.0, 0.5, 1.0][rng.below(3) as usize];
        while !sectors.is_empty() {
            let (offset, data) = sectors.swap_remove(rng.below(sectors.len() as u64) as usize);
            if rng.chance(kept) {
                images.durable[offset..offset + data.len()].copy_from_slice(&data);
            }
        }
        images.live.clone_from(&images.durable);
    }

    /// A copy of the content as readers see it.
    pub fn live_image(&self) -> Vec<u8> {
        self.images.lock().live.clone()
    }

    /// A copy of the durable content.
    pub fn durable_image(&self) -> Vec<u8> {
        self.images.lock().durable.clone()
    }
}

fn split_sectors(offset: usize, data: &Bytes, sector: usize, out: &mut Vec<(usize, Bytes)>) {
    let mut at = 0;
    while at < data.len() {
        let to_bound = sector - (offset + at) % sector;
        let end = data.len().min(at + to_bound);
        out.push((offset + at, data.slice(at..end)));
        at = end;
    }
}

impl Device for MemoryDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        Io::done(self.info.check_range(Op::Read, offset, len as u64).map(|()| {
            let at = offset as usize; // within a Vec, as just checked
            Bytes::copy_from_slice(&self.images.lock().live[at..at + len])
        }))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        Io::done(self.info.check_writable(Op::Write, offset, data.len() as u64).map(|()| {
            let at = offset as usize;
            let images = &mut *self.images.lock();
            images.live[at..at + data.len()].copy_from_slice(&data);
            images.unflushed.push((at, data));
        }))
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        Io::done(self.info.check_writable(Op::Write, offset, data.len() as u64).map(|()| {
            let at = offset as usize;
            let images = &mut *self.images.lock();
            images.live[at..at + data.len()].copy_from_slice(&data);
            cut_out(&mut images.unflushed, at, data.len());
            images.make_durable(at, &data);
        }))
    }

    fn flush(&self) -> Io<()> {
        let images = &mut *self.images.lock();
        for (offset, data) in std::mem::take(&mut images.unflushed) {
            images.make_durable(offset, &data);
        }
        Io::done(Ok(()))
    }

    fn lose_unflushed(&self) {
        let images = &mut *self.images.lock();
        images.lost.append(&mut images.unflushed);
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        // The strictest reading of the contract: the content is lost at once.
        let zeros = || Bytes::from(vec![0; len as usize]);
        let checked: Result<()> = self.info.check_writable(Op::Discard, offset, len);
        match checked {
            Ok(()) => self.write_at(offset, zeros()),
            Err(error) => Io::done(Err(error)),
        }
    }
}
