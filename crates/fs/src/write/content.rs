//! Changes the content of files: writes, truncates, clears.
//!
//! A file with one block has a block as large as it needs, in steps of 512 bytes. The block grows up to
//! `recordsize`; then blocks of that size are added. Bytes beyond the file's size are always zeros on disk.
//!
//! Copies: a block written whole keeps a reference to the caller's buffer; a block written in part is copied
//! once per txg and then changed in place.
//!
//! Source: OpenZFS `zfs_vnops.c` (`zfs_write`), `zfs_znode_os.c` (`zfs_grow_blocksize`, `zfs_freesp`).

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use cenote_boxed::boxed;
use cenote_format::sa::ZplAttr;
use cenote_format::units::{BlockId, ObjectId, SPA_MINBLOCKSIZE};
use cenote_format::znode::FileKind;
use cenote_object::Edit;

use super::znode::Znode;
use super::{Change, FsWriter};
use crate::attr::pflags;
use crate::error::{Refusal, Result};

/// The maximum size of a file, `MAX_LFS_FILESIZE` of Linux.
const MAX_SIZE: u64 = i64::MAX as u64;

impl FsWriter {
    /// Writes bytes at an offset; beyond the end, a hole fills the gap.
    ///
    /// # Errors
    /// It is not a file, or may not be changed; it would become too large; a partially written block can't be
    /// read.
    #[boxed]
    pub async fn write(&self, change: Change<'_>, object: ObjectId, offset: u64, data: Bytes) -> Result<()> {
        let _held = self.0.locks.exclusive(&[object]).await;
        let mut node = self.load_to_write(change.edit, object, offset).await?;
        if data.is_empty() {
            return Ok(());
        }
        self.check_bytes(&node).await?;
        let len = data.len() as u64;
        self.put(change.edit, &mut node, offset, data).await?;
        node.content_changed(change)?;
        self.save(change.edit, &mut node).await?;
        self.notes(change).written(&node, offset..offset + len);
        change.edit.view().traffic().wrote(len);
        Ok(())
    }

    /// Clears a range: it reads as zeros, and whole blocks are freed. The size stays.
    ///
    /// # Errors
    /// It is not a file, or may not be changed; a block at the edge can't be read.
    #[boxed]
    pub async fn punch(&self, change: Change<'_>, object: ObjectId, range: Range<u64>) -> Result<()> {
        let _held = self.0.locks.exclusive(&[object]).await;
        let mut node = self.load_to_clear(change.edit, object).await?;
        let end = range.end.min(node.u64(ZplAttr::Size)?);
        clear(change.edit, object, range.start..end).await?;
        node.content_changed(change)?;
        self.save(change.edit, &mut node).await?;
        self.notes(change).punched(&node, range.start..end);
        Ok(())
    }

    /// Clears a range like [`FsWriter::punch`], but grows the file if the range extends beyond its end.
    ///
    /// # Errors
    /// Those of [`FsWriter::punch`]; it would become too large.
    #[boxed]
    pub async fn zero_range(&self, change: Change<'_>, object: ObjectId, range: Range<u64>) -> Result<()> {
        let _held = self.0.locks.exclusive(&[object]).await;
        let mut node = self.load_to_clear(change.edit, object).await?;
        if range.end > MAX_SIZE {
            return Err(Refusal::TooLarge.of(object));
        }
        let size = node.u64(ZplAttr::Size)?;
        clear(change.edit, object, range.start..range.end.min(size)).await?;
        if range.end > size {
            self.resize(change.edit, &mut node, range.end).await?;
        }
        node.content_changed(change)?;
        self.save(change.edit, &mut node).await?;
        self.notes(change).punched(&node, range);
        Ok(())
    }

    /// Loads a file that accepts content at an offset.
    pub(super) async fn load_to_write(&self, edit: &Edit, object: ObjectId, offset: u64) -> Result<Znode> {
        let node = self.load(edit, object).await?;
        check_file(&node)?;
        self.may_write(&node, offset)?;
        Ok(node)
    }

    async fn load_to_clear(&self, edit: &Edit, object: ObjectId) -> Result<Znode> {
        let node = self.load(edit, object).await?;
        check_file(&node)?;
        self.may_clear(&node)?;
        Ok(node)
    }

    /// Writes bytes into a file whose lock the caller holds and which it saves.
    pub(super) async fn put(&self, edit: &Edit, node: &mut Znode, offset: u64, data: Bytes) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= MAX_SIZE);
        let end = end.ok_or_else(|| Refusal::TooLarge.of(node.id))?;
        let size = node.u64(ZplAttr::Size)?.max(end);
        self.grow_block(edit, node, size).await?;
        edit.write(node.id, offset, data).await?;
        node.set_u64(ZplAttr::Size, size);
        Ok(())
    }

    /// Changes the size of a file whose lock the caller holds and which it saves.
    pub(super) async fn resize(&self, edit: &Edit, node: &mut Znode, size: u64) -> Result<()> {
        if size > node.u64(ZplAttr::Size)? {
            self.grow_block(edit, node, size).await?;
        } else {
            clear(edit, node.id, size..u64::MAX).await?;
        }
        if size == 0 {
            node.set_u64(ZplAttr::Flags, node.flags()? & !pflags::SPARSE);
        }
        node.set_u64(ZplAttr::Size, size);
        Ok(())
    }

    /// Grows the only block of a small file as far as `size` requires.
    async fn grow_block(&self, edit: &Edit, node: &mut Znode, size: u64) -> Result<()> {
        let (block, record) = (node.block_bytes, self.options().record_bytes);
        let is_settled = block.is_power_of_two() && block >= record;
        let has_more_blocks = node.max_block.0 > 0 || node.u64(ZplAttr::Size)? > block.into();
        if size <= block.into() || is_settled || has_more_blocks {
            return Ok(());
        }
        // A block already larger than `recordsize` grows to the next power of two.
        let limit = if block > record { block.next_power_of_two() } else { record };
        let wanted = size.min(limit.into()).next_multiple_of(SPA_MINBLOCKSIZE) as u32;
        edit.set_block_bytes(node.id, wanted).await?;
        node.block_bytes = wanted;
        Ok(())
    }
}

fn check_file(node: &Znode) -> Result<()> {
    match node.kind()? {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Refusal::IsDirectory.of(node.id)),
        _ => Err(Refusal::Invalid.of(node.id)),
    }
}

/// Clears a range of an object: whole blocks are freed, parts of blocks overwritten with zeros unless holes.
pub(crate) async fn clear(edit: &Edit, id: ObjectId, range: Range<u64>) -> Result<()> {
    let object = edit.view().object(id).await?;
    let size = object.block_bytes();
    let end = range.end.min(object.capacity_bytes());
    if range.start >= end {
        return Ok(());
    }
    let (first, last) = (range.start.div_ceil(size), end / size);
    let edges = match first > last {
        true => [range.start..end, end..end],
        false => [range.start..first * size, last * size..end],
    };
    for edge in edges.into_iter().filter(|edge| !edge.is_empty()) {
        let block = BlockId(edge.start / size);
        if object.next_data_block(block).await? == Some(block) {
            let zeros = BytesMut::zeroed((edge.end - edge.start) as usize);
            edit.write(id, edge.start, zeros.freeze()).await?;
        }
    }
    if first < last {
        edit.punch(id, BlockId(first), last - first).await?;
    }
    Ok(())
}
