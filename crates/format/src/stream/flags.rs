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

            /// Whether all of `flags` are set.
            pub const fn has(self, flags: $name) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// Set flags outside `known`.
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
    /// Features that the receiver needs, `DMU_BACKUP_FEATURE_*`.
    StreamFeatures(u64):
    /// Blocks refer to earlier ones (obsolete, refused).
    DEDUP = 0;
    /// Deduplicated by block properties, too.
    DEDUPPROPS = 1;
    /// Attributes in spill blocks (ZPL version 5).
    SA_SPILL = 2;
    /// Embedded blocks.
    EMBED_DATA = 16;
    /// Needs lz4.
    LZ4 = 17;
    /// Blocks above 128 KiB.
    LARGE_BLOCKS = 19;
    /// Continues an interrupted stream.
    RESUMING = 20;
    /// Redacted.
    REDACTED = 21;
    /// Blocks compressed as on disk.
    COMPRESSED = 22;
    /// Dnodes above 512 bytes.
    LARGE_DNODE = 23;
    /// Blocks encrypted as on disk.
    RAW = 24;
    /// Needs zstd.
    ZSTD = 25;
    /// Package with holds.
    HOLDS = 26;
    /// Large blocks may follow a stream that split them.
    SWITCH_TO_LARGE_BLOCKS = 27;
    /// Names above 255 bytes.
    LONGNAME = 28;
    /// Micro-ZAPs above 128 KiB.
    LARGE_MICROZAP = 29;
}

flags! {
    /// Stream properties, `DRR_FLAG_*`.
    BeginFlags(u32):
    /// Clone.
    CLONE = 0;
    /// Case-insensitive names.
    CI_DATA = 1;
    /// Free records even in a full stream, so that it can be received as a clone.
    FREERECORDS = 2;
    /// Spill flags in records are reliable.
    SPILL_BLOCK = 3;
}

flags! {
    /// Record flags, `drr_flags`.
    RecordFlags(u8):
    /// Checksum strong enough for dedup (WRITE).
    CHECKSUM_DEDUP = 0;
    /// Written in the other byte order (raw).
    RAW_BYTESWAP = 1;
    /// Has a spill block (OBJECT).
    OBJECT_SPILL = 2;
    /// Unchanged spill block (SPILL).
    SPILL_UNMODIFIED = 2;
}

impl StreamFeatures {
    /// Features that OpenZFS 2.3 and 2.4 receive, `DMU_BACKUP_FEATURE_MASK`.
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

/// Stream or package, `drr_headertype_t`.
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
