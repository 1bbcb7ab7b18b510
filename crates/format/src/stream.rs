//! Records of send streams (DRR): a snapshot, or the difference between two, as a sequence of bytes.
//!
//! Idea: a stream is a sequence of records of one size, each followed by its payload. BEGIN says which
//! snapshot this is and what the receiver must be able to do. The records between BEGIN and END are objects,
//! their blocks, and what is free. Every record carries the fletcher4 sum of all bytes before it (module
//! `cenote_stream`). A package (`zfs send -R`, `-p`) is a BEGIN with a list of properties, an END, then any
//! number of such streams, then another END.
//!
//! Layout: 312 bytes, in the byte order of the sender, which the magic number in BEGIN shows.
//!
//! ```text
//!   0 type (4)   4 payload bytes, of BEGIN only (4)   8 fields of the type (up to 304)
//!   BEGIN   | magic 8 | version 8 | creation 8 | type 4 | flags 4 | toguid 8 | fromguid 8 | toname 256 |
//!   others  | fields, zeros (272)                                              280 | sum so far 32 |
//! ```
//!
//! Invariants: a decoded record's payload is at most [`SPA_MAXBLOCKSIZE`] bytes, that of BEGIN at most
//! [`MAX_NVLIST_BYTES`]. Each record's fields are listed once (`stream/fields`), for both directions.
//!
//! Source: OpenZFS `zfs_ioctl.h` (`dmu_replay_record_t`), `dmu_recv.c` (`byteswap_record`).

mod fields;
mod flags;
#[cfg(test)]
mod tests;

pub use flags::{BeginFlags, HeaderType, RecordFlags, StreamFeatures};

use crate::bytes::{Endian, Reader, Writer};
use crate::ddt::DdtKey;
use crate::dnode::ObjectType;
use crate::error::{FormatError, Result, at_most};
use crate::units::{BlockId, Guid, ObjectId, SPA_MAXBLOCKSIZE};

use fields::{Layout, Put, Take};

/// Bytes of a record, `sizeof (dmu_replay_record_t)`.
pub const DRR_BYTES: usize = 312;
/// Where the sum lies that every record but BEGIN ends with.
pub const DRR_CHECKSUM_AT: usize = DRR_BYTES - 32;
/// `DMU_BACKUP_MAGIC`.
pub const DMU_BACKUP_MAGIC: u64 = 0x2_f5ba_cbac;
/// The longest list of properties that a stream may begin with, `libzfs_max_nvlist`.
pub const MAX_NVLIST_BYTES: u64 = 4 * SPA_MAXBLOCKSIZE;
/// Room for a snapshot's name and its end, `MAXNAMELEN`.
const MAXNAMELEN: usize = 256;
/// Salt of an encrypted block, `ZIO_DATA_SALT_LEN`.
pub const ZIO_DATA_SALT_LEN: usize = 8;
/// Its initialisation vector, `ZIO_DATA_IV_LEN`.
pub const ZIO_DATA_IV_LEN: usize = 12;
/// Its message authentication code, `ZIO_DATA_MAC_LEN`.
pub const ZIO_DATA_MAC_LEN: usize = 16;

const WHAT: &str = "stream record";

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A stream or a package begins; the payload is a list of properties or empty.
    Begin(Begin),
    /// An object is there, with these attributes; the payload is its bonus.
    Object(ObjectRecord),
    /// No object has a number in this range.
    FreeObjects(FreeObjects),
    /// A block, which is the payload.
    Write(Write),
    /// A range of an object is a hole.
    Free(Range),
    /// The stream ends.
    End(End),
    /// A block that the stream held before (deduplicated streams, no longer made).
    WriteByref(WriteByref),
    /// An object's spill block, which is the payload.
    Spill(Spill),
    /// A block that is small enough for its pointer; the payload is as the pointer has it.
    WriteEmbedded(WriteEmbedded),
    /// Of raw streams: a block of dnodes follows.
    ObjectRange(ObjectRange),
    /// A range of an object was left out on purpose.
    Redact(Range),
}

