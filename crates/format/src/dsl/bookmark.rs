//! Bookmarks, which keep a snapshot's point in time without its data; and redaction lists.
//!
//! The ZAP `DS_FIELD_BOOKMARK_NAMES` maps a bookmark's name to words: three in version 1, twelve in version 2
//! (feature `bookmark_v2`).
//!
//! A redaction bookmark names a redaction list. The list's bonus (or spill block, if too large) is the head
//! below. Its content is an array of 32-byte entries sorted by object and block, the runs of omitted blocks.
//!
//! Source: OpenZFS `dsl_bookmark.h`, `dmu_redact.h`.

use crate::bytes::{Endian, Reader, Writer};
use crate::error::{FormatError, Result};
use crate::units::{BlockId, Guid, ObjectId, SPA_MINBLOCKSHIFT, Txg};
use crate::words::{Pad, word_struct};

/// `ZBM_FLAG_HAS_FBN`: sizes are valid.
pub const ZBM_FLAG_HAS_FBN: u64 = 1 << 0;
/// `ZBM_FLAG_SNAPSHOT_EXISTS`: the snapshot existed when last checked.
pub const ZBM_FLAG_SNAPSHOT_EXISTS: u64 = 1 << 1;

word_struct! {
    /// Bookmark, `zfs_bookmark_phys_t`.
    pub struct Bookmark("bookmark", bytes: 96, required: 3) {
        /// Snapshot guid.
        pub guid: Guid,
        /// Snapshot txg.
        pub creation_txg: Txg,
        /// Seconds since 1970.
        pub creation_time_s: u64,
        /// Redaction list; 0 for a plain bookmark.
        pub redaction_list: ObjectId,
        /// `ZBM_FLAG_*`.
        pub flags: u64,
        /// Referenced space. This and the next five are valid with `ZBM_FLAG_HAS_FBN`.
        pub referenced_bytes: u64,
        /// Stored bytes.
        pub compressed_bytes: u64,
        /// Uncompressed bytes.
        pub uncompressed_bytes: u64,
        /// Space freed up to the next snapshot.
        pub referenced_freed_bytes: u64,
        /// Stored bytes.
        pub compressed_freed_bytes: u64,
        /// Uncompressed bytes.
        pub uncompressed_freed_bytes: u64,
        /// IV set of an encrypted snapshot.
        pub ivset_guid: Guid,
    }
}

/// Head of a redaction list, `redaction_list_phys_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactionListHead {
    /// Last object examined; `u64::MAX` (like the block) when complete.
    pub last_object: ObjectId,
    /// Last block examined.
    pub last_block: BlockId,
    /// Entries.
    pub num_entries: u64,
    /// Guids of the redaction snapshots.
    pub snapshots: Vec<Guid>,
}

impl RedactionListHead {
    /// Decodes a bonus or spill block.
    pub fn decode(data: &[u8], endian: Endian) -> Result<Self> {
        let mut r = Reader::new("redaction list", data, endian);
        let [last_object, last_block, num_entries, num_snaps] = r.words()?;
        if num_snaps > (r.remaining() / 8) as u64 {
            return Err(FormatError::OutOfRange {
                what: "redaction list snapshots",
                value: num_snaps,
                bound: (r.remaining() / 8) as u64,
            });
        }
        let snapshots = (0..num_snaps).map(|_| r.u64().map(Guid)).collect::<Result<_>>()?;
        Ok(RedactionListHead {
            last_object: ObjectId(last_object),
            last_block: BlockId(last_block),
            num_entries,
            snapshots,
        })
    }

    /// Encodes the head.
    pub fn encode(&self, endian: Endian) -> Vec<u8> {
        let mut w = Writer::new(endian);
        w.words(&[self.last_object.0, self.last_block.0, self.num_entries, self.snapshots.len() as u64]);
        for guid in &self.snapshots {
            w.u64(guid.0);
        }
        w.finish()
    }

    /// Whether the whole dataset has been examined.
    pub fn is_complete(&self) -> bool {
        self.last_object.0 == u64::MAX && self.last_block.0 == u64::MAX
    }
}

word_struct! {
    /// Run of redacted blocks, `redact_block_phys_t`.
    pub struct RedactBlock("redaction entry", bytes: 32, required: all) {
        /// Object.
        pub object: ObjectId,
        /// First block of the run.
        pub first_block: BlockId,
        /// Block size in 512-byte sectors (bits 48..64), run length minus one (bits 0..48).
        pub size_count: u64,
        /// Reserved.
        pub pad: Pad<1>,
    }
}

impl RedactBlock {
    /// Block size.
    pub fn block_bytes(&self) -> u64 {
        (self.size_count >> 48) << SPA_MINBLOCKSHIFT
    }

    /// Blocks in the run.
    pub fn block_count(&self) -> u64 {
        (self.size_count & ((1 << 48) - 1)) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Phys, check_phys};
    use proptest::prelude::*;

    #[test]
    fn sizes_are_those_of_the_disk_and_words_come_back() {
        check_phys::<Bookmark>();
        check_phys::<RedactBlock>();
    }

    #[test]
    fn a_version_1_bookmark_has_no_sizes() {
        let b = Bookmark::from_words(&[7, 8, 9]).unwrap();
        assert_eq!((b.guid, b.creation_txg, b.creation_time_s, b.flags), (Guid(7), Txg(8), 9, 0));
        assert!(Bookmark::from_words(&[7, 8]).is_err());
    }

    proptest! {
        #[test]
        fn redaction_heads_round_trip(
            words in any::<[u64; 3]>(),
            snaps in prop::collection::vec(any::<u64>(), 0..40),
        ) {
            let head = RedactionListHead {
                last_object: ObjectId(words[0]),
                last_block: BlockId(words[1]),
                num_entries: words[2],
                snapshots: snaps.into_iter().map(Guid).collect(),
            };
            for endian in [Endian::Little, Endian::Big] {
                let again = RedactionListHead::decode(&head.encode(endian), endian).unwrap();
                prop_assert_eq!(again, head.clone());
            }
        }

        #[test]
        fn hostile_redaction_heads_are_bounded(raw in prop::collection::vec(any::<u8>(), 0..128)) {
            if let Ok(head) = RedactionListHead::decode(&raw, Endian::Little) {
                prop_assert!(head.snapshots.len() * 8 + 32 <= raw.len());
            }
        }
    }
}
