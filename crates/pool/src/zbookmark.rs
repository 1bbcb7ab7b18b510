//! The logical address of a block, for errors and reports.

use cenote_format::units::{BlockId, DatasetId, ObjectId};
use std::fmt;

/// A block's logical address: dataset, object, level and position, OpenZFS's `zbookmark_phys_t`.
///
/// The pipeline never acts on it, but names it when something is wrong.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Zbookmark {
    /// The dataset; 0 is the MOS.
    pub dataset: DatasetId,
    /// The object; 0 is the meta-dnode (or the object set itself).
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
        write!(f, " object {} level {} block {}", self.object, self.level, self.block)
    }
}
