//! Send stream records (DRR): a snapshot, or the difference between two snapshots, as bytes.
//!
//! Idea: a stream is a sequence of fixed-size records, each followed by its payload. BEGIN names the snapshot
//! and the features that the receiver needs. The records up to END carry objects, blocks and freed ranges.
//! Every record but BEGIN ends with the fletcher4 sum of all preceding bytes (module `cenote_stream`). A
//! package (`zfs send -R`, `-p`) is a BEGIN with a property list, an END, any number of such streams, and a
//! final END.
//!
//! Layout: 312 bytes, in the sender's byte order, which BEGIN's magic number shows.
//!
//! ```text
//!   0 type (4)   4 payload bytes, of BEGIN only (4)   8 fields of the type (up to 304)
//!   BEGIN   | magic 8 | version 8 | creation 8 | type 4 | flags 4 | toguid 8 | fromguid 8 | toname 256 |
//!   others  | fields, zeros (272)                                              280 | sum so far 32 |
//! ```
//!
//! Invariants: a decoded record's payload is at most [`SPA_MAXBLOCKSIZE`] bytes, that of BEGIN at most
//! [`MAX_NVLIST_BYTES`].
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
/// Offset of the sum that ends every record but BEGIN.
pub const DRR_CHECKSUM_AT: usize = DRR_BYTES - 32;
/// `DMU_BACKUP_MAGIC`.
pub const DMU_BACKUP_MAGIC: u64 = 0x2_f5ba_cbac;
/// Bound on the property list after BEGIN, `libzfs_max_nvlist`.
pub const MAX_NVLIST_BYTES: u64 = 4 * SPA_MAXBLOCKSIZE;
/// Bytes of a snapshot's name with its NUL, `MAXNAMELEN`.
const MAXNAMELEN: usize = 256;
/// `ZIO_DATA_SALT_LEN`.
pub const ZIO_DATA_SALT_LEN: usize = 8;
/// `ZIO_DATA_IV_LEN`.
pub const ZIO_DATA_IV_LEN: usize = 12;
/// `ZIO_DATA_MAC_LEN`.
pub const ZIO_DATA_MAC_LEN: usize = 16;

const WHAT: &str = "stream record";

/// Record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Begins a stream or package. Payload: a property list, or nothing.
    Begin(Begin),
    /// An object's attributes. Payload: its bonus.
    Object(ObjectRecord),
    /// Range of unused object numbers.
    FreeObjects(FreeObjects),
    /// A block. Payload: its data.
    Write(Write),
    /// Hole in an object.
    Free(Range),
    /// Ends a stream or package.
    End(End),
    /// Block sent earlier (deduplicated streams, obsolete).
    WriteByref(WriteByref),
    /// A spill block. Payload: its data.
    Spill(Spill),
    /// An embedded block. Payload: as in the pointer.
    WriteEmbedded(WriteEmbedded),
    /// Raw streams: a dnode block follows.
    ObjectRange(ObjectRange),
    /// Range left out by redaction.
    Redact(Range),
}

/// `drr_begin`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Begin {
    /// Payload bytes, `drr_payloadlen`.
    pub payload_bytes: u32,
    /// Stream or package.
    pub header: HeaderType,
    /// Features that the receiver needs.
    pub features: StreamFeatures,
    /// Snapshot creation, in seconds since 1970.
    pub creation_time: u64,
    /// `dmu_objset_type_t`: 2 file system, 3 volume.
    pub objset_type: u32,
    /// `DRR_FLAG_*`.
    pub flags: BeginFlags,
    /// Guid of the snapshot.
    pub to_guid: Guid,
    /// Guid of the incremental source (snapshot or bookmark); 0 for a full stream.
    pub from_guid: Guid,
    /// Name at the sender.
    pub to_name: Vec<u8>,
}

/// `drr_object`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Object number.
    pub object: ObjectId,
    /// Object type.
    pub object_type: ObjectType,
    /// Bonus type.
    pub bonus_type: ObjectType,
    /// Block size.
    pub block_bytes: u32,
    /// Bonus size.
    pub bonus_bytes: u32,
    /// Checksum algorithm.
    pub checksum_id: u8,
    /// Compression algorithm.
    pub compression_id: u8,
    /// Dnode slots; 0 means one.
    pub slots: u8,
    /// `DRR_OBJECT_SPILL`, `DRR_RAW_BYTESWAP`.
    pub flags: RecordFlags,
    /// Raw: bonus bytes in the dnode; else 0.
    pub raw_bonus_bytes: u32,
    /// Guid of the snapshot.
    pub to_guid: Guid,
    /// Raw: log2 of the indirect block size; else 0.
    pub indirect_block_shift: u8,
    /// Raw: levels.
    pub levels: u8,
    /// Raw: block pointers in the dnode.
    pub blkptr_count: u8,
    /// Raw: last block's number.
    pub max_block_id: BlockId,
}

/// `drr_freeobjects`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FreeObjects {
    /// First object number.
    pub first: ObjectId,
    /// Object numbers.
    pub count: u64,
    /// Guid of the snapshot.
    pub to_guid: Guid,
}

