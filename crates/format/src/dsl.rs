//! DSL: the tree of datasets as it lies in the meta object set (MOS).
//!
//! Idea: a `dsl_dir` is a node of the name tree: it holds quotas, properties, space accounting and a map of
//! children. A `dsl_dataset` is one version of its content. The dir's head dataset is the live one;
//! snapshots hang behind it as a chain from newest to oldest (`prev_snap`), each with a list of the blocks
//! that died before the next snapshot was taken (`deadlist`). Both structures are the bonus of their MOS
//! object. Fields added later lie in a ZAP, the content of the same object (names `DD_FIELD_*`,
//! `DS_FIELD_*`), if the object's type says so.
//!
//! ```text
//!   MOS object 1 "root_dataset" -> dsl_dir -- child_dir_zapobj --> name -> dsl_dir ...
//!                                     | head_dataset_obj
//!                                  dsl_dataset -- prev_snap_obj --> dsl_dataset --> ... --> $ORIGIN
//!                                     | snapnames_zapobj: name -> dsl_dataset
//! ```
//!
//! Source: OpenZFS `dsl_dir.h`, `dsl_dataset.h`.

pub mod bookmark;
pub mod deadlist;
pub mod names;

use crate::blkptr::Blkptr;
use crate::units::{Guid, ObjectId, Txg};
use crate::words::{Pad, offset_of, word_struct};

/// `DD_FLAG_USED_BREAKDOWN`: `used_breakdown` of a `DslDirPhys` is valid.
pub const DD_FLAG_USED_BREAKDOWN: u64 = 1 << 0;

word_struct! {
    /// The parts of a directory's `used_bytes`, by `dd_used_t`. Valid with `DD_FLAG_USED_BREAKDOWN`.
    pub struct UsedBreakdown("space breakdown", bytes: 40, required: all) {
        /// `DD_USED_HEAD`: by the head dataset.
        pub head_bytes: u64,
        /// `DD_USED_SNAP`: by snapshots.
        pub snapshots_bytes: u64,
        /// `DD_USED_CHILD`: by child directories.
        pub children_bytes: u64,
        /// `DD_USED_CHILD_RSRV`: held back by reservations of children.
        pub children_reservation_bytes: u64,
        /// `DD_USED_REFRSRV`: held back by the head's refreservation.
        pub refreservation_bytes: u64,
    }
}

word_struct! {
    /// A node of the dataset tree, `dsl_dir_phys_t`: 256 bytes, the bonus of a `DSL_DIR` object.
    pub struct DslDirPhys("dsl_dir", bytes: 256, required: all) {
        /// Seconds since 1970. Not kept up to date; the head dataset's creation time is authoritative.
        pub creation_time_s: u64,
        /// The live dataset; 0 for `$MOS` and `$FREE`, which have none.
        pub head_dataset: ObjectId,
        /// The parent directory; 0 at the root.
        pub parent: ObjectId,
        /// The snapshot that a clone was made from (a dataset); 0 if it isn't a clone.
        pub origin: ObjectId,
        /// ZAP of child names to `dsl_dir`.
        pub child_dirs_zap: ObjectId,
        /// Space used here and below, reservations included.
        pub used_bytes: u64,
        /// The blocks' bytes as stored.
        pub compressed_bytes: u64,
        /// The blocks' bytes before compression.
        pub uncompressed_bytes: u64,
        /// Limit for this directory and below; 0 for none.
        pub quota_bytes: u64,
        /// Space promised to this directory and below.
        pub reserved_bytes: u64,
        /// ZAP of the properties set here.
        pub props_zap: ObjectId,
        /// ZAP of delegated permissions (`zfs allow`).
        pub deleg_zap: ObjectId,
        /// `DD_FLAG_*`.
        pub flags: u64,
        /// The parts of `used_bytes`.
        pub used_breakdown: UsedBreakdown,
        /// ZAP of the clones of this directory's snapshots (as `dsl_dir`s).
        pub clones_zap: ObjectId,
        /// Reserved.
        pub pad: Pad<13>,
    }
}

/// `DS_FLAG_INCONSISTENT`: being received or destroyed.
pub const DS_FLAG_INCONSISTENT: u64 = 1 << 0;
/// `DS_FLAG_NOPROMOTE`: may not be promoted.
pub const DS_FLAG_NOPROMOTE: u64 = 1 << 1;
/// `DS_FLAG_UNIQUE_ACCURATE`: `unique_bytes` of a head dataset is right.
pub const DS_FLAG_UNIQUE_ACCURATE: u64 = 1 << 2;
/// `DS_FLAG_DEFER_DESTROY`: destroyed once its last hold and clone are gone.
pub const DS_FLAG_DEFER_DESTROY: u64 = 1 << 3;
/// `DS_FLAG_CI_DATASET`: names are looked up without regard to case.
pub const DS_FLAG_CI_DATASET: u64 = 1 << 16;

