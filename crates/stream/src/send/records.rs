//! From parts of a snapshot to the records of its stream.
//!
//! Idea: most parts are one record each. Adjacent holes, and adjacent numbers of free objects, become one
//! record, held back until another part comes. A block too large for the stream is cut into records of 128
//! KiB. Records depend on pointers and dnodes alone, so the stream's form and length are known without
//! reading any data.
//!
//! Source: OpenZFS `dmu_send.c` (`do_dump`, `dump_dnode`, `dump_free`, `dmu_dump_write`).

use bytes::Bytes;
use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_format::bytes::Endian;
use cenote_format::ddt::DdtKey;
use cenote_format::dnode::{DNODE_CORE_BYTES, DNODE_MIN_BYTES, DNODES_PER_BLOCK, Dnode, ObjectType};
use cenote_format::stream::{
    CryptFields, FreeObjects, ObjectRange, ObjectRecord, Range, Record, RecordFlags, Spill, StreamFeatures,
    Write, WriteEmbedded,
};
use cenote_format::units::{Guid, ObjectId, SPA_OLD_MAXBLOCKSIZE, Txg};
use cenote_object::object::SPILL_BLOCK;
use cenote_pool::Form;

use super::walk::{Block, Part, Span};

/// `DMU_OBJECT_END`: up to the end.
const DMU_OBJECT_END: u64 = u64::MAX;

/// The form of blocks in a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    pub(super) features: StreamFeatures,
    pub(super) to_guid: Guid,
    /// The txg of the receiver's snapshot.
    pub(super) born_after: Txg,
}

impl Manner {
    pub(super) fn is_raw(&self) -> bool {
        self.features.has(StreamFeatures::RAW)
    }

    /// The pointer itself is sent.
    pub(super) fn is_embedded(&self, block: &Block) -> bool {
        let compression = block.bp.compression_id();
        let legacy = compression < Compression::Lz4 as u8;
        // No receiver takes an embedded spill block, which has no offset.
        block.bp.kind() == BlkptrKind::Embedded
            && block.id != SPILL_BLOCK
            && block.bp.embedded_type() == 0
            && self.features.has(StreamFeatures::EMBED_DATA)
            && (legacy || self.features.has(StreamFeatures::LZ4))
            && (compression != Compression::Zstd as u8 || self.features.has(StreamFeatures::ZSTD))
    }

    /// The block must be cut: the receiver has a smaller limit.
    fn is_cut(&self, bp: &Blkptr) -> bool {
        bp.lsize().0 > SPA_OLD_MAXBLOCKSIZE && !self.features.has(StreamFeatures::LARGE_BLOCKS)
    }

    /// The block with the data of a part's records.
    pub(super) fn data_of<'a>(&self, part: &'a Part) -> Option<&'a Block> {
        match part {
            Part::Block(block) if !self.is_embedded(block) => Some(block),
            _ => None,
        }
    }

    pub(super) fn form(&self, block: &Block) -> Form {
        let bp = &block.bp;
        if self.is_raw() {
            return Form::Stored;
        }
        let is_compressed = self.features.has(StreamFeatures::COMPRESSED)
            && !self.is_cut(bp)
            && bp.endian() == Endian::NATIVE
            && !bp.is_embedded()
            && bp.compression_id() != Compression::Off as u8
            && !bp.object_type().is_metadata();
        if is_compressed { Form::Compressed } else { Form::Clear }
    }

    /// The object of a part in the other byte order, which the receiver would misread.
    pub(super) fn foreign_object(&self, part: &Part) -> Option<ObjectId> {
        let is_foreign = |endian: Endian| !self.is_raw() && endian != Endian::NATIVE;
        match part {
            Part::Object { object, dnode } if !dnode.bonus().is_empty() => {
                is_foreign(dnode.endian()).then_some(*object)
            }
            Part::Block(block) if !is_bytes(block.bp.object_type()) => {
                is_foreign(block.bp.endian()).then_some(block.object)
            }
            _ => None,
        }
    }
}