/// `drr_begin`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Begin {
    /// Bytes of payload, `drr_payloadlen`.
    pub payload_bytes: u32,
    /// One stream, or a package.
    pub header: HeaderType,
    /// What the receiver must be able to do.
    pub features: StreamFeatures,
    /// When the snapshot was made, in seconds since 1970.
    pub creation_time: u64,
    /// What kind of object set this is, `dmu_objset_type_t`: 2 a file system, 3 a volume.
    pub objset_type: u32,
    /// Properties of the stream.
    pub flags: BeginFlags,
    /// The snapshot.
    pub to_guid: Guid,
    /// The snapshot or bookmark that the stream is the difference to; 0 if it is whole.
    pub from_guid: Guid,
    /// The snapshot's name at the sender.
    pub to_name: Vec<u8>,
}

/// `drr_object`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Its number.
    pub object: ObjectId,
    /// What it holds.
    pub object_type: ObjectType,
    /// What its bonus holds.
    pub bonus_type: ObjectType,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of the bonus.
    pub bonus_bytes: u32,
    /// Checksum of its blocks.
    pub checksum_id: u8,
    /// Their compression.
    pub compression_id: u8,
    /// Slots of the dnode; 0 means one.
    pub slots: u8,
    /// `DRR_OBJECT_SPILL`, `DRR_RAW_BYTESWAP`.
    pub flags: RecordFlags,
    /// In raw streams, bytes of the bonus as it lies in the dnode; else 0.
    pub raw_bonus_bytes: u32,
    /// The snapshot.
    pub to_guid: Guid,
    /// In raw streams, log2 of the bytes of its indirect blocks; else 0.
    pub indirect_block_shift: u8,
    /// In raw streams, its levels.
    pub levels: u8,
    /// In raw streams, its dnode's pointers.
    pub blkptr_count: u8,
    /// In raw streams, the number of its last block.
    pub max_block_id: BlockId,
}

/// `drr_freeobjects`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FreeObjects {
    /// The first number.
    pub first: ObjectId,
    /// How many.
    pub count: u64,
    /// The snapshot.
    pub to_guid: Guid,
}

/// What decrypts a block of a raw stream: zeros in others.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CryptFields {
    /// Salt of its key.
    pub salt: [u8; ZIO_DATA_SALT_LEN],
    /// Initialisation vector.
    pub iv: [u8; ZIO_DATA_IV_LEN],
    /// Message authentication code.
    pub mac: [u8; ZIO_DATA_MAC_LEN],
}

/// `drr_write`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Write {
    /// The object.
    pub object: ObjectId,
    /// What it holds.
    pub object_type: ObjectType,
    /// Where in the object.
    pub offset: u64,
    /// Bytes of the block, uncompressed.
    pub logical_bytes: u64,
    /// The snapshot.
    pub to_guid: Guid,
    /// Checksum algorithm of `key`.
    pub checksum_id: u8,
    /// `DRR_CHECKSUM_DEDUP`, `DRR_RAW_BYTESWAP`.
    pub flags: RecordFlags,
    /// How the payload is compressed; 0 if it is not.
    pub compression_id: u8,
    /// Checksum and sizes of the block where it lay.
    pub key: DdtKey,
    /// Bytes of the payload if it is compressed; else 0.
    pub compressed_bytes: u64,
    /// Of raw streams.
    pub crypt: CryptFields,
}

/// `drr_free`, `drr_redact`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Range {
    /// The object.
    pub object: ObjectId,
    /// Where the range begins.
    pub offset: u64,
    /// Its bytes; [`u64::MAX`] (`DMU_OBJECT_END`) for all that follow.
    pub length: u64,
    /// The snapshot.
    pub to_guid: Guid,
}

/// `drr_end`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct End {
    /// Sum of all bytes before this record.
    pub checksum: [u64; 4],
    /// The snapshot.
    pub to_guid: Guid,
}