/// Decryption parameters of a raw stream's block; zeros in other streams.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CryptFields {
    /// Salt of the key.
    pub salt: [u8; ZIO_DATA_SALT_LEN],
    /// Initialisation vector.
    pub iv: [u8; ZIO_DATA_IV_LEN],
    /// Message authentication code.
    pub mac: [u8; ZIO_DATA_MAC_LEN],
}

/// `drr_write`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Write {
    /// Object.
    pub object: ObjectId,
    /// Object type.
    pub object_type: ObjectType,
    /// Offset in the object.
    pub offset: u64,
    /// Uncompressed size.
    pub logical_bytes: u64,
    /// Guid of the snapshot.
    pub to_guid: Guid,
    /// Checksum algorithm of `key`.
    pub checksum_id: u8,
    /// `DRR_CHECKSUM_DEDUP`, `DRR_RAW_BYTESWAP`.
    pub flags: RecordFlags,
    /// Compression of the payload; 0 for none.
    pub compression_id: u8,
    /// Checksum and sizes of the block on the sender.
    pub key: DdtKey,
    /// Payload bytes if compressed; else 0.
    pub compressed_bytes: u64,
    /// Raw streams only.
    pub crypt: CryptFields,
}

/// `drr_free`, `drr_redact`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Range {
    /// Object.
    pub object: ObjectId,
    /// Start of the range.
    pub offset: u64,
    /// Length; [`u64::MAX`] (`DMU_OBJECT_END`) means to the end.
    pub length: u64,
    /// Guid of the snapshot.
    pub to_guid: Guid,
}

/// `drr_end`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct End {
    /// Fletcher4 of all bytes before this record.
    pub checksum: [u64; 4],
    /// Guid of the snapshot.
    pub to_guid: Guid,
}

/// `drr_write_byref`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct WriteByref {
    /// Object.
    pub object: ObjectId,
    /// Offset in the object.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Guid of the snapshot.
    pub to_guid: Guid,
    /// Snapshot that already has the block.
    pub ref_guid: Guid,
    /// Object in that snapshot.
    pub ref_object: ObjectId,
    /// Offset in that object.
    pub ref_offset: u64,
    /// Checksum algorithm of `key`.
    pub checksum_id: u8,
    /// `DRR_CHECKSUM_DEDUP`.
    pub flags: RecordFlags,
    /// Block.
    pub key: DdtKey,
}

/// `drr_spill`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Spill {
    /// Object.
    pub object: ObjectId,
    /// Uncompressed size.
    pub length: u64,
    /// Guid of the snapshot.
    pub to_guid: Guid,
    /// `DRR_SPILL_UNMODIFIED`, `DRR_RAW_BYTESWAP`.
    pub flags: RecordFlags,
    /// Compression of the payload; 0 for none.
    pub compression_id: u8,
    /// Raw: payload bytes; else 0.
    pub compressed_bytes: u64,
    /// Raw streams only.
    pub crypt: CryptFields,
    /// Object type.
    pub object_type: ObjectType,
}

/// `drr_write_embedded`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct WriteEmbedded {
    /// Object.
    pub object: ObjectId,
    /// Offset in the object.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Guid of the snapshot.
    pub to_guid: Guid,
    /// Compression of the payload.
    pub compression_id: u8,
    /// `bp_embedded_type_t`; 0 is data.
    pub embedded_type: u8,
    /// Uncompressed size.
    pub logical_bytes: u32,
    /// Payload bytes without padding.
    pub physical_bytes: u32,
}

impl WriteEmbedded {
    /// Whether it is a spill block, at the place of block -2 (`DMU_SPILL_BLKID`). OpenZFS up to 2.4 sends an
    /// embedded spill block as data, and its receiver loses it.
    pub fn is_spill(&self) -> bool {
        self.offset == self.length.wrapping_mul(2).wrapping_neg()
            && u64::from(self.logical_bytes) == self.length
    }
}

/// `drr_object_range`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ObjectRange {
    /// Object number of the first dnode.
    pub first: ObjectId,
    /// Dnodes in the block.
    pub slots: u64,
    /// Guid of the snapshot.
    pub to_guid: Guid,
    /// Encryption of the dnode block.
    pub crypt: CryptFields,
    /// `DRR_RAW_BYTESWAP`.
    pub flags: RecordFlags,
}

impl Record {
    /// Byte order of a stream, from its first record; `None` if no BEGIN.
    pub fn endian_of(begin: &[u8; DRR_BYTES]) -> Option<Endian> {
        Endian::of_magic(DMU_BACKUP_MAGIC, *begin[8..].first_chunk::<8>()?)
    }

    /// Decodes a record, but not its sum ([`checksum_of`]).
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

    /// Encodes the record, with zeros for its sum.
    ///
    /// # Errors
    /// The name is too long.
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

    /// Record type, `drr_type`.
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

    /// Payload bytes, padding included.
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

/// The sum of a record other than BEGIN; zeros in streams of 2013 and before.
pub fn checksum_of(raw: &[u8; DRR_BYTES], endian: Endian) -> [u64; 4] {
    let words = raw[DRR_CHECKSUM_AT..].as_chunks::<8>().0;
    std::array::from_fn(|i| words.get(i).map_or(0, |word| endian.u64(*word)))
}

/// Stores the sum in a record.
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