/// Content without words or structures: independent of byte order.
fn is_bytes(object_type: ObjectType) -> bool {
    [ObjectType::PLAIN_FILE_CONTENTS, ObjectType::ZVOL, ObjectType::PLAIN_OTHER].contains(&object_type)
}

pub(super) struct Records {
    manner: Manner,
    /// Object numbers are below this.
    end_object: u64,
    /// A range that may still grow.
    pending: Option<Record>,
}

pub(super) type Made = Vec<(Record, Bytes)>;

impl Records {
    /// `last_dnode_block`: the last block of dnodes.
    pub(super) fn new(manner: Manner, last_dnode_block: u64) -> Records {
        let end_object = last_dnode_block.saturating_add(1).saturating_mul(DNODES_PER_BLOCK);
        Records { manner, end_object, pending: None }
    }

    /// Appends the records of a part. Without `data`, only their headers matter.
    pub(super) fn part(&mut self, part: &Part, data: Option<Bytes>, made: &mut Made) {
        match part {
            Part::Dnodes { first, slots, bp } if self.manner.is_raw() => {
                self.dnodes(*first, *slots, bp, made);
            }
            Part::Dnodes { .. } => {}
            Part::Object { object, dnode } => self.object(*object, dnode, made),
            Part::Free(object) => self.free_objects(object.0, 1, made),
            Part::Hole(span) if span.object.0 == 0 => {
                let slots = u64::from(span.block_bytes) / DNODE_MIN_BYTES as u64;
                let first = span.first.wrapping_mul(slots);
                self.free_objects(first, span.end.wrapping_mul(slots).wrapping_sub(first), made);
            }
            Part::Hole(span) => {
                if let Some((offset, length)) = bytes_of(span) {
                    self.free(span.object, offset, length, made);
                }
            }
            Part::Redacted(span) => {
                if let Some((offset, length)) = bytes_of(span) {
                    self.redact(span.object, offset, length, made);
                }
            }
            Part::Block(block) if self.manner.is_embedded(block) => self.embedded(block, made),
            Part::Block(block) if block.id == SPILL_BLOCK => self.spill(block, data, made),
            Part::Block(block) => self.block(block, data, made),
        }
    }

    /// Appends the record held back.
    pub(super) fn settle(&mut self, made: &mut Made) {
        made.extend(self.pending.take().map(|record| (record, Bytes::new())));
    }

    fn put(&mut self, record: Record, payload: Bytes, made: &mut Made) {
        self.settle(made);
        made.push((record, payload));
    }

    fn free_objects(&mut self, first: u64, count: u64, made: &mut Made) {
        if first >= self.end_object {
            return;
        }
        let count = count.min(self.end_object - first);
        if let Some(Record::FreeObjects(pending)) = &mut self.pending
            && pending.first.0 + pending.count == first
        {
            pending.count += count;
            return;
        }
        self.settle(made);
        let (first, to_guid) = (ObjectId(first), self.manner.to_guid);
        self.pending = Some(Record::FreeObjects(FreeObjects { first, count, to_guid }));
    }

    fn free(&mut self, object: ObjectId, offset: u64, length: u64, made: &mut Made) {
        let reaches_end = offset.checked_add(length).is_none();
        if let Some(Record::Free(pending)) = &mut self.pending
            && pending.object == object
            && pending.offset.wrapping_add(pending.length) == offset
        {
            pending.length = if reaches_end || length == DMU_OBJECT_END {
                DMU_OBJECT_END
            } else {
                pending.length.wrapping_add(length)
            };
            return;
        }
        let to_guid = self.manner.to_guid;
        let range =
            Range { object, offset, length: if reaches_end { DMU_OBJECT_END } else { length }, to_guid };
        self.settle(made);
        match length {
            DMU_OBJECT_END => made.push((Record::Free(range), Bytes::new())),
            _ => self.pending = Some(Record::Free(range)),
        }
    }