/// `drr_write_byref`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct WriteByref {
    /// The object.
    pub object: ObjectId,
    /// Where in the object.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The snapshot.
    pub to_guid: Guid,
    /// The snapshot that has the block already.
    pub ref_guid: Guid,
    /// The object that it is in.
    pub ref_object: ObjectId,
    /// Where in that object.
    pub ref_offset: u64,
    /// Checksum algorithm of `key`.
    pub checksum_id: u8,
    /// `DRR_CHECKSUM_DEDUP`.
    pub flags: RecordFlags,
    /// The block.
    pub key: DdtKey,
}

/// `drr_spill`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Spill {
    /// The object.
    pub object: ObjectId,
    /// Bytes of the block, uncompressed.
    pub length: u64,
    /// The snapshot.
    pub to_guid: Guid,
    /// `DRR_SPILL_UNMODIFIED`, `DRR_RAW_BYTESWAP`.
    pub flags: RecordFlags,
    /// How the payload is compressed; 0 if it is not.
    pub compression_id: u8,
    /// In raw streams, bytes of the payload; else 0.
    pub compressed_bytes: u64,
    /// Of raw streams.
    pub crypt: CryptFields,
    /// What the block holds.
    pub object_type: ObjectType,
}

/// `drr_write_embedded`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct WriteEmbedded {
    /// The object.
    pub object: ObjectId,
    /// Where in the object.
    pub offset: u64,
    /// Bytes of the block.
    pub length: u64,
    /// The snapshot.
    pub to_guid: Guid,
    /// How the payload is compressed.
    pub compression_id: u8,
    /// What it holds, `bp_embedded_type_t`; 0 data.
    pub embedded_type: u8,
    /// Bytes of the block that was embedded.
    pub logical_bytes: u32,
    /// Bytes of the payload without its padding.
    pub physical_bytes: u32,
}

/// `drr_object_range`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ObjectRange {
    /// The number of the block's first dnode.
    pub first: ObjectId,
    /// Dnodes in the block.
    pub slots: u64,
    /// The snapshot.
    pub to_guid: Guid,
    /// How the block of dnodes was encrypted.
    pub crypt: CryptFields,
    /// `DRR_RAW_BYTESWAP`.
    pub flags: RecordFlags,
}

impl Record {
    /// The byte order of a stream that begins with this record, if it is the BEGIN of one.
    pub fn endian_of(begin: &[u8; DRR_BYTES]) -> Option<Endian> {
        Endian::of_magic(DMU_BACKUP_MAGIC, *begin[8..].first_chunk::<8>()?)
    }

    /// Decodes a record; its sum is apart ([`checksum_of`]).
    ///
    /// # Errors
    /// An unknown type, or a field beyond its bound.
    pub fn decode(raw: &[u8; DRR_BYTES], endian: Endian) -> Result<Record> {
        let mut r = Reader::new(WHAT, raw, endian);
        let number = r.u32()?;
        let payload_bytes = r.u32()?;
        let mut f = Take(r);
        let record = match number {
            0 => Record::Begin(Begin { payload_bytes, ..take(&mut f)? }),
            1 => Record::Object(take(&mut f)?),
            2 => Record::FreeObjects(take(&mut f)?),
            3 => Record::Write(take(&mut f)?),
            4 => Record::Free(take(&mut f)?),
            5 => Record::End(take(&mut f)?),
            6 => Record::WriteByref(take(&mut f)?),
            7 => Record::Spill(take(&mut f)?),
            8 => Record::WriteEmbedded(take(&mut f)?),
            9 => Record::ObjectRange(take(&mut f)?),
            10 => Record::Redact(take(&mut f)?),
            unknown => {
                let what = "type of a stream record";
                return Err(FormatError::OutOfRange { what, value: unknown.into(), bound: 10 });
            }
        };
        let bound = if number == 0 { MAX_NVLIST_BYTES } else { SPA_MAXBLOCKSIZE };
        at_most("payload of a stream record", record.payload_bytes(), bound)?;
        Ok(record)
    }

