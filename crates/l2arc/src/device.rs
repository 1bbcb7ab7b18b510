//! One cache device: its ring, reads and writes.
//!
//! ```text
//!   feed   make room, place blocks --> write them, and log blocks --> header
//! ```
//!
//! Nothing is flushed: checksums detect writes torn by a power cut, in log blocks at the next import and in
//! blocks when read.
//!
//! Locking: one round of feeding or rebuild at a time, ensured by [`crate::CacheDevices`]. The ring's mutex
//! is held for arithmetic only, never across an await.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use cenote_codec::Endian;
use cenote_codec::checksum::embedded::label_verifier;
use cenote_codec::checksum::{Checksum, Stored};
use cenote_codec::compress::Compression;
use cenote_device::{Counted, Counters, Device};
use cenote_format::blkptr::Blkptr;
use cenote_format::l2arc::{
    DeviceHeader, L2ARC_LOG_BLK_BYTES, LogBlock, LogEntry, LogPointer, Prop, PropParts,
};
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::Guid;
use cenote_format::words::Pad;
use cenote_runtime::Runtime;
use parking_lot::Mutex;

use crate::index::{BlockName, Place};
use crate::ring::{Ring, Shape, log_checksum};
use crate::staging::Staged;

/// Size of joined writes.
const PIECE_BYTES: usize = 1 << 20;
/// `ARC_STATE_MRU`: the list recorded for all blocks.
const ARC_STATE_MRU: u8 = 1;

pub(crate) struct CacheDevice {
    pub(crate) vdev: Guid,
    /// In the index.
    pub(crate) number: u8,
    device: Counted,
    pub(crate) counters: Arc<Counters>,
    pub(crate) ring: Mutex<Ring>,
    /// Its log is not read yet.
    pub(crate) is_to_rebuild: AtomicBool,
    pub(crate) is_written_to: AtomicBool,
}

/// The result of a round of feeding.
#[derive(Debug, Default)]
pub(crate) struct Fed {
    pub(crate) blocks: Vec<(BlockName, Place)>,
    pub(crate) bytes: u64,
    pub(crate) logs: u64,
    /// A new round of the ring began: blocks of the round before the last are gone.
    pub(crate) begins_anew: bool,
}

impl CacheDevice {
    /// Returns the device, and whether its header was readable.
    pub(crate) async fn open(
        runtime: &Runtime,
        number: u8,
        shape: Shape,
        device: Arc<dyn Device>,
    ) -> (CacheDevice, bool) {
        let counters = Arc::<Counters>::default();
        let device = Counted::new(device, counters.clone(), runtime);
        let found = read_header(&device, &shape).await.and_then(|header| Ring::resume(shape, &header));
        let is_known = found.is_some();
        let ring = found.unwrap_or_else(|| Ring::new(shape));
        let (is_to_rebuild, is_written_to) = (is_known.into(), AtomicBool::new(false));
        let vdev = shape.vdev;
        let ring = ring.into();
        (CacheDevice { vdev, number, device, counters, ring, is_to_rebuild, is_written_to }, is_known)
    }

    /// Reads a block; `None` if that fails.
    pub(crate) async fn read(&self, place: Place) -> Option<Bytes> {
        self.device.read_at(place.at_bytes, place.psize_bytes as usize).await.ok()
    }

    /// Writes blocks; `None` if the device fails.
    pub(crate) async fn write(&self, blocks: Vec<Staged>) -> Option<Fed> {
        self.is_written_to.store(true, Ordering::Relaxed);
        let written = self.write_round(blocks).await;
        self.is_written_to.store(false, Ordering::Relaxed);
        written
    }

    async fn write_round(&self, blocks: Vec<Staged>) -> Option<Fed> {
        let (fed, pieces) = self.place(blocks);
        for (at_bytes, piece) in pieces {
            self.device.write_at(at_bytes, piece).await.ok()?;
        }
        self.write_header().await?;
        Some(fed)
    }

