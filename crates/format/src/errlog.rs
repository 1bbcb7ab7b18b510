//! Error logs: blocks that scrubs and reads could not read.
//!
//! Idea: the MOS directory's `errlog_last` and `errlog_scrub` are ZAPs whose keys name blocks: four
//! hexadecimal numbers separated by colons. With feature `head_errlog`, they map head datasets (hexadecimal)
//! to such ZAPs, and a key names a birth instead of a dataset.
//!
//! Source: OpenZFS `spa_errlog.c`, `zio.h` (`zbookmark_phys_t`, `zbookmark_err_phys_t`).

use crate::dsl::deadlist::parse_hex;
use crate::error::{FormatError, Result};
use crate::units::{BlockId, DatasetId, ObjectId, Txg};
use crate::words::word_struct;

word_struct! {
    /// Logical address of a block, `zbookmark_phys_t`.
    #[derive(PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    pub struct BlockBookmark("block bookmark", bytes: 32, required: all) {
        /// Dataset; 0 for the MOS.
        pub dataset: DatasetId,
        /// Object; in object 0, level -1 is the object set's root, level -2 the intent log.
        pub object: ObjectId,
        /// 0 for data, 1 and up for indirect blocks.
        pub level: i64,
        /// Block within its level.
        pub block: BlockId,
    }
}

word_struct! {
    /// Damaged block of a head dataset or its snapshots, `zbookmark_err_phys_t`.
    pub struct ErrorBookmark("error bookmark", bytes: 32, required: all) {
        /// Object.
        pub object: ObjectId,
        /// 0 for data, 1 and up for indirect blocks.
        pub level: i64,
        /// Block within its level.
        pub block: BlockId,
        /// Birth, which identifies the affected snapshots; 0 if unknown.
        pub birth: Txg,
    }
}

/// Parses four hexadecimal numbers separated by colons.
fn parse_key(name: &[u8]) -> Result<[u64; 4]> {
    let bad = FormatError::Corrupt { what: "error log key", why: "is not four hexadecimal numbers" };
    let mut parts = name.split(|&b| b == b':');
    let mut words = [0; 4];
    for word in &mut words {
        *word = parts.next().and_then(parse_hex).ok_or(bad.clone())?;
    }
    if parts.next().is_some() { Err(bad) } else { Ok(words) }
}

impl BlockBookmark {
    /// Parses a key of a log without feature `head_errlog`.
    pub fn from_key(name: &[u8]) -> Result<Self> {
        let [dataset, object, level, block] = parse_key(name)?;
        Ok(BlockBookmark {
            dataset: DatasetId(dataset),
            object: ObjectId(object),
            level: level.cast_signed(),
            block: BlockId(block),
        })
    }

    /// Formats the key.
    pub fn to_key(&self) -> String {
        format!("{:x}:{:x}:{:x}:{:x}", self.dataset.0, self.object.0, self.level, self.block.0)
    }
}

impl ErrorBookmark {
    /// Parses a key of a head dataset's log.
    pub fn from_key(name: &[u8]) -> Result<Self> {
        let [object, level, block, birth] = parse_key(name)?;
        Ok(ErrorBookmark {
            object: ObjectId(object),
            level: level.cast_signed(),
            block: BlockId(block),
            birth: Txg(birth),
        })
    }

    /// Formats the key.
    pub fn to_key(&self) -> String {
        format!("{:x}:{:x}:{:x}:{:x}", self.object.0, self.level, self.block.0, self.birth.0)
    }
}

/// Parses a key of the outer ZAP, with feature `head_errlog`.
pub fn parse_head_key(name: &[u8]) -> Result<DatasetId> {
    parse_hex(name)
        .map(DatasetId)
        .ok_or(FormatError::Corrupt { what: "error log key", why: "is not a hexadecimal number" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Phys, check_phys};
    use proptest::prelude::*;

    #[test]
    fn sizes_are_those_of_the_disk_and_words_come_back() {
        check_phys::<BlockBookmark>();
        check_phys::<ErrorBookmark>();
    }

    proptest! {
        #[test]
        fn keys_round_trip(words in any::<[u64; 4]>()) {
            let block = BlockBookmark::from_words(&words).unwrap();
            prop_assert_eq!(BlockBookmark::from_key(block.to_key().as_bytes()).unwrap(), block);
            let error = ErrorBookmark::from_words(&words).unwrap();
            prop_assert_eq!(ErrorBookmark::from_key(error.to_key().as_bytes()).unwrap(), error);
        }

        #[test]
        fn hostile_keys_are_refused(name in prop::collection::vec(any::<u8>(), 0..60)) {
            let colons = name.iter().filter(|&&b| b == b':').count();
            prop_assert!(BlockBookmark::from_key(&name).is_err() || colons == 3);
        }
    }

    #[test]
    fn the_root_of_an_object_set_reads_as_level_minus_one() {
        let root = BlockBookmark::from_key(b"36:0:ffffffffffffffff:0").unwrap();
        assert_eq!((root.dataset, root.level), (DatasetId(0x36), -1));
    }
}
