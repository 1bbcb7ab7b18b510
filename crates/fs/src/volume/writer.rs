//! Changing a volume, in memory.
//!
//! Who writes to the same block from two sides at a time gets one or the other, or pieces of both, as on any disk; the block
//! itself stays whole: parts of it are put in one after the other.
//!
//! Source: OpenZFS `zvol.c` (`zvol_create_cb`, `zvol_update_volsize`), `zvol_os.c` (`zvol_write`, `zvol_discard`).

use std::ops::Range;

use bytes::Bytes;
use cenote_dataset::live::{Edit, LiveObjset, NewObject};
use cenote_dataset::{NewZap, ZapEdit};
use cenote_format::dnode::ObjectType;
use cenote_format::zil::record::Operation;
use parking_lot::RwLock;

use super::{Volume, ZVOL_OBJECT, ZVOL_ZAP};
use crate::error::{FsError, Refusal, Result};
use crate::write::clear;

/// Blocks of a volume, `volblocksize`: 512 bytes to 16 MiB by the format.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 512..=16 << 20;

/// A volume that is changed.
#[derive(Debug)]
pub struct VolumeWriter {
    live: LiveObjset,
    block_bytes: u64,
    size_bytes: RwLock<u64>,
    /// Held for parts of blocks, and shared by all others.
    parts: tokio::sync::RwLock<()>,
}

impl VolumeWriter {
    /// Makes a volume in an object set that is empty.
    ///
    /// # Errors
    /// Blocks of that size can't be; the size is no multiple of theirs; the set is not empty.
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
        VolumeWriter::open(live).await
    }

    /// Opens a volume to change it.
    ///
    /// # Errors
    /// The set is something else, or can't be read.
    pub async fn open(live: LiveObjset) -> Result<VolumeWriter> {
        let volume = Volume::open(live.view()).await?;
        let (block_bytes, size_bytes) = (volume.block_bytes(), RwLock::new(volume.size_bytes()));
        Ok(VolumeWriter { live, block_bytes, size_bytes, parts: tokio::sync::RwLock::default() })
    }

    /// The volume as it is now, changes included.
    ///
    /// # Errors
    /// Its objects can't be read.
    pub async fn view(&self) -> Result<Volume> {
        Volume::open(self.live.view()).await
    }

    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        *self.size_bytes.read()
    }

    /// Bytes of its blocks.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Writes bytes at an offset. Whole blocks are not copied.
    ///
    /// # Errors
    /// They reach beyond the end; a block that is written in part can't be read.
    pub async fn write(&self, edit: &Edit, offset: u64, data: Bytes) -> Result<()> {
        let end = self.check_range(offset, data.len() as u64)?;
        let is_aligned = offset.is_multiple_of(self.block_bytes) && end.is_multiple_of(self.block_bytes);
        if is_aligned {
            let _side_by_side = self.parts.read().await;
            edit.write(ZVOL_OBJECT, offset, data).await?;
        } else {
            let _alone = self.parts.write().await;
            edit.write(ZVOL_OBJECT, offset, data).await?;
        }
        if let Some(log) = self.live.log() {
            log.append_volume_write(edit.txg(), ZVOL_OBJECT, offset..end, self.block_bytes);
        }
        Ok(())
    }

    /// Frees the whole blocks of a range; what parts of blocks hold stays.
    ///
    /// # Errors
    /// It reaches beyond the end.
    pub async fn discard(&self, edit: &Edit, range: Range<u64>) -> Result<()> {
        self.check_range(range.start, range.end.saturating_sub(range.start))?;
        let start = range.start.next_multiple_of(self.block_bytes);
        let end = range.end / self.block_bytes * self.block_bytes;
        let _side_by_side = self.parts.read().await;
        clear(edit, ZVOL_OBJECT, start..end.max(start)).await?;
        self.note_cleared(edit, start..end);
        Ok(())
    }

    /// Clears a range: it reads as zeros.
    ///
    /// # Errors
    /// It reaches beyond the end; a block at the edge can't be read.
    pub async fn write_zeros(&self, edit: &Edit, range: Range<u64>) -> Result<()> {
        self.check_range(range.start, range.end.saturating_sub(range.start))?;
        let _alone = self.parts.write().await;
        clear(edit, ZVOL_OBJECT, range.clone()).await?;
        self.note_cleared(edit, range);
        Ok(())
    }

    /// Gives it another size; what lies beyond a smaller one is freed.
    ///
    /// # Errors
    /// The size is none, or no multiple of the blocks'.
    pub async fn resize(&self, edit: &Edit, size_bytes: u64) -> Result<()> {
        check_size(size_bytes, self.block_bytes)?;
        let _alone = self.parts.write().await;
        // No record says it, and before it is done: a commit under way must not find what is cut off.
        self.live.log().inspect(|log| {
            log.cannot_say(edit.txg());
            log.forget(ZVOL_OBJECT);
        });
        clear(edit, ZVOL_OBJECT, size_bytes..u64::MAX).await?;
        ZapEdit::new(edit, ZVOL_ZAP).update("size", size_bytes).await?;
        *self.size_bytes.write() = size_bytes;
        Ok(())
    }

    /// Makes durable what was written. Not under a hold.
    ///
    /// # Errors
    /// Neither the log nor a group could be written.
    pub async fn commit(&self) -> Result<()> {
        Ok(self.live.commit(Some(ZVOL_OBJECT)).await?)
    }

    fn note_cleared(&self, edit: &Edit, range: Range<u64>) {
        if let Some(log) = self.live.log().filter(|_| !range.is_empty()) {
            let (object, offset_bytes, length_bytes) = (ZVOL_OBJECT, range.start, range.end - range.start);
            log.append(edit.txg(), Operation::Truncate { object, offset_bytes, length_bytes });
        }
    }

    /// Checks a range and answers its end.
    fn check_range(&self, offset: u64, len: u64) -> Result<u64> {
        let end = offset.checked_add(len).filter(|&end| end <= self.size_bytes());
        end.ok_or_else(|| Refusal::NoSpace.of(ZVOL_OBJECT))
    }
}

fn check_size(size_bytes: u64, block_bytes: u64) -> Result<(), FsError> {
    let is_sound = size_bytes > 0 && size_bytes <= i64::MAX as u64 && size_bytes.is_multiple_of(block_bytes);
    if is_sound { Ok(()) } else { Err(Refusal::Invalid.of(ZVOL_OBJECT)) }
}
