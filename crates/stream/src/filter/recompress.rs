//! `zstream recompress`: WRITE records are compressed anew, encrypted ones excepted.
//!
//! Like zstream, it leaves BEGIN's features as they are: receivers go by each record.

use std::sync::Arc;

use bytes::Bytes;
use cenote_codec::compress::{Compression, ZstdLevel};
use cenote_format::stream::{Record, Write};
use cenote_format::units::SPA_MINBLOCKSIZE;

use super::{Change, Changed, FilterError, algorithm, is_encrypted};

/// The compression of all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recompress {
    /// Off: records are decompressed.
    pub with: Compression,
    /// Of zstd.
    pub level: ZstdLevel,
}

/// Compresses all records like this.
pub fn recompress(how: Recompress) -> Change {
    Arc::new(move |record, payload| match record {
        Record::Write(write) if !is_encrypted(&write.crypt) => recompressed(write, payload, how),
        record => Ok(Changed::to(record, payload)),
    })
}

fn recompressed(write: Write, payload: Bytes, how: Recompress) -> Result<Changed, FilterError> {
    let len = usize::try_from(write.logical_bytes).unwrap_or(usize::MAX);
    let data = match algorithm(write.compression_id)? {
        None => payload,
        Some(before) => {
            let wrong = |_| FilterError::Decompress {
                object: write.object,
                offset: write.offset,
                compression_id: write.compression_id,
            };
            before.decompress(&payload, len).map_err(wrong)?.into()
        }
    };
    let plain = Write { compression_id: 0, compressed_bytes: 0, ..write };
    if how.with == Compression::Off {
        return Ok(Changed::to(Record::Write(plain), data));
    }
    // A block must become a sector smaller.
    let limit = len.saturating_sub(SPA_MINBLOCKSIZE as usize);
    let Some(mut smaller) = how.with.compress(&data, limit, how.level)? else {
        return Ok(Changed::to(Record::Write(plain), data));
    };
    smaller.resize(smaller.len().next_multiple_of(SPA_MINBLOCKSIZE as usize), 0);
    if smaller.len() >= len {
        return Ok(Changed::to(Record::Write(plain), data));
    }
    let compressed_bytes = smaller.len() as u64;
    let write = Write { compression_id: how.with as u8, compressed_bytes, ..plain };
    Ok(Changed::to(Record::Write(write), smaller.into()))
}
