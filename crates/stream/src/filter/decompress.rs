//! `zstream decompress`: named WRITE records are decompressed, since their recorded compression is wrong.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_codec::compress::Compression;
use cenote_format::stream::{Record, Write};

use super::{Change, Changed, FilterError, Place, algorithm, is_encrypted};

/// How a record's payload is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decompress {
    /// As recorded; LZ4 if the record says that it is not compressed.
    AsRecorded,
    /// With this algorithm, whatever the record says. Off: only the record changes.
    With(Compression),
}

/// Decompresses these records.
pub fn decompress(places: HashMap<Place, Decompress>) -> Change {
    Arc::new(move |record, payload| match record {
        Record::Write(write) => match places.get(&(write.object, write.offset)) {
            Some(how) => decompressed(write, payload, *how),
            None => Ok(Changed::to(Record::Write(write), payload)),
        },
        record => Ok(Changed::to(record, payload)),
    })
}

fn decompressed(write: Write, payload: Bytes, how: Decompress) -> Result<Changed, FilterError> {
    let place = format!("ino {} offset {}", write.object, write.offset);
    let plain = |write: Write| Write { compression_id: 0, compressed_bytes: 0, ..write };
    let with = match how {
        Decompress::With(Compression::Off) => {
            // The payload is as long as before: its record must say so.
            let write = Write { logical_bytes: payload.len() as u64, ..plain(write) };
            let note = format!("Resetting compression type to off for {place}");
            return Ok(Changed::to(Record::Write(write), payload).noting(note));
        }
        Decompress::With(with) => with,
        Decompress::AsRecorded => algorithm(write.compression_id)?.unwrap_or(Compression::Lz4),
    };
    let len = usize::try_from(write.logical_bytes).unwrap_or(usize::MAX);
    let is_crypt = is_encrypted(&write.crypt);
    match with.decompress(&payload, len) {
        Ok(data) if !is_crypt => {
            let note = format!("successfully decompressed {place}");
            Ok(Changed::to(Record::Write(plain(write)), data.into()).noting(note))
        }
        _ => {
            let note = format!("decompression failed for {place}");
            Ok(Changed::to(Record::Write(write), payload).noting(note))
        }
    }
}
