//! Replays writes and truncations of files and volumes.
//!
//! A block in a record is attached whole: it also has data of later writes, which may be recorded nowhere
//! else (`TX_WRITE2`).

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use cenote_format::blkptr::Blkptr;
use cenote_format::sa::ZplAttr;
use cenote_format::units::{BlockId, ObjectId};
use cenote_format::zil::record::{LogRecord, Operation, WriteData};
use cenote_object::{DatasetError, Edit};
use cenote_pool::{InLog, ReadContext};

use super::super::content::clear;
use super::{Replay, contradiction};
use crate::error::{FsError, Result};
use crate::volume::{VolumeWriter, ZVOL_OBJECT};

/// Data to be attached.
struct Piece {
    offset: u64,
    data: Bytes,
    /// The end of the logged write; `data` may extend further.
    end: u64,
}

/// The data of a write record.
async fn piece_of(edit: &Edit, id: ObjectId, operation: &Operation) -> Result<Piece> {
    let Operation::Write { offset_bytes, length_bytes, bp, data, .. } = operation else {
        return Err(contradiction("is not a write"));
    };
    let written = range(*offset_bytes, *length_bytes)?;
    let block = bp.lsize().0;
    let (offset, data) = match data {
        WriteData::Copied(data) if data.len() as u64 == *length_bytes => (written.start, data.clone()),
        WriteData::Copied(_) => return Err(contradiction("holds less data than it claims")),
        WriteData::Indirect if bp.is_hole() => {
            (written.start, BytesMut::zeroed((*length_bytes).min(MAX_BLOCK_BYTES) as usize).freeze())
        }
        WriteData::Indirect if *length_bytes <= block => {
            (written.start - written.start % block, read_block(edit, id, bp).await?)
        }
        WriteData::Indirect => return Err(contradiction("writes more than its block holds")),
    };
    Ok(Piece { offset, data, end: written.end })
}

const MAX_BLOCK_BYTES: u64 = 16 << 20;

async fn read_block(edit: &Edit, id: ObjectId, bp: &Blkptr) -> Result<Bytes> {
    let view = edit.view();
    let context = ReadContext { in_log: Some(InLog::Claimed), ..view.context(id, 0, BlockId(0)) };
    Ok(view.pool().read(bp, &context).await.map_err(DatasetError::from)?)
}

fn range(offset: u64, len: u64) -> Result<Range<u64>, FsError> {
    let end = offset.checked_add(len).filter(|&end| end <= i64::MAX as u64);
    end.map(|end| offset..end).ok_or_else(|| contradiction("reaches beyond the largest file"))
}

struct Clones<'a> {
    range: Range<u64>,
    block_bytes: u64,
    blocks: &'a [Blkptr],
}

fn clones(operation: &Operation) -> Result<Clones<'_>> {
    let Operation::CloneRange { offset_bytes, length_bytes, block_bytes, blocks, .. } = operation else {
        return Err(contradiction("is not a clone"));
    };
    let (range, block_bytes) = (range(*offset_bytes, *length_bytes)?, *block_bytes);
    if block_bytes == 0 || block_bytes > MAX_BLOCK_BYTES || !range.start.is_multiple_of(block_bytes) {
        return Err(contradiction("clones to an offset that is not a block boundary"));
    }
    if (range.end - range.start).div_ceil(block_bytes) != blocks.len() as u64 {
        return Err(contradiction("clones more or fewer blocks than it claims"));
    }
    Ok(Clones { range, block_bytes, blocks })
}

impl Replay<'_> {
    pub(super) async fn write(&self, id: ObjectId, operation: &Operation) -> Result<()> {
        let _held = self.fs.0.locks.exclusive(&[id]).await;
        let mut node = self.fs.load(self.change.edit, id).await?;
        let size = node.u64(ZplAttr::Size)?;
        if let Operation::Write { already_synced: true, offset_bytes, length_bytes, .. } = operation {
            node.set_u64(ZplAttr::Size, size.max(range(*offset_bytes, *length_bytes)?.end));
            return self.fs.save(self.change.edit, &mut node).await;
        }
        let piece = piece_of(self.change.edit, id, operation).await?;
        self.fs.put(self.change.edit, &mut node, piece.offset, piece.data).await?;
        // A whole block may reach beyond the end of the file, which only the write itself moves.
        node.set_u64(ZplAttr::Size, size.max(piece.end));
        node.content_changed(self.change)?;
        self.fs.save(self.change.edit, &mut node).await
    }

    /// Clears a range; without a length, truncates the file at the offset.
    pub(super) async fn clear(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let cleared = range(offset, len)?;
        let _held = self.fs.0.locks.exclusive(&[id]).await;
        let mut node = self.fs.load(self.change.edit, id).await?;
        let size = node.u64(ZplAttr::Size)?;
        if len > 0 {
            clear(self.change.edit, id, cleared.start.min(size)..cleared.end.min(size)).await?;
        }
        if cleared.end > size || len == 0 {
            self.fs.resize(self.change.edit, &mut node, cleared.end).await?;
        }
        node.content_changed(self.change)?;
        self.fs.save(self.change.edit, &mut node).await
    }

    /// Repeats a clone; the log protects the blocks from being freed until then.
    pub(super) async fn clones(&self, id: ObjectId, operation: &Operation) -> Result<()> {
        let Clones { range, block_bytes, blocks } = clones(operation)?;
        let _held = self.fs.0.locks.exclusive(&[id]).await;
        let mut node = self.fs.load(self.change.edit, id).await?;
        self.fs.share(self.change, &mut node, range, block_bytes, blocks).await
    }
}

impl VolumeWriter {
    /// Replays a record. Writes beyond the end, which a later resize cut off, are skipped; this returns
    /// `false`.
    pub(super) async fn replay_record(&self, edit: &Edit, record: &LogRecord) -> Result<bool> {
        let contradicts = |error| match error {
            FsError::Replay { why, .. } => FsError::Replay { sequence: record.seq, why },
            other => other,
        };
        let size = self.size_bytes();
        let fits = |piece: &Piece| piece.offset + piece.data.len() as u64 <= size;
        let operation = &record.operation;
        match operation {
            Operation::Write { already_synced: true, .. } => {}
            Operation::Write { .. } => {
                let piece = piece_of(edit, ZVOL_OBJECT, operation).await.map_err(contradicts)?;
                if !fits(&piece) {
                    return Ok(false);
                }
                self.write(edit, piece.offset, piece.data).await?;
            }
            Operation::CloneRange { .. } => {
                let Clones { range, block_bytes, blocks } = clones(operation).map_err(contradicts)?;
                if range.end > size {
                    return Ok(false);
                }
                edit.share_blocks(ZVOL_OBJECT, BlockId(range.start / block_bytes), blocks).await?;
            }
            Operation::Truncate { offset_bytes, length_bytes, .. } => {
                let cleared = range(*offset_bytes, *length_bytes).map_err(contradicts)?;
                self.write_zeros(edit, cleared.start.min(size)..cleared.end.min(size)).await?;
            }
            _ => return Err(contradicts(contradiction("has a type that volumes don't use"))),
        }
        Ok(true)
    }
}