    fn redact(&mut self, object: ObjectId, offset: u64, length: u64, made: &mut Made) {
        if let Some(Record::Redact(pending)) = &mut self.pending
            && pending.object == object
            && pending.offset.wrapping_add(pending.length) == offset
        {
            pending.length = pending.length.wrapping_add(length);
            return;
        }
        self.settle(made);
        let to_guid = self.manner.to_guid;
        self.pending = Some(Record::Redact(Range { object, offset, length, to_guid }));
    }

    fn dnodes(&mut self, first: ObjectId, slots: u64, bp: &Blkptr, made: &mut Made) {
        let (to_guid, crypt, flags) = (self.manner.to_guid, crypt_of(bp), byte_order_of(bp));
        let range = ObjectRange { first, slots, to_guid, crypt, flags };
        self.put(Record::ObjectRange(range), Bytes::new(), made);
    }

    fn object(&mut self, object: ObjectId, dnode: &Dnode, made: &mut Made) {
        let is_large = self.manner.features.has(StreamFeatures::LARGE_BLOCKS);
        let most_bytes = if is_large { u32::MAX } else { SPA_OLD_MAXBLOCKSIZE as u32 };
        let bonus_bytes = dnode.bonus().len() as u32;
        let spill = if dnode.spill().is_some() { RecordFlags::OBJECT_SPILL } else { RecordFlags::default() };
        let mut record = ObjectRecord {
            object,
            object_type: dnode.object_type,
            bonus_type: dnode.bonus_type,
            block_bytes: dnode.data_block_bytes.min(most_bytes),
            bonus_bytes,
            checksum_id: dnode.checksum_id,
            compression_id: dnode.compression_id,
            slots: dnode.slots,
            flags: spill,
            to_guid: self.manner.to_guid,
            ..ObjectRecord::default()
        };
        let mut bonus = bonus_space(dnode);
        if self.manner.is_raw() {
            if dnode.endian() != Endian::NATIVE {
                record.flags = record.flags | RecordFlags::RAW_BYTESWAP;
            }
            record.max_block_id = dnode.max_block_id;
            record.indirect_block_shift = dnode.indirect_block_shift;
            record.levels = dnode.levels;
            record.blkptr_count = dnode.blkptr_count;
            // Raw: the whole bonus space is encrypted, so it is sent beyond the bonus.
            record.raw_bonus_bytes = if bonus_bytes == 0 { 0 } else { bonus.len() as u32 };
        }
        let record = Record::Object(record);
        bonus.truncate(record.payload_bytes() as usize);
        self.put(record, bonus, made);
        let end = dnode.max_block_id.0.wrapping_add(1).wrapping_mul(dnode.data_block_bytes.into());
        self.free(object, end, DMU_OBJECT_END, made);
    }

    fn embedded(&mut self, block: &Block, made: &mut Made) {
        let (bp, bytes) = (&block.bp, block.bp.lsize().0);
        let payload = bp.embedded_payload();
        let record = WriteEmbedded {
            object: block.object,
            offset: block.id.0.wrapping_mul(bytes),
            length: bytes,
            to_guid: self.manner.to_guid,
            compression_id: bp.compression_id(),
            embedded_type: bp.embedded_type(),
            logical_bytes: bytes as u32,
            physical_bytes: payload.len() as u32,
        };
        self.put(Record::WriteEmbedded(record), payload.into(), made);
    }

    fn spill(&mut self, block: &Block, data: Option<Bytes>, made: &mut Made) {
        let bp = &block.bp;
        let mut record = Spill {
            object: block.object,
            length: bp.lsize().0,
            to_guid: self.manner.to_guid,
            ..Spill::default()
        };
        if bp.logical_birth() <= self.manner.born_after {
            record.flags = RecordFlags::SPILL_UNMODIFIED;
        }
        if self.manner.is_raw() {
            record.flags = record.flags | byte_order_of(bp);
            record.compression_id = bp.compression_id();
            record.compressed_bytes = bp.psize().0;
            record.crypt = crypt_of(bp);
        }
        self.put(Record::Spill(record), data.unwrap_or_default(), made);
    }

