//! Space of blocks in dataset accounting.

use cenote_format::blkptr::Blkptr;
use cenote_object::deadlist::BlockSpace;
use cenote_pool::Pool;

/// Space of blocks in dataset accounting.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SpaceDelta {
    /// On disk, net of parity.
    pub used: i64,
    /// As stored, one copy.
    pub compressed: i64,
    /// Before compression.
    pub uncompressed: i64,
}

impl SpaceDelta {
    pub(crate) fn of(pool: &Pool, bp: &Blkptr) -> SpaceDelta {
        let BlockSpace { used_bytes, compressed_bytes, uncompressed_bytes } =
            BlockSpace::of(bp, pool.tree().vdevs().dsize(bp));
        SpaceDelta {
            used: used_bytes as i64,
            compressed: compressed_bytes as i64,
            uncompressed: uncompressed_bytes as i64,
        }
    }
}

impl std::ops::Add for SpaceDelta {
    type Output = SpaceDelta;

    fn add(self, other: SpaceDelta) -> SpaceDelta {
        SpaceDelta {
            used: self.used + other.used,
            compressed: self.compressed + other.compressed,
            uncompressed: self.uncompressed + other.uncompressed,
        }
    }
}

impl std::ops::Neg for SpaceDelta {
    type Output = SpaceDelta;

    fn neg(self) -> SpaceDelta {
        SpaceDelta { used: -self.used, compressed: -self.compressed, uncompressed: -self.uncompressed }
    }
}

impl From<BlockSpace> for SpaceDelta {
    fn from(space: BlockSpace) -> SpaceDelta {
        SpaceDelta {
            used: space.used_bytes as i64,
            compressed: space.compressed_bytes as i64,
            uncompressed: space.uncompressed_bytes as i64,
        }
    }
}
