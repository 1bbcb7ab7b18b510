//! `zstream redup`: a deduplicated stream (`zfs send -D`, up to 2020) becomes one that can be received.
//!
//! Idea: WRITE_BYREF records refer to earlier WRITE records. The first pass over the file notes the blocks
//! referred to, the second their places as they go by; their payloads are read again from there.
//!
//! Memory: one entry per block referred to. (zstream has one per block.)

use std::collections::HashMap;

use bytes::Bytes;
use cenote_format::stream::{Begin, DRR_BYTES, Record, StreamFeatures, Write};
use cenote_format::units::{Guid, ObjectId};
use tokio::io::AsyncWrite;

use super::FilterError;
use crate::file::StreamFile;
use crate::reader::{Item, StreamReader};
use crate::writer::StreamWriter;

/// Records of a converted stream.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Redup {
    /// All.
    pub records: u64,
    /// References, now blocks.
    pub references: u64,
    /// Distinct blocks that references name.
    pub blocks: u64,
}

/// A block by snapshot, object and offset.
type Key = (Guid, ObjectId, u64);

/// Converts a deduplicated stream. Others pass unchanged.
///
/// # Errors
/// The stream is damaged, or refers to blocks that it does not contain; errors of the sink.
pub async fn redup(
    file: &StreamFile,
    sink: Box<dyn AsyncWrite + Send + Unpin>,
) -> Result<Redup, FilterError> {
    let mut places: HashMap<Key, Option<u64>> = HashMap::new();
    let mut reader = StreamReader::new(file.from(0));
    while let Some(item) = reader.next().await? {
        if let Record::WriteByref(byref) = item.record {
            places.insert((byref.ref_guid, byref.ref_object, byref.ref_offset), None);
        }
    }
    let mut done = Redup { blocks: places.len() as u64, ..Redup::default() };
    let mut reader = StreamReader::new(file.from(0));
    let mut writer: Option<StreamWriter> = None;
    let mut sink = Some(sink);
    while let Some(Item { record, payload, end_bytes, .. }) = reader.next().await? {
        done.records += 1;
        let (record, payload) = match record {
            Record::Begin(begin) => (Record::Begin(without_dedup(begin)), payload),
            Record::WriteByref(byref) => {
                done.references += 1;
                let key = (byref.ref_guid, byref.ref_object, byref.ref_offset);
                let missing = FilterError::NoBlock { object: byref.object, offset: byref.offset };
                let at = places.get(&key).copied().flatten();
                let (write, payload) = block(file, at, key, &reader)?.ok_or(missing)?;
                let (object, offset, to_guid) = (byref.object, byref.offset, byref.to_guid);
                (Record::Write(Write { object, offset, to_guid, ..write }), payload)
            }
            Record::Write(write) => {
                if let Some(place) = places.get_mut(&(write.to_guid, write.object, write.offset)) {
                    *place = Some(end_bytes - payload.len() as u64 - DRR_BYTES as u64);
                }
                (Record::Write(write), payload)
            }
            record => (record, payload),
        };
        if let Some(sink) = sink.take() {
            writer = Some(StreamWriter::new(sink, reader.endian()).summing_packages());
        }
        if let Some(writer) = &mut writer {
            writer.write(&record, &payload).await?;
        }
    }
    if let Some(writer) = &mut writer {
        writer.flush().await?;
    }
    Ok(done)
}

fn without_dedup(begin: Begin) -> Begin {
    let features = begin.features.without(StreamFeatures::DEDUP | StreamFeatures::DEDUPPROPS);
    Begin { features, ..begin }
}

/// The block at a place, if it still is there.
fn block(
    file: &StreamFile,
    at: Option<u64>,
    key: Key,
    reader: &StreamReader,
) -> Result<Option<(Write, Bytes)>, FilterError> {
    let Some(at) = at else { return Ok(None) };
    let record = file.record(at, reader.endian())?;
    let payload = file.payload(at, &record)?;
    Ok(match record {
        Record::Write(write) if (write.to_guid, write.object, write.offset) == key => Some((write, payload)),
        _ => None,
    })
}