    /// The record's bytes; where its sum belongs, there are zeros.
    ///
    /// # Errors
    /// A name that is too long.
    pub fn encode(&self, endian: Endian) -> Result<[u8; DRR_BYTES]> {
        let mut w = Writer::new(endian);
        w.u32(self.number());
        w.u32(if let Record::Begin(begin) = self { begin.payload_bytes } else { 0 });
        let mut f = Put(w);
        match self.clone() {
            Record::Begin(mut fields) => fields.each(&mut f)?,
            Record::Object(mut fields) => fields.each(&mut f)?,
            Record::FreeObjects(mut fields) => fields.each(&mut f)?,
            Record::Write(mut fields) => fields.each(&mut f)?,
            Record::Free(mut fields) | Record::Redact(mut fields) => fields.each(&mut f)?,
            Record::End(mut fields) => fields.each(&mut f)?,
            Record::WriteByref(mut fields) => fields.each(&mut f)?,
            Record::Spill(mut fields) => fields.each(&mut f)?,
            Record::WriteEmbedded(mut fields) => fields.each(&mut f)?,
            Record::ObjectRange(mut fields) => fields.each(&mut f)?,
        }
        let mut raw = [0; DRR_BYTES];
        let fields = f.0.finish();
        raw[..fields.len()].copy_from_slice(&fields);
        Ok(raw)
    }

    /// Its type, `drr_type`.
    pub fn number(&self) -> u32 {
        match self {
            Record::Begin(_) => 0,
            Record::Object(_) => 1,
            Record::FreeObjects(_) => 2,
            Record::Write(_) => 3,
            Record::Free(_) => 4,
            Record::End(_) => 5,
            Record::WriteByref(_) => 6,
            Record::Spill(_) => 7,
            Record::WriteEmbedded(_) => 8,
            Record::ObjectRange(_) => 9,
            Record::Redact(_) => 10,
        }
    }

    /// Bytes that follow the record, padding included.
    pub fn payload_bytes(&self) -> u64 {
        match self {
            Record::Begin(begin) => begin.payload_bytes.into(),
            Record::Object(object) if object.raw_bonus_bytes != 0 => object.raw_bonus_bytes.into(),
            Record::Object(object) => u64::from(object.bonus_bytes).next_multiple_of(8),
            Record::Write(write) if write.compression_id != 0 => write.compressed_bytes,
            Record::Write(write) => write.logical_bytes,
            Record::Spill(spill) if spill.compressed_bytes != 0 => spill.compressed_bytes,
            Record::Spill(spill) => spill.length,
            Record::WriteEmbedded(write) => u64::from(write.physical_bytes).next_multiple_of(8),
            Record::FreeObjects(_)
            | Record::Free(_)
            | Record::End(_)
            | Record::WriteByref(_)
            | Record::ObjectRange(_)
            | Record::Redact(_) => 0,
        }
    }
}

/// The sum that a record other than BEGIN ends with; zeros in streams of 2013 and before.
pub fn checksum_of(raw: &[u8; DRR_BYTES], endian: Endian) -> [u64; 4] {
    let words = raw[DRR_CHECKSUM_AT..].as_chunks::<8>().0;
    std::array::from_fn(|i| words.get(i).map_or(0, |word| endian.u64(*word)))
}

/// Puts the sum where a record ends.
pub fn set_checksum(raw: &mut [u8; DRR_BYTES], sum: [u64; 4], endian: Endian) {
    let mut w = Writer::new(endian);
    w.words(&sum);
    raw[DRR_CHECKSUM_AT..].copy_from_slice(&w.finish());
}

fn take<T: Layout + Default>(f: &mut Take<'_>) -> Result<T> {
    let mut fields = T::default();
    fields.each(f)?;
    Ok(fields)
}
