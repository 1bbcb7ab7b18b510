//! Checks the records of one stream: their order, places, sizes and payloads.

use bytes::Bytes;
use cenote_codec::compress::Compression;
use cenote_format::dnode::DNODES_PER_BLOCK;
use cenote_format::stream::{
    Begin, ObjectRecord, Record, RecordFlags, Spill, StreamFeatures, Write, WriteEmbedded,
};
use cenote_format::units::{Guid, ObjectId, SPA_MAXBLOCKSIZE, SPA_MINBLOCKSIZE, SPA_OLD_MAXBLOCKSIZE};

use super::{Finder, Severity};
use crate::reader::Item;

/// `DN_MAX_OBJECT`.
const DN_MAX_OBJECT: u64 = 1 << 48;
/// Largest dnode, in slots.
const MAX_SLOTS: u64 = 32;

/// A stream's position.
pub(super) struct Records {
    to_guid: Guid,
    features: StreamFeatures,
    is_whole: bool,
    is_resumed: bool,
    /// The lowest number of a further object.
    next_object: u64,
    /// The last announced objects: old senders announce some before the blocks of the first.
    announced: Vec<ObjectId>,
    last_block: Option<(ObjectId, u64)>,
    /// An undeclared feature is reported once.
    undeclared: StreamFeatures,
}

impl Records {
    pub(super) fn new(begin: &Begin) -> Records {
        Records {
            to_guid: begin.to_guid,
            features: begin.features,
            is_whole: begin.from_guid == Guid(0),
            is_resumed: begin.features.has(StreamFeatures::RESUMING),
            next_object: 0,
            announced: Vec::new(),
            last_block: None,
            undeclared: StreamFeatures::default(),
        }
    }

    pub(super) fn to_guid(&self) -> Guid {
        self.to_guid
    }

    pub(super) fn check(&mut self, item: &Item, finder: &mut Finder<'_>) {
        let payload = &item.payload;
        let (object, to_guid) = match &item.record {
            Record::Object(record) => {
                self.object(record, finder);
                (record.object, record.to_guid)
            }
            Record::Write(record) => {
                self.write(record, payload, finder);
                (record.object, record.to_guid)
            }
            Record::WriteEmbedded(record) => {
                self.embedded(record, payload, finder);
                (record.object, record.to_guid)
            }
            Record::Spill(record) => {
                self.spill(record, payload, finder);
                (record.object, record.to_guid)
            }
            Record::Free(range) => (range.object, range.to_guid),
            Record::Redact(range) => {
                self.need(StreamFeatures::REDACTED, Severity::Wrong, "redacted blocks", finder);
                (range.object, range.to_guid)
            }
            Record::FreeObjects(range) => {
                if range.first.0.checked_add(range.count).is_none() {
                    finder.find(Severity::Wrong, (Some(range.first), None), "a range of objects has no end");
                }
                (ObjectId(1), range.to_guid)
            }
            Record::ObjectRange(range) => {
                self.need(StreamFeatures::RAW, Severity::Wrong, "encrypted dnodes", finder);
                if range.slots != DNODES_PER_BLOCK || !range.first.0.is_multiple_of(DNODES_PER_BLOCK) {
                    finder.find(Severity::Wrong, (Some(range.first), None), "a range is no block of dnodes");
                }
                (ObjectId(1), range.to_guid)
            }
            Record::WriteByref(record) => (record.object, record.to_guid),
            Record::Begin(_) | Record::End(_) => return,
        };
        if to_guid != self.to_guid {
            finder.find(Severity::Wrong, (Some(object), None), "a record is of another snapshot");
        }
        if object.0 == 0 || object.0 >= DN_MAX_OBJECT {
            finder.find(Severity::Wrong, (Some(object), None), "there can be no object of that number");
        }
    }

    fn object(&mut self, record: &ObjectRecord, finder: &mut Finder<'_>) {
        let (object, slots) = (record.object, u64::from(record.slots.max(1)));
        let mut wrong = |why: &str| finder.find(Severity::Wrong, (Some(object), None), why);
        if object.0 < self.next_object {
            wrong("comes after an object that should follow it, or takes its slots");
        }
        let block = u64::from(record.block_bytes);
        if !is_block(block) {
            wrong("its blocks have no such size");
        }
        if slots > MAX_SLOTS || object.0 % MAX_SLOTS + slots > MAX_SLOTS {
            wrong("its dnode crosses the end of a block of dnodes");
        }
        if record.object_type.0 == 0 {
            wrong("it has no type");
        }
        if slots > 1 {
            self.need(StreamFeatures::LARGE_DNODE, Severity::Wrong, "dnodes above 512 bytes", finder);
        }
        if block > SPA_OLD_MAXBLOCKSIZE && !self.features.has(StreamFeatures::RAW) {
            self.need(StreamFeatures::LARGE_BLOCKS, Severity::Odd, "blocks above 128 KiB", finder);
        }
        self.next_object = self.next_object.max(object.0.saturating_add(slots));
        if self.announced.len() as u64 >= 2 * DNODES_PER_BLOCK {
            self.announced.drain(..DNODES_PER_BLOCK as usize);
        }
        self.announced.push(object);
    }

