//! Changes a volume, in memory. As with files, an operation's future must not be dropped: it runs through
//! [`Engine::change`], which owns it.
//!
//! Concurrent writes to the same block yield one or the other, or parts of both, as on any disk. Partial
//! writes to it are applied one at a time.
//!
//! Locking: any task may call. Every change takes its range, in whole blocks (`ranges`): alone if it changes
//! a part of a block, the whole volume alone if it changes its size. The range is held across the edit and
//! the log record. `size_bytes` is taken last and never held across an await.
//!
//! Source: OpenZFS `zvol.c` (`zvol_create_cb`, `zvol_update_volsize`), `zvol_os.c` (`zvol_write`,
//! `zvol_discard`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use std::ops::Range;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Mos};
use cenote_engine::{Engine, Handle, OpenDataset};
use cenote_format::dnode::ObjectType;
use cenote_format::zil::record::Operation;
use cenote_object::{Edit, LiveObjset, NewObject, NewZap, ZapEdit};
use parking_lot::RwLock;

use super::ranges::{Ranges, Share, Taken};
use super::{Volume, ZVOL_OBJECT, ZVOL_ZAP};
use crate::error::{FsError, Refusal, Result};
use crate::write::clear;
use crate::write::rewrite::{LOOKED_AT, Rewrite, rewrite_blocks};

/// Valid values of `volblocksize`: 512 bytes to 16 MiB in the format.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 512..=16 << 20;

/// A volume opened for changes.
#[derive(Debug)]
pub struct VolumeWriter {
    pub(super) dataset: OpenDataset,
    block_bytes: u64,
    size_bytes: RwLock<u64>,
    /// Whether its blocks may be shared: the pool has the feature.
    pub(super) clones: AtomicBool,
    /// Ranges being changed.
    pub(super) ranges: Ranges,
}

impl Handle for VolumeWriter {
    /// Features of the pool. The size changes with [`VolumeWriter::resize`].
    #[boxed]
    async fn follow_settings(&self, mos: &Mos, _: &Dataset) -> cenote_object::Result<()> {
        let clones = mos.enabled_features().await?.contains("block_cloning");
        self.clones.store(clones, Ordering::Relaxed);
        Ok(())
    }
}

impl VolumeWriter {
    /// Creates a volume in an empty object set.
    ///
    /// # Errors
    /// The block size is invalid; the size is not a multiple of it; the set is not empty.
    #[boxed]
    pub async fn create(
        live: LiveObjset,
        edit: &Edit,
        size_bytes: u64,
        block_bytes: u32,
    ) -> Result<VolumeWriter> {
        if !BLOCK_BYTES.contains(&block_bytes) || !block_bytes.is_power_of_two() {
            return Err(Refusal::Invalid.of(ZVOL_OBJECT));
        }
        check_size(size_bytes, block_bytes.into())?;
        edit.create_at(ZVOL_OBJECT, &NewObject::of(ObjectType::ZVOL).block_bytes(block_bytes)).await?;
        NewZap::of(ObjectType::ZVOL_PROP).create_at(edit, ZVOL_ZAP).await?;
        ZapEdit::new(edit, ZVOL_ZAP).add("size", size_bytes).await?;
        VolumeWriter::open(OpenDataset::without_log(live)).await
    }

    /// Opens a volume for changes.
    ///
    /// # Errors
    /// The set is not a volume, or can't be read.
    #[boxed]
    pub async fn open(dataset: OpenDataset) -> Result<VolumeWriter> {
        let volume = Volume::open(dataset.view()).await?;
        let (block_bytes, size_bytes) = (volume.block_bytes(), RwLock::new(volume.size_bytes()));
        let (clones, ranges) = (AtomicBool::new(false), Ranges::default());
        Ok(VolumeWriter { dataset, block_bytes, size_bytes, clones, ranges })
    }

    /// The volume of this name, opened once for all writers.
    ///
    /// # Errors
    /// As [`VolumeWriter::open`]; there is no such dataset, or it can't be changed.
    #[boxed]
    pub async fn shared(engine: &Engine, name: &str) -> Result<Arc<VolumeWriter>> {
        let mos = engine.mos().await?;
        let dataset = mos.dataset(name).await?;
        let open = async || {
            let volume = VolumeWriter::open(engine.dataset_as(&dataset).await?).await?;
            volume.follow_settings(&mos, &dataset).await?;
            Ok(Arc::new(volume))
        };
        engine.handle(dataset.id(), open).await
    }

    /// The current volume, including changes.
    ///
    /// # Errors
    /// Its objects can't be read.
    #[boxed]
    pub async fn view(&self) -> Result<Volume> {
        Volume::sized(self.dataset.view(), self.size_bytes()).await
    }

