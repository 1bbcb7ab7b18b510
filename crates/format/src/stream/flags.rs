//! Flags of streams and records.
//!
//! Source: OpenZFS `zfs_ioctl.h` (`DMU_BACKUP_FEATURE_*`, `DRR_FLAG_*`, `drr_flags`).

use std::ops::BitOr;

use crate::error::{FormatError, Result};

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident($bits:ty): $($(#[$flag_doc:meta])* $flag:ident = $bit:expr;)*) => {
        $(#[$doc])*
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub $bits);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: $name = $name(1 << $bit);)*

            /// All of these are set.
            pub const fn has(self, flags: $name) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// Those of these that are not among `known`.
            pub const fn without(self, known: $name) -> $name {
                $name(self.0 & !known.0)
            }
        }

        impl BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }
    };
}

flags! {
    /// What the receiver of a stream must be able to do, `DMU_BACKUP_FEATURE_*`.
    StreamFeatures(u64):
    /// Blocks may refer to earlier ones (no longer made or received).
    DEDUP = 0;
    /// Deduplicated by the properties of blocks, too.
    DEDUPPROPS = 1;
    /// Attributes may be in spill blocks (ZPL version 5).
    SA_SPILL = 2;
    /// There are embedded blocks.
    EMBED_DATA = 16;
    /// The pool must know lz4.
    LZ4 = 17;
    /// Blocks may be larger than 128 KiB.
    LARGE_BLOCKS = 19;
    /// The rest of a stream that broke off.
    RESUMING = 20;
    /// Parts of files were left out.
    REDACTED = 21;
    /// Blocks are compressed as they were on disk.
    COMPRESSED = 22;
    /// Dnodes may be larger than 512 bytes.
    LARGE_DNODE = 23;
    /// Blocks are encrypted as they were on disk.
    RAW = 24;
    /// The pool must know zstd.
    ZSTD = 25;
    /// The package tells of holds.
    HOLDS = 26;
    /// Large blocks may follow a stream that had them split.
    SWITCH_TO_LARGE_BLOCKS = 27;
    /// Names may be longer than 255 bytes.
    LONGNAME = 28;
    /// Micro-ZAPs may be larger than 128 KiB.
    LARGE_MICROZAP = 29;
}

flags! {
    /// Properties of a stream, `DRR_FLAG_*`.
    BeginFlags(u32):
    /// The dataset is a clone.
    CLONE = 0;
    /// Names of the file system ignore case.
    CI_DATA = 1;
    /// What is free is told even in a whole stream, so that it can be received as a clone.
    FREERECORDS = 2;
    /// The flags about spill blocks in records can be relied on.
    SPILL_BLOCK = 3;
}

flags! {
    /// `drr_flags` of a record.
    RecordFlags(u8):
    /// The checksum is strong enough to deduplicate by (WRITE).
    CHECKSUM_DEDUP = 0;
    /// The block was written in the other byte order (raw).
    RAW_BYTESWAP = 1;
    /// The object has a spill block (OBJECT).
    OBJECT_SPILL = 2;
    /// The spill block did not change (SPILL).
    SPILL_UNMODIFIED = 2;
}

impl StreamFeatures {
    /// All that OpenZFS 2.3 and 2.4 receive, `DMU_BACKUP_FEATURE_MASK`.
    pub const MASK: StreamFeatures = StreamFeatures(
        Self::SA_SPILL.0
            | Self::EMBED_DATA.0
            | Self::LZ4.0
            | Self::RESUMING.0
            | Self::LARGE_BLOCKS.0
            | Self::COMPRESSED.0
            | Self::LARGE_DNODE.0
            | Self::RAW.0
            | Self::HOLDS.0
            | Self::REDACTED.0
            | Self::SWITCH_TO_LARGE_BLOCKS.0
            | Self::ZSTD.0
            | Self::LONGNAME.0
            | Self::LARGE_MICROZAP.0,
    );
}

/// Whether a stream or a package begins, `drr_headertype_t`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeaderType {
    /// `DMU_SUBSTREAM`.
    #[default]
    Substream,
    /// `DMU_COMPOUNDSTREAM`.
    Compound,
}

impl HeaderType {
    pub(super) fn number(self) -> u64 {
        match self {
            HeaderType::Substream => 1,
            HeaderType::Compound => 2,
        }
    }

    pub(super) fn of_number(number: u64) -> Result<HeaderType> {
        match number {
            1 => Ok(HeaderType::Substream),
            2 => Ok(HeaderType::Compound),
            value => Err(FormatError::OutOfRange { what: "type of a stream", value, bound: 2 }),
        }
    }
}