    /// Makes room for blocks and places them; returns the writes.
    fn place(&self, blocks: Vec<Staged>) -> (Fed, Vec<(u64, Bytes)>) {
        let (mut fed, mut pieces) = (Fed::default(), Pieces::default());
        let mut ring = self.ring.lock();
        let asize = blocks.iter().map(|block| ring.shape.asize(block.stored.len() as u64)).sum();
        let room = ring.worst_asize(asize, blocks.len());
        fed.begins_anew = ring.make_room(room);
        for Staged { name, bp, stored, is_ahead, .. } in blocks {
            let (at_bytes, log) = ring.place(log_entry(&bp, &stored, is_ahead));
            let asize = ring.shape.asize(stored.len() as u64);
            pieces.put(at_bytes, &stored, asize as usize);
            let (device, round) = (self.number, ring.round());
            fed.blocks.push((name, Place { device, round, at_bytes, psize_bytes: stored.len() as u64 }));
            fed.bytes += asize;
            if let Some((at_bytes, log)) = log {
                pieces.put(at_bytes, &log, log.len());
                fed.bytes += log.len() as u64;
                fed.logs += 1;
            }
        }
        (fed, pieces.done())
    }

    /// Writes the header; `None` if the device fails.
    pub(crate) async fn write_header(&self) -> Option<()> {
        let (header, sector_bytes) = {
            let ring = self.ring.lock();
            (ring.header(), ring.shape.sector_bytes)
        };
        let mut sector = header.encode_sector(sector_bytes as usize);
        let verifier = label_verifier(VDEV_LABEL_START_SIZE);
        Checksum::Label.seal(&mut sector, verifier, Endian::Little).ok()?;
        self.device.write_at(VDEV_LABEL_START_SIZE, sector.into()).await.ok()
    }

    /// Reads a log block; `None` if that fails, or it does not match its pointer.
    pub(crate) async fn read_log(&self, log: &LogPointer) -> Option<LogBlock> {
        let parts = log.prop.parts();
        let stored = self.device.read_at(log.at_bytes, parts.psize_bytes as usize).await.ok()?;
        if log_checksum(&stored) != log.checksum {
            return None;
        }
        let entries = self.ring.lock().shape.log_entries;
        let compression = Compression::try_from(parts.compression).ok()?;
        if compression == Compression::Off {
            return LogBlock::decode(&stored, entries).ok();
        }
        let mut whole = vec![0; L2ARC_LOG_BLK_BYTES];
        compression.decompress_into(&stored, &mut whole).ok()?;
        LogBlock::decode(&whole, entries).ok()
    }
}

async fn read_header(device: &dyn Device, shape: &Shape) -> Option<DeviceHeader> {
    let sector = device.read_at(VDEV_LABEL_START_SIZE, shape.sector_bytes as usize).await.ok()?;
    let verifier = label_verifier(VDEV_LABEL_START_SIZE);
    Checksum::Label.verify_embedded(&sector, verifier, Stored::Checksum).ok()?;
    DeviceHeader::decode_any(&sector).ok()
}

fn log_entry(bp: &Blkptr, stored: &[u8], is_ahead: bool) -> LogEntry {
    let is_metadata = bp.level() > 0 || bp.object_type().is_metadata();
    let compression = bp.compression_id();
    let is_zstd = compression == Compression::Zstd as u8 && !bp.uses_crypt();
    // The fifth byte of a zstd block is its level.
    let level = stored.get(4).filter(|_| is_zstd).copied().unwrap_or_default();
    let parts = PropParts {
        lsize_bytes: bp.lsize().0,
        psize_bytes: stored.len() as u64,
        compression,
        is_prefetch: is_ahead,
        checksum: 0,
        is_metadata,
        is_protected: bp.uses_crypt(),
        state: ARC_STATE_MRU,
    };
    let dva = bp.dvas().next().unwrap_or_default();
    let (birth, level) = (bp.physical_birth(), level.into());
    LogEntry { dva, birth, prop: Prop::of(parts), at_bytes: 0, level, pad: Pad }
}

/// Joins adjacent writes.
#[derive(Default)]
struct Pieces {
    done: Vec<(u64, Bytes)>,
    at_bytes: u64,
    piece: BytesMut,
}

impl Pieces {
    fn put(&mut self, at_bytes: u64, bytes: &[u8], asize: usize) {
        let is_next = self.at_bytes + self.piece.len() as u64 == at_bytes;
        if !is_next || self.piece.len() + asize > PIECE_BYTES {
            self.end();
            self.at_bytes = at_bytes;
            self.piece.reserve(asize.max(PIECE_BYTES));
        }
        let filled = self.piece.len() + asize;
        self.piece.extend_from_slice(bytes);
        self.piece.resize(filled, 0);
    }

    fn end(&mut self) {
        if !self.piece.is_empty() {
            self.done.push((self.at_bytes, self.piece.split().freeze()));
        }
    }

    fn done(mut self) -> Vec<(u64, Bytes)> {
        self.end();
        self.done
    }
}