word_struct! {
    /// One version of a dataset's content, `dsl_dataset_phys_t`: 320 bytes, the bonus of a `DSL_DATASET`
    /// object.
    pub struct DslDatasetPhys("dsl_dataset", bytes: 320, required: all) {
        /// The directory that it belongs to.
        pub dir: ObjectId,
        /// The previous snapshot; 0 only for the very first dataset, `$ORIGIN`'s.
        pub prev_snapshot: ObjectId,
        /// When the previous snapshot was taken: blocks born later belong to this version.
        pub prev_snapshot_txg: Txg,
        /// The next snapshot or the head; 0 for a head.
        pub next_snapshot: ObjectId,
        /// ZAP of snapshot names; 0 for a snapshot.
        pub snapshot_names_zap: ObjectId,
        /// For a snapshot, the number of versions directly after it (the next one and its clones); 0 for a
        /// head.
        pub num_children: u64,
        /// Seconds since 1970.
        pub creation_time_s: u64,
        /// The txg in which it was made; for a snapshot, in which it was taken.
        pub creation_txg: Txg,
        /// Blocks of the previous snapshot that this version no longer has.
        pub deadlist: ObjectId,
        /// Space of all blocks that it references, shared or not.
        pub referenced_bytes: u64,
        /// Their bytes as stored.
        pub compressed_bytes: u64,
        /// Their bytes before compression.
        pub uncompressed_bytes: u64,
        /// Space that only this version references: destroying it would free this much.
        pub unique_bytes: u64,
        /// 56-bit identity for `statfs`; may change to stay unique on a machine.
        pub fsid_guid: Guid,
        /// Identity that a snapshot keeps through send and receive.
        pub guid: Guid,
        /// `DS_FLAG_*`.
        pub flags: u64,
        /// The object set. A hole in a dataset that has never been written.
        pub bp: Blkptr,
        /// ZAP of the clones of this snapshot (as datasets); 0 for a head.
        pub next_clones_zap: ObjectId,
        /// Properties of a snapshot; those of a head are in its directory.
        pub props_zap: ObjectId,
        /// ZAP of holds: tag to time in seconds.
        pub userrefs_zap: ObjectId,
        /// Reserved.
        pub pad: Pad<5>,
    }
}

const _: () = {
    assert!(offset_of::<DslDirPhys>("flags") == 96);
    assert!(offset_of::<DslDirPhys>("clones_zap") == 144);
    assert!(offset_of::<DslDatasetPhys>("guid") == 112);
    assert!(offset_of::<DslDatasetPhys>("bp") == 128);
    assert!(offset_of::<DslDatasetPhys>("next_clones_zap") == 256);
};

impl DslDatasetPhys {
    /// This is a snapshot rather than a head: another version follows it.
    pub fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }

    /// Being received or destroyed: its content may not be complete.
    pub fn is_inconsistent(&self) -> bool {
        self.flags & DS_FLAG_INCONSISTENT != 0
    }

    /// Compression ratio in hundredths, as `zfs get refcompressratio` shows it: 100 means 1.00x.
    pub fn compress_ratio_percent(&self) -> u64 {
        compress_ratio_percent(self.uncompressed_bytes, self.compressed_bytes)
    }
}

/// Uncompressed to compressed in hundredths; 100 if there is nothing.
pub fn compress_ratio_percent(uncompressed_bytes: u64, compressed_bytes: u64) -> u64 {
    let ratio = u128::from(uncompressed_bytes) * 100;
    match ratio.checked_div(u128::from(compressed_bytes)) {
        Some(percent) => u64::try_from(percent).unwrap_or(u64::MAX),
        None => 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Endian;
    use crate::words::{Phys, check_phys};

    #[test]
    fn sizes_are_those_of_the_disk_and_words_come_back() {
        check_phys::<DslDirPhys>();
        check_phys::<DslDatasetPhys>();
    }

    #[test]
    fn fields_lie_where_openzfs_puts_them() {
        let mut raw = vec![0; 320];
        raw[14 * 8] = 0xaa; // ds_guid
        raw[16 * 8 + 10 * 8] = 0xbb; // ds_bp's logical birth
        raw[32 * 8] = 0xcc; // ds_next_clones_obj
        let ds = DslDatasetPhys::decode(&raw, Endian::Little).unwrap();
        assert_eq!(ds.guid, Guid(0xaa));
        assert_eq!(ds.bp.logical_birth(), Txg(0xbb));
        assert_eq!(ds.next_clones_zap, ObjectId(0xcc));
        assert!(DslDatasetPhys::decode(&raw[..312], Endian::Little).is_err());
    }

    #[test]
    fn ratios_do_not_divide_by_zero_or_overflow() {
        assert_eq!(compress_ratio_percent(0, 0), 100);
        assert_eq!(compress_ratio_percent(300, 200), 150);
        assert_eq!(compress_ratio_percent(u64::MAX, 1), u64::MAX);
    }
}
