//! The logical address of a block, for errors and reports.

use cenote_format::units::{BlockId, DatasetId, ObjectId};
use std::fmt;

/// The block number of a spill block, `DMU_SPILL_BLKID`.
pub const SPILL_BLOCK: BlockId = BlockId(u64::MAX - 1);

/// A block's logical address: dataset, object, level and position, OpenZFS's `zbookmark_phys_t`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Zbookmark {
    /// Dataset; 0 is the MOS.
    pub dataset: DatasetId,
    /// Object; 0 is the meta-dnode (or the object set itself).
    pub object: ObjectId,
    /// 0 for data, 1 and up for indirect blocks.
    pub level: u8,
    /// Position within the object at that level.
    pub block: BlockId,
}

impl fmt::Display for Zbookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dataset.0 == 0 {
            f.write_str("MOS")?;
        } else {
            write!(f, "dataset {}", self.dataset)?;
        }
        // The accounting objects have the last numbers, which OpenZFS prints as -1, -2 and -3.
        write!(f, " object {} ", self.object.0.cast_signed())?;
        f.write_str(&in_object(self.level, self.block))
    }
}

/// A block within its object: `level 0 block 7`, `spill block`.
pub fn in_object(level: u8, block: BlockId) -> String {
    match block {
        SPILL_BLOCK => "spill block".into(),
        block => format!("level {level} block {block}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_a_meaning_are_words() {
        let place = Zbookmark { dataset: DatasetId(92), object: ObjectId(7), level: 1, block: BlockId(3) };
        assert_eq!(place.to_string(), "dataset 92 object 7 level 1 block 3");
        let spill = Zbookmark { level: 0, block: SPILL_BLOCK, ..place };
        assert_eq!(spill.to_string(), "dataset 92 object 7 spill block");
        let used = Zbookmark { dataset: DatasetId(0), object: ObjectId(u64::MAX), ..place };
        assert_eq!(used.to_string(), "MOS object -1 level 1 block 3");
    }
}
