//! Records that change content: writes, truncations, clones.
//!
//! A write record contains its data or references a whole block on disk. Such a block is put in place whole,
//! since a later record may extend the file into data that this one only carried along.
//!
//! Source: OpenZFS `zfs_replay.c` (`zfs_replay_write`, `zfs_replay_truncate`), `zfs_vnops.c` (`zfs_write`,
//! `zfs_clone_range_replay`), `zfs_znode_os.c` (`zfs_freesp`).

use cenote_format::units::ObjectId;
use cenote_format::zil::record::{Operation, WriteData};

use super::{Replay, range};
use crate::error::Result;
use crate::overlay::{ContentOverlay, Source};

/// The maximum block size: bounds the values in a record.
const MAX_BLOCK_BYTES: u64 = 16 << 20;

/// Puts a write record's data in place. Returns the end of the logged write; a whole block may extend
/// further.
pub(super) fn put_write(overlay: &mut ContentOverlay, operation: &Operation) -> Result<u64, &'static str> {
    let Operation::Write { offset_bytes, length_bytes, bp, data, .. } = operation else {
        return Err("is not a write");
    };
    let written = range(*offset_bytes, *length_bytes).ok_or("writes beyond the largest file")?;
    match data {
        WriteData::Copied(bytes) => {
            if bytes.len() as u64 != *length_bytes {
                return Err("holds less data than it claims");
            }
            overlay.put(written.clone(), Source::Bytes(bytes.clone()));
            Ok(written.end)
        }
        WriteData::Indirect => {
            let block = bp.lsize().0;
            let mut target = written.clone();
            if *length_bytes < block {
                let start = written.start - written.start % block;
                target = range(start, block).ok_or("writes beyond the largest file")?;
            }
            if !bp.is_hole() && target.end - target.start > block {
                return Err("writes more than its block holds");
            }
            overlay.put(target, Source::Block(Box::new(*bp), 0));
            Ok(written.end)
        }
    }
}

/// Puts a clone record's blocks in place.
pub(super) fn put_clones(overlay: &mut ContentOverlay, operation: &Operation) -> Result<(), &'static str> {
    let Operation::CloneRange { offset_bytes, length_bytes, block_bytes, blocks, .. } = operation else {
        return Err("is not a clone");
    };
    range(*offset_bytes, *length_bytes).ok_or("clones beyond the largest file")?;
    if *block_bytes == 0 || *block_bytes > MAX_BLOCK_BYTES || offset_bytes % block_bytes != 0 {
        return Err("clones to an offset that is not a block boundary");
    }
    for (i, bp) in blocks.iter().enumerate() {
        let start = offset_bytes.saturating_add(block_bytes.saturating_mul(i as u64));
        let target = range(start, *block_bytes).ok_or("clones beyond the largest file")?;
        let source = if bp.is_hole() { Source::Zeros } else { Source::Block(Box::new(*bp), 0) };
        overlay.put(target, source);
    }
    Ok(())
}

impl Replay {
    pub(super) async fn write(&mut self, id: ObjectId, operation: &Operation) -> Result<()> {
        let Operation::Write { already_synced, offset_bytes, length_bytes, .. } = operation else {
            return Ok(());
        };
        if *already_synced {
            let end = range(*offset_bytes, *length_bytes);
            let end = end.ok_or_else(|| self.contradiction("writes beyond the largest file"))?.end;
            let attr = self.attr_mut(id).await?;
            attr.size = attr.size.max(end);
            return Ok(());
        }
        let node = self.node_mut(id).await?;
        let end = put_write(&mut node.content, operation);
        let end = end.map_err(|why| self.contradiction(why))?;
        let now = self.now;
        let attr = self.attr_mut(id).await?;
        attr.size = attr.size.max(end);
        (attr.mtime, attr.ctime) = (now, now);
        Ok(())
    }

    /// Turns a range into a hole; without a length, truncates the file.
    pub(super) async fn free_space(&mut self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let hole =
            range(offset, len).ok_or_else(|| self.contradiction("truncates beyond the largest file"))?;
        let now = self.now;
        let node = self.node_mut(id).await?;
        let size = node.attr.map_or(0, |attr| attr.size);
        let new_size = if len == 0 && offset < size {
            node.content.truncate(offset);
            offset
        } else {
            node.content.put(hole.start..hole.end.min(size), Source::Zeros);
            size.max(hole.end)
        };
        if let Some(attr) = &mut node.attr {
            attr.size = new_size;
            (attr.mtime, attr.ctime) = (now, now);
        }
        Ok(())
    }

    pub(super) async fn clone_range(&mut self, id: ObjectId, operation: &Operation) -> Result<()> {
        let Operation::CloneRange { offset_bytes, length_bytes, .. } = operation else { return Ok(()) };
        let node = self.node_mut(id).await?;
        put_clones(&mut node.content, operation).map_err(|why| self.contradiction(why))?;
        let now = self.now;
        let attr = self.attr_mut(id).await?;
        attr.size = attr.size.max(offset_bytes.saturating_add(*length_bytes));
        (attr.mtime, attr.ctime) = (now, now);
        Ok(())
    }
}