    /// The object set that it changes.
    pub fn live(&self) -> &LiveObjset {
        self.dataset.live()
    }

    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        *self.size_bytes.read()
    }

    /// Its block size.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Writes bytes at an offset. Whole blocks are not copied.
    ///
    /// # Errors
    /// They extend beyond the end; a partially written block can't be read.
    #[boxed]
    pub async fn write(&self, edit: &Edit, offset: u64, data: Bytes) -> Result<()> {
        let (_range, end) = self.take_inside(offset, data.len() as u64).await?;
        self.live().view().traffic().wrote(data.len() as u64);
        edit.write(ZVOL_OBJECT, offset, data).await?;
        if let Some(log) = self.dataset.log() {
            log.append_volume_write(edit.txg(), ZVOL_OBJECT, offset..end, self.block_bytes);
        }
        Ok(())
    }

    /// Frees the whole blocks of a range; partial blocks at its edges stay.
    ///
    /// # Errors
    /// It extends beyond the end.
    #[boxed]
    pub async fn discard(&self, edit: &Edit, range: Range<u64>) -> Result<()> {
        self.check_range(range.start, range.end.saturating_sub(range.start))?;
        let start = range.start.next_multiple_of(self.block_bytes);
        let end = range.end / self.block_bytes * self.block_bytes;
        let whole = start..end.max(start);
        let (_range, _) = self.take_inside(whole.start, whole.end - whole.start).await?;
        clear(edit, ZVOL_OBJECT, whole.clone()).await?;
        self.note_cleared(edit, whole);
        Ok(())
    }

    /// Clears a range: it reads as zeros.
    ///
    /// # Errors
    /// It extends beyond the end; a block at the edge can't be read.
    #[boxed]
    pub async fn write_zeros(&self, edit: &Edit, range: Range<u64>) -> Result<()> {
        let (_range, _) = self.take_inside(range.start, range.end.saturating_sub(range.start)).await?;
        clear(edit, ZVOL_OBJECT, range.clone()).await?;
        self.note_cleared(edit, range);
        Ok(())
    }

    /// Rewrites blocks ([`Rewrite`]). Returns the block to continue with.
    ///
    /// # Errors
    /// A block can't be read.
    #[boxed]
    pub async fn rewrite(&self, edit: &Edit, blocks: Range<u64>, how: &Rewrite) -> Result<Option<u64>> {
        // Only blocks that a call reaches are kept from others.
        let part = blocks.start..blocks.end.min(blocks.start.saturating_add(LOOKED_AT));
        let bytes = |block: u64| block.saturating_mul(self.block_bytes);
        let _range = self.ranges.take(bytes(part.start)..bytes(part.end), Share::Alone).await;
        let rest = rewrite_blocks(edit, ZVOL_OBJECT, part.clone(), how).await?;
        let is_cut = part.end < blocks.end && bytes(part.end) < self.size_bytes();
        Ok(rest.or_else(|| is_cut.then_some(part.end)))
    }

    /// Changes its size; data beyond a smaller size is freed.
    ///
    /// # Errors
    /// The size is zero, or not a multiple of the block size.
    #[boxed]
    pub async fn resize(&self, edit: &Edit, size_bytes: u64) -> Result<()> {
        check_size(size_bytes, self.block_bytes)?;
        let _all = self.ranges.take(0..u64::MAX, Share::Alone).await;
        // No record describes a resize, and this comes first: a concurrent commit must not look for truncated
        // data.
        self.dataset.log().inspect(|log| {
            log.cannot_say(edit.txg());
            log.forget(ZVOL_OBJECT);
        });
        clear(edit, ZVOL_OBJECT, size_bytes..u64::MAX).await?;
        ZapEdit::new(edit, ZVOL_ZAP).update("size", size_bytes).await?;
        *self.size_bytes.write() = size_bytes;
        Ok(())
    }

    /// Makes all writes durable. Must not be called under a hold.
    ///
    /// # Errors
    /// Neither the log nor a txg could be written.
    #[boxed]
    pub async fn commit(&self) -> Result<()> {
        Ok(self.dataset.commit(Some(ZVOL_OBJECT)).await?)
    }

    /// Whether each change is to be committed before it is reported as done (`sync=always`).
    pub fn is_sync_always(&self) -> bool {
        self.dataset.log().is_some_and(cenote_engine::Log::is_always)
    }

    /// Takes a range for a change, and returns its end. The volume may shrink during the wait, so the size is
    /// checked again afterwards.
    pub(super) async fn take_inside(&self, offset: u64, len: u64) -> Result<(Taken<'_>, u64)> {
        let end = self.check_range(offset, len)?;
        let taken = self.take(offset..end).await;
        self.check_range(offset, len)?;
        Ok((taken, end))
    }

    /// Takes a range for a change: shared if it consists of whole blocks.
    async fn take(&self, range: Range<u64>) -> Taken<'_> {
        let start = range.start / self.block_bytes * self.block_bytes;
        let end = range.end.next_multiple_of(self.block_bytes);
        let share = if (start..end) == range { Share::Side } else { Share::Alone };
        self.ranges.take(start..end, share).await
    }

    fn note_cleared(&self, edit: &Edit, range: Range<u64>) {
        if let Some(log) = self.dataset.log().filter(|_| !range.is_empty()) {
            let (object, offset_bytes, length_bytes) = (ZVOL_OBJECT, range.start, range.end - range.start);
            log.append(edit.txg(), Operation::Truncate { object, offset_bytes, length_bytes });
        }
    }

    /// Checks a range and returns its end.
    pub(super) fn check_range(&self, offset: u64, len: u64) -> Result<u64> {
        let end = offset.checked_add(len).filter(|&end| end <= self.size_bytes());
        end.ok_or_else(|| Refusal::NoSpace.of(ZVOL_OBJECT))
    }
}

fn check_size(size_bytes: u64, block_bytes: u64) -> Result<(), FsError> {
    let is_sound = size_bytes > 0 && size_bytes <= i64::MAX as u64 && size_bytes.is_multiple_of(block_bytes);
    if is_sound { Ok(()) } else { Err(Refusal::Invalid.of(ZVOL_OBJECT)) }
}