    /// Checks the place of a block.
    fn place(&mut self, object: ObjectId, offset: u64, bytes: u64, finder: &mut Finder<'_>) {
        let mut wrong = |why: &str| finder.find(Severity::Wrong, (Some(object), Some(offset)), why);
        if self.last_block.is_some_and(|last| (object, offset) < last) {
            wrong("a block comes after one that should follow it");
        } else if self.last_block.is_some_and(|last| (object, offset) == last) {
            wrong("a block comes twice");
        }
        if offset.checked_add(bytes).is_none_or(|end| end > 1 << 63) {
            wrong("a block lies beyond the largest object");
        }
        self.owner(object, offset, finder);
        self.last_block = Some((object, offset));
    }

    /// Checks that the stream describes a block's object before it.
    fn owner(&self, object: ObjectId, offset: u64, finder: &mut Finder<'_>) {
        // A resumed stream begins within an object.
        let is_known = self.announced.contains(&object) || self.is_resumed && self.last_block.is_none();
        if !is_known && self.last_block.is_none_or(|(last, _)| last != object) {
            let why = "a block belongs to an object that the stream does not describe before it";
            finder.find(Severity::Wrong, (Some(object), Some(offset)), why);
        }
    }

    fn write(&mut self, record: &Write, payload: &Bytes, finder: &mut Finder<'_>) {
        let Write { object, offset, logical_bytes, .. } = *record;
        self.place(object, offset, logical_bytes, finder);
        let at = (Some(object), Some(offset));
        if !is_block(logical_bytes) {
            finder.find(Severity::Wrong, at, "a block has no such size");
        }
        if logical_bytes > SPA_OLD_MAXBLOCKSIZE {
            self.need(StreamFeatures::LARGE_BLOCKS, Severity::Wrong, "blocks above 128 KiB", finder);
        }
        if record.compression_id != 0 {
            self.need(StreamFeatures::COMPRESSED, Severity::Odd, "compressed blocks", finder);
            self.compressed(record.compression_id, payload, logical_bytes, at, finder);
        }
    }

    fn embedded(&mut self, record: &WriteEmbedded, payload: &Bytes, finder: &mut Finder<'_>) {
        let WriteEmbedded { object, offset, length, physical_bytes, .. } = *record;
        self.need(StreamFeatures::EMBED_DATA, Severity::Wrong, "embedded blocks", finder);
        let at = (Some(object), Some(offset));
        if record.is_spill() {
            finder.find(Severity::Odd, at, "an embedded spill block, which OpenZFS up to 2.4 loses");
            self.owner(object, offset, finder);
        } else {
            self.place(object, offset, length, finder);
        }
        let bytes = payload.slice(..(physical_bytes as usize).min(payload.len()));
        if record.embedded_type != 0 || u64::from(record.logical_bytes) > length {
            finder.find(Severity::Wrong, at, "an embedded block is not what one can be");
        }
        self.compressed(record.compression_id, &bytes, record.logical_bytes.into(), at, finder);
    }

    fn spill(&mut self, record: &Spill, payload: &Bytes, finder: &mut Finder<'_>) {
        let at = (Some(record.object), None);
        if !is_block(record.length) {
            finder.find(Severity::Wrong, at, "its spill block has no such size");
        }
        if self.is_whole && record.flags.has(RecordFlags::SPILL_UNMODIFIED) {
            finder.find(
                Severity::Odd,
                at,
                "its spill block is called unchanged in a stream without a source",
            );
        }
        if record.compressed_bytes != 0 {
            self.compressed(record.compression_id, payload, record.length, at, finder);
        }
    }

    /// Checks that a payload decompresses. Encrypted ones can't be checked.
    fn compressed(
        &mut self,
        compression_id: u8,
        payload: &Bytes,
        len: u64,
        at: (Option<ObjectId>, Option<u64>),
        finder: &mut Finder<'_>,
    ) {
        let Ok(compression) = Compression::try_from(compression_id) else {
            return finder.find(Severity::Wrong, at, format!("compression {compression_id} is unknown"));
        };
        let declared = match compression {
            Compression::Zstd => Some((StreamFeatures::ZSTD, "zstd")),
            _ => None,
        };
        if let Some((feature, name)) = declared {
            self.need(feature, Severity::Odd, &format!("blocks compressed with {name}"), finder);
        }
        if self.features.has(StreamFeatures::RAW) || len > SPA_MAXBLOCKSIZE {
            return;
        }
        if let Err(error) = compression.decompress(payload, usize::try_from(len).unwrap_or(0)) {
            finder.find(Severity::Wrong, at, format!("a block can't be decompressed: {error}"));
        }
    }

    /// Reports, once, a feature that records need and BEGIN lacks.
    fn need(&mut self, feature: StreamFeatures, severity: Severity, what: &str, finder: &mut Finder<'_>) {
        if self.features.has(feature) || self.undeclared.has(feature) {
            return;
        }
        self.undeclared = self.undeclared | feature;
        finder.find(severity, (None, None), format!("it has {what}, which its BEGIN does not declare"));
    }
}

/// Whether a block can have this size.
fn is_block(bytes: u64) -> bool {
    (SPA_MINBLOCKSIZE..=SPA_MAXBLOCKSIZE).contains(&bytes) && bytes.is_multiple_of(SPA_MINBLOCKSIZE)
}
