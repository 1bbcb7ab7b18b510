//! The numbers that must not be mixed up: txgs, object numbers, the three sizes of a block.
//!
//! All of them are `u64` on disk. Here each has its own type, so that a psize can't be passed as an asize.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The bare number.
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<u64> for $name {
            fn from(value: u64) -> Self {
                $name(value)
            }
        }
    };
}

unit!(
    /// A transaction group (txg): the pool's logical clock. Each txg is one atomic step of the whole pool.
    Txg
);
unit!(
    /// The txg in which the bytes of a block were written where they lie. It says which disks may lack them,
    /// how wide their RAID-Z was, and whether a checkpoint has them.
    ///
    /// Which snapshots see a block, its *logical* birth says, a plain [`Txg`]: that of a clone, or of a
    /// deduplicated block, is later.
    PhysicalBirth
);
unit!(
    /// An object's number within its object set.
    ObjectId
);
unit!(
    /// A dataset's number: the object in the meta object set that holds its `dsl_dataset_phys_t`. 0 is the
    /// MOS itself.
    DatasetId
);
unit!(
    /// A top-level vdev's index in the root vdev's list of children.
    VdevId
);
unit!(
    /// A random 64-bit identity of a pool, vdev or dataset that survives renaming.
    Guid
);
unit!(
    /// A block's position within its object at its level.
    BlockId
);
unit!(
    /// Bytes that a block takes on a vdev, including parity, padding and gang headers.
    Asize
);
unit!(
    /// Bytes of a block as stored: compressed, without parity.
    Psize
);
unit!(
    /// Bytes of a block as its owner sees it, uncompressed.
    Lsize
);

impl PhysicalBirth {
    /// Bytes that nobody knows the birth of: ranges of a disk, whatever blocks lie there (`TXG_UNKNOWN`).
    pub const UNKNOWN: PhysicalBirth = PhysicalBirth(0);

    /// The birth of bytes that are written in a txg.
    pub const fn in_txg(txg: Txg) -> PhysicalBirth {
        PhysicalBirth(txg.0)
    }

    /// The txg.
    pub const fn txg(self) -> Txg {
        Txg(self.0)
    }
}

/// The txg that makes a pool: no block is older.
pub const TXG_INITIAL: Txg = Txg(4);
/// Txgs that may be under way at once: open, quiescing, syncing.
pub const TXG_CONCURRENT_STATES: u64 = 3;

/// log2 of the smallest block and of the unit of sizes on disk, `SPA_MINBLOCKSHIFT`.
pub const SPA_MINBLOCKSHIFT: u32 = 9;
/// The smallest block in bytes, `SPA_MINBLOCKSIZE`.
pub const SPA_MINBLOCKSIZE: u64 = 1 << SPA_MINBLOCKSHIFT;
/// The largest block in bytes (16 MiB), `SPA_MAXBLOCKSIZE`.
pub const SPA_MAXBLOCKSIZE: u64 = 1 << 24;
