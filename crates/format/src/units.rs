//! Newtypes for txgs, object numbers and the three sizes of a block.
//!
//! All are `u64` on disk. Distinct types keep a psize from being passed as an asize.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Raw number.
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
    /// Transaction group (txg): the pool's logical clock. Each txg is an atomic step of the whole pool.
    Txg
);
unit!(
    /// Txg in which a block's bytes were written to their current location. It decides which disks may lack
    /// them, the RAID-Z width, and whether a checkpoint has them.
    ///
    /// The *logical* birth, a plain [`Txg`], decides which snapshots own the block; in a clone or dedup
    /// reference it is later.
    PhysicalBirth
);
unit!(
    /// Object number within its object set.
    ObjectId
);
unit!(
    /// Dataset number: the MOS object with its `dsl_dataset_phys_t`. 0 is the MOS itself.
    DatasetId
);
unit!(
    /// Index of a top-level vdev among the root's children.
    VdevId
);
unit!(
    /// Random 64-bit identity of a pool, vdev or dataset; survives renaming.
    Guid
);
unit!(
    /// Block position within an object and level.
    BlockId
);
unit!(
    /// Bytes on a vdev, with parity, padding and gang headers.
    Asize
);
unit!(
    /// Stored bytes: compressed, without parity.
    Psize
);
unit!(
    /// Uncompressed bytes.
    Lsize
);

impl PhysicalBirth {
    /// Unknown birth, for disk ranges regardless of blocks (`TXG_UNKNOWN`).
    pub const UNKNOWN: PhysicalBirth = PhysicalBirth(0);

    /// Birth of bytes written in a txg.
    pub const fn in_txg(txg: Txg) -> PhysicalBirth {
        PhysicalBirth(txg.0)
    }

    /// Txg.
    pub const fn txg(self) -> Txg {
        Txg(self.0)
    }
}

/// Txg that creates a pool: no block is older.
pub const TXG_INITIAL: Txg = Txg(4);
/// Concurrent txgs: open, quiescing, syncing.
pub const TXG_CONCURRENT_STATES: u64 = 3;

/// log2 of the smallest block, the unit of on-disk sizes, `SPA_MINBLOCKSHIFT`.
pub const SPA_MINBLOCKSHIFT: u32 = 9;
/// Smallest block in bytes, `SPA_MINBLOCKSIZE`.
pub const SPA_MINBLOCKSIZE: u64 = 1 << SPA_MINBLOCKSHIFT;
/// Largest block (16 MiB), `SPA_MAXBLOCKSIZE`.
pub const SPA_MAXBLOCKSIZE: u64 = 1 << 24;
/// Largest block without feature `large_blocks`, and block size of the engine's lists,
/// `SPA_OLD_MAXBLOCKSIZE`.
pub const SPA_OLD_MAXBLOCKSIZE: u64 = 128 << 10;
