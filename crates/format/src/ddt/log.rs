//! Log of a flat dedup table: entries not yet in its ZAPs.
//!
//! Idea: a table has two logs: one takes new entries while the other is flushed in key order. A log entry
//! overrides the ZAPs, and the active log overrides the flushing one. Records do not straddle blocks; a
//! record of type 0 ends a block early.
//!
//! Layout of the object (its bonus is the head):
//!
//! ```text
//!   | type (0..8), reclen (8..24), 0, table type (48..56), class (56..64) | key (40) | entry (72 or 256) |
//! ```
//!
//! Source: OpenZFS `ddt_impl.h`, `ddt_log.c`.

use super::{DdtClass, DdtKey, DdtValue};
use crate::bytes::{Endian, Reader, Writer};
use crate::error::{FormatError, Result, at_most};
use crate::units::Txg;
use crate::words::{Phys, Words, word_struct};

/// `DDL_FLAG_FLUSHING`: flushing, not appended to.
pub const DDL_FLAG_FLUSHING: u8 = 1 << 0;
/// `DDL_FLAG_CHECKPOINT`: `checkpoint` is valid.
pub const DDL_FLAG_CHECKPOINT: u8 = 1 << 1;

word_struct! {
    /// Bonus of a log, `ddt_log_header_t`.
    pub struct DdtLogHeader("DDT log", bytes: 64, required: all) {
        /// Version (0..8), flags (8..16).
        pub info: u64,
        /// Log bytes, whole blocks.
        pub length_bytes: u64,
        /// Txg in which it became active.
        pub first_txg: Txg,
        /// Records up to this key are flushed; ignore them.
        pub checkpoint: DdtKey,
    }
}

impl DdtLogHeader {
    /// Format version; only 1 is known.
    pub fn version(&self) -> u8 {
        self.info as u8
    }

    /// `DDL_FLAG_*`.
    pub fn flags(&self) -> u8 {
        (self.info >> 8) as u8
    }

    /// Whether it is appended to, and so overrides the other log.
    pub fn is_active(&self) -> bool {
        self.flags() & DDL_FLAG_FLUSHING == 0
    }

    /// Key up to which records are ignored.
    pub fn checkpoint(&self) -> Option<DdtKey> {
        (self.flags() & DDL_FLAG_CHECKPOINT != 0).then_some(self.checkpoint)
    }
}

/// Record of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdtLogRecord {
    /// Class of the table with the entry; `None` if in no table yet.
    pub class: Option<DdtClass>,
    /// Identity of the block.
    pub key: DdtKey,
    /// Table entry.
    pub value: DdtValue,
}

/// `DDT_CLASSES`: class of an entry in no table.
const DDT_CLASSES: u64 = DdtClass::ALL.len() as u64;
/// `DLR_ENTRY`.
const DLR_ENTRY: u64 = 1;
const INFO_BYTES: usize = 8;

const _: () = {
    let head = INFO_BYTES + DdtKey::COUNT * 8;
    assert!(head + DdtValue::bytes(true) == 120 && head + DdtValue::bytes(false) == 304);
};

impl DdtLogRecord {
    /// Encodes the record.
    pub fn encode(&self, endian: Endian) -> Vec<u8> {
        let value = self.value.encode_unpacked(endian);
        let len = (INFO_BYTES + DdtKey::COUNT * 8 + value.len()) as u64;
        let mut w = Writer::new(endian);
        let class = self.class.map_or(DDT_CLASSES, |class| class as u64);
        w.u64(DLR_ENTRY | len << 8 | class << 56).bytes(&self.key.encode(endian)).bytes(&value);
        w.finish()
    }
}

/// Records of one block in order. The iterator ends after the first error.
pub fn records(block: &[u8], flat: bool, endian: Endian) -> impl Iterator<Item = Result<DdtLogRecord>> + '_ {
    let mut rest = block;
    std::iter::from_fn(move || {
        let record = record(&mut rest, flat, endian).transpose();
        if !matches!(record, Some(Ok(_))) {
            rest = &[];
        }
        record
    })
}

/// Takes the next record off `rest`; `None` at the end of the block.
fn record(rest: &mut &[u8], flat: bool, endian: Endian) -> Result<Option<DdtLogRecord>> {
    if rest.len() < INFO_BYTES {
        return Ok(None);
    }
    let mut r = Reader::new("DDT log record", rest, endian);
    let info = r.u64()?;
    match info & 0xff {
        0 => return Ok(None),
        DLR_ENTRY => {}
        other => {
            return Err(FormatError::OutOfRange {
                what: "DDT log record's type",
                value: other,
                bound: DLR_ENTRY,
            });
        }
    }
    let len = at_most("DDT log record's length", (info >> 8) & 0xffff, rest.len() as u64)? as usize;
    let need = INFO_BYTES + DdtKey::COUNT * 8 + DdtValue::bytes(flat);
    if len < need {
        return Err(FormatError::Truncated { what: "DDT log record", need, have: len });
    }
    let class = at_most("DDT log record's class", info >> 56, DDT_CLASSES)? as usize;
    let key = DdtKey::decode(r.bytes(DdtKey::COUNT * 8)?, endian)?;
    let value = DdtValue::decode_unpacked(r.bytes(DdtValue::bytes(flat))?, flat, endian)?;
    *rest = &rest[len..];
    Ok(Some(DdtLogRecord { class: DdtClass::ALL.get(class).copied(), key, value }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::check_phys;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_those_of_the_disk_and_words_come_back() {
        check_phys::<DdtLogHeader>();
        let head = DdtLogHeader::from_words(&[0x0301, 0, 0, 1, 2, 3, 4, 5]).unwrap();
        assert_eq!((head.version(), head.checkpoint().unwrap().prop), (1, 5));
        assert!(DdtLogHeader { info: 1, ..head }.checkpoint().is_none());
    }

    proptest! {
        #[test]
        fn blocks_of_records_round_trip(
            entries in prop::collection::vec((0..4usize, any::<[u64; 5]>(), any::<[u64; 32]>()), 0..5),
            flat in any::<bool>(), big in any::<bool>(),
        ) {
            let endian = if big { Endian::Big } else { Endian::Little };
            let mut block = Vec::new();
            let mut expected = Vec::new();
            for (class, key, words) in entries {
                let raw: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
                let record = DdtLogRecord {
                    class: DdtClass::ALL.get(class).copied(),
                    key: DdtKey::from_words(&key).unwrap(),
                    value: DdtValue::decode_unpacked(&raw, flat, Endian::Little).unwrap(),
                };
                block.extend(record.encode(endian));
                expected.push(record);
            }
            block.resize(4096, 0);
            let back: Vec<_> = records(&block, flat, endian).collect::<Result<_>>().unwrap();
            prop_assert_eq!(back, expected);
        }

        #[test]
        fn hostile_blocks_end(
            raw in prop::collection::vec(prop_oneof![Just(1u8), any::<u8>()], 0..600),
            flat in any::<bool>(),
        ) {
            prop_assert!(records(&raw, flat, Endian::Little).count() <= raw.len() / 8 + 1);
        }
    }
}
