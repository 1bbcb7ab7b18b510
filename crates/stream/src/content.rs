//! The content of a stream as one number, to compare the data of two pools.
//!
//! Idea: two pools with the same snapshot send the same blocks, but they may free other ranges, and name
//! their datasets differently. So the number is the sum of the hashes of those records that carry content: an
//! object's attributes, and the blocks. Their order does not matter.

use cenote_boxed::boxed;
use cenote_codec::Endian;
use cenote_codec::checksum::Checksum;
use cenote_format::stream::Record;
use cenote_format::units::Guid;

use crate::error::Result;
use crate::reader::{Item, StreamReader};

/// The content of a stream.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Content {
    /// Guid of the snapshot.
    pub guid: Guid,
    /// Records with content.
    pub records: u64,
    /// Sum of their hashes.
    pub sum: [u64; 4],
}

/// Reads a stream to its end. Its blocks must not be compressed, unless both pools have the same blocks.
///
/// # Errors
/// The stream is damaged or incomplete.
#[boxed]
pub async fn content_of(reader: &mut StreamReader) -> Result<Content> {
    let mut content = Content::default();
    while let Some(item) = reader.next().await? {
        if let Record::Begin(begin) = &item.record {
            content.guid = begin.to_guid;
        }
        if let Some(bytes) = bytes_of(&item) {
            content.records += 1;
            // SHA-256 always succeeds.
            let hash = Checksum::Sha256.compute(&bytes, Endian::Little, None).unwrap_or_default();
            for (sum, word) in content.sum.iter_mut().zip(hash) {
                *sum = sum.wrapping_add(word);
            }
        }
    }
    Ok(content)
}

/// Kind, place and payload of a record with content.
fn bytes_of(Item { record, payload, .. }: &Item) -> Option<Vec<u8>> {
    let words: [u64; 5] = match record {
        Record::Object(object) => {
            let types = u64::from(object.object_type.0) << 32 | u64::from(object.bonus_type.0);
            [1, object.object.0, types, object.block_bytes.into(), object.bonus_bytes.into()]
        }
        Record::Write(write) => {
            [2, write.object.0, write.offset, write.logical_bytes, write.compression_id.into()]
        }
        Record::Spill(spill) => [3, spill.object.0, spill.length, spill.compression_id.into(), 0],
        Record::WriteEmbedded(block) => {
            [4, block.object.0, block.offset, block.logical_bytes.into(), block.compression_id.into()]
        }
        _ => return None,
    };
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.extend_from_slice(payload);
    Some(bytes)
}
