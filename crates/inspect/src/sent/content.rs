//! An object's content, block by block.

use std::ops::Range;

use bytes::Bytes;
use cenote_codec::compress::Compression;
use cenote_format::stream::Record;
use cenote_format::units::{ObjectId, SPA_MAXBLOCKSIZE};
use cenote_stream::StreamFile;

use super::index::place;
use super::{Result, Sent, damaged};

/// A piece of an object's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes.
    Data(Bytes),
    /// A hole of this many bytes.
    Hole(u64),
}

/// A position in an object's content.
pub struct Content {
    object: ObjectId,
    range: Range<u64>,
    /// The lowest offset of a block not seen yet.
    next: u64,
    /// A block that begins later, or of which a part is left.
    block: Option<(u64, Bytes)>,
}

impl Sent {
    /// A range of an object's content.
    ///
    /// # Errors
    /// No such object.
    pub fn content(&mut self, object: ObjectId, range: Range<u64>) -> Result<Content> {
        self.object(object)?;
        // The block with the first byte begins before it.
        let next = range.start.saturating_sub(SPA_MAXBLOCKSIZE);
        Ok(Content { object, range, next, block: None })
    }

    /// The object's first block at or after an offset: its offset and content.
    pub(super) fn block(&mut self, object: ObjectId, offset: u64) -> Result<Option<(u64, Bytes)>> {
        let first = self.index.segment_of_block((object, offset));
        for number in first..self.index.len() {
            if number > first && self.index.is_beyond(number, object) {
                break;
            }
            let Some((at, record)) = self.segment(number)?.block((object, offset)).cloned() else { continue };
            let (owner, found) = place(&record);
            if owner != object {
                break;
            }
            return Ok(Some((found, data(&self.file, at, &record)?)));
        }
        Ok(None)
    }
}

impl Content {
    /// The next piece; none at the end of the range.
    ///
    /// # Errors
    /// Damage.
    pub fn next(&mut self, sent: &mut Sent) -> Result<Option<Piece>> {
        let Range { start, end } = self.range;
        if start >= end {
            return Ok(None);
        }
        loop {
            if self.block.is_none() {
                self.block = sent.block(self.object, self.next)?.filter(|(offset, _)| *offset < end);
                self.next = self.block.as_ref().map_or(u64::MAX, |(offset, _)| offset.saturating_add(1));
            }
            let Some((offset, data)) = &self.block else {
                self.range.start = end;
                return Ok(Some(Piece::Hole(end - start)));
            };
            if *offset > start {
                self.range.start = *offset;
                return Ok(Some(Piece::Hole(offset - start)));
            }
            let skipped = usize::try_from(start - offset).unwrap_or(usize::MAX).min(data.len());
            let wanted = usize::try_from(end - start).unwrap_or(usize::MAX);
            let part = data.slice(skipped..data.len().min(skipped.saturating_add(wanted)));
            self.block = None;
            if !part.is_empty() {
                self.range.start = start + part.len() as u64;
                return Ok(Some(Piece::Data(part)));
            }
        }
    }
}

/// The content of a block or spill record.
pub(super) fn data(file: &StreamFile, at: u64, record: &Record) -> Result<Bytes> {
    let payload = file.payload(at, record)?;
    let decompress = |object, compression_id: u8, bytes: &[u8], len: u64| -> Result<Vec<u8>> {
        let wrong = |error: cenote_codec::compress::CompressError| damaged(object, &error.to_string());
        let compression = Compression::try_from(compression_id).map_err(wrong)?;
        compression.decompress(bytes, usize::try_from(len).unwrap_or(usize::MAX)).map_err(wrong)
    };
    match record {
        Record::Write(write) if write.compression_id != 0 => {
            let data = decompress(write.object, write.compression_id, &payload, write.logical_bytes)?;
            Ok(data.into())
        }
        Record::WriteEmbedded(write) => {
            let bytes = payload.get(..write.physical_bytes as usize).unwrap_or(&payload);
            let len = u64::from(write.logical_bytes);
            let mut data = decompress(write.object, write.compression_id, bytes, len)?;
            if write.length > SPA_MAXBLOCKSIZE {
                return Err(damaged(write.object, "an embedded block is longer than any block"));
            }
            data.resize(usize::try_from(write.length).unwrap_or(0), 0);
            Ok(data.into())
        }
        Record::Spill(spill) if spill.compressed_bytes != 0 => {
            Ok(decompress(spill.object, spill.compression_id, &payload, spill.length)?.into())
        }
        _ => Ok(payload),
    }
}