    fn block(&mut self, block: &Block, data: Option<Bytes>, made: &mut Made) {
        let bp = &block.bp;
        let (mut offset, mut left) = (block.id.0.wrapping_mul(bp.lsize().0), bp.lsize().0);
        if !self.manner.is_cut(bp) {
            let record = self.whole_block(block, offset);
            let payload = data.unwrap_or_default();
            // An uncompressed block may be stored in more bytes than its size.
            let len = payload.len().min(record.payload_bytes() as usize);
            return self.put(record, payload.slice(..len), made);
        }
        let mut data = data.unwrap_or_default();
        while left > 0 {
            let bytes = left.min(SPA_OLD_MAXBLOCKSIZE);
            let payload = data.split_to(data.len().min(bytes as usize));
            let record = self.plain_write(block, offset, bytes);
            self.put(Record::Write(record), payload, made);
            offset = offset.wrapping_add(bytes);
            left -= bytes;
        }
    }

    /// A block without its checksum.
    fn plain_write(&self, block: &Block, offset: u64, bytes: u64) -> Write {
        Write {
            object: block.object,
            object_type: block.object_type,
            offset,
            logical_bytes: bytes,
            to_guid: self.manner.to_guid,
            checksum_id: Checksum::Off as u8,
            flags: RecordFlags::default(),
            compression_id: 0,
            key: DdtKey { checksum: [0; 4], prop: 0 },
            compressed_bytes: 0,
            crypt: CryptFields::default(),
        }
    }

    fn whole_block(&self, block: &Block, offset: u64) -> Record {
        let (bp, is_raw) = (&block.bp, self.manner.is_raw());
        let mut record = self.plain_write(block, offset, bp.lsize().0);
        if is_raw {
            record.flags = byte_order_of(bp);
            record.crypt = crypt_of(bp);
        }
        if self.manner.form(block) != Form::Clear {
            record.compression_id = bp.compression_id();
            record.compressed_bytes = bp.psize().0;
        }
        // The checksum of a decrypted block does not match the data sent.
        if !bp.is_embedded() && (is_raw || !bp.uses_crypt()) {
            record.checksum_id = bp.checksum_id();
            record.key = DdtKey::of(bp);
            if Checksum::try_from(bp.checksum_id()).is_ok_and(Checksum::is_dedup_safe) {
                record.flags = record.flags | RecordFlags::CHECKSUM_DEDUP;
            }
        }
        Record::Write(record)
    }
}

/// Offset and length of blocks; `None` beyond the last offset. As in OpenZFS, a length up to the end of all
/// offsets wraps around.
fn bytes_of(span: &Span) -> Option<(u64, u64)> {
    let block_bytes = u64::from(span.block_bytes);
    let offset = span.first.checked_mul(block_bytes)?;
    let end = span.end.saturating_mul(block_bytes);
    Some((offset, end.wrapping_sub(offset)))
}

/// All bytes of a dnode available to a bonus.
fn bonus_space(dnode: &Dnode) -> Bytes {
    let raw = dnode.raw();
    let start = DNODE_CORE_BYTES + usize::from(dnode.blkptr_count) * cenote_format::blkptr::BLKPTR_BYTES;
    let spill = if dnode.spill().is_some() { cenote_format::blkptr::BLKPTR_BYTES } else { 0 };
    let end = raw.len().saturating_sub(spill);
    raw.slice(start.min(end)..end)
}

fn byte_order_of(bp: &Blkptr) -> RecordFlags {
    match bp.endian() == Endian::NATIVE {
        true => RecordFlags::default(),
        false => RecordFlags::RAW_BYTESWAP,
    }
}

/// A block's encryption parameters, in the byte order of its writer.
fn crypt_of(bp: &Blkptr) -> CryptFields {
    let params = bp.crypt_params();
    let mut crypt = CryptFields { salt: params.salt, iv: params.iv, mac: params.mac };
    if bp.endian() == Endian::Big {
        crypt.salt.reverse();
        crypt.iv[..8].reverse();
        crypt.iv[8..].reverse();
        crypt.mac[..8].reverse();
        crypt.mac[8..].reverse();
    }
    crypt
}
