//! DSL: the dataset tree as stored in the meta object set (MOS).
//!
//! Idea: a `dsl_dir` is a node of the name tree, with quotas, properties, space accounting and children. A
//! `dsl_dataset` is one version of its content. The dir's head dataset is live. Snapshots form a chain behind
//! it, newest first (`prev_snap`); each has a `deadlist` of blocks that died before the next snapshot. Both
//! structures are bonuses of MOS objects. Later fields lie in a ZAP, the same object's content (`DD_FIELD_*`,
//! `DS_FIELD_*`), if its type says so.
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

/// `DD_FLAG_USED_BREAKDOWN`: `used_breakdown` is valid.
pub const DD_FLAG_USED_BREAKDOWN: u64 = 1 << 0;

word_struct! {
    /// Parts of `used_bytes`, by `dd_used_t`.
    pub struct UsedBreakdown("space breakdown", bytes: 40, required: all) {
        /// `DD_USED_HEAD`: head dataset.
        pub head_bytes: u64,
        /// `DD_USED_SNAP`: snapshots.
        pub snapshots_bytes: u64,
        /// `DD_USED_CHILD`: child directories.
        pub children_bytes: u64,
        /// `DD_USED_CHILD_RSRV`: children's reservations.
        pub children_reservation_bytes: u64,
        /// `DD_USED_REFRSRV`: head's refreservation.
        pub refreservation_bytes: u64,
    }
}

word_struct! {
    /// A node of the dataset tree, `dsl_dir_phys_t`: bonus of a `DSL_DIR` object.
    pub struct DslDirPhys("dsl_dir", bytes: 256, required: all) {
        /// Seconds since 1970. May be stale; the head dataset's creation time is authoritative.
        pub creation_time_s: u64,
        /// Live dataset; 0 for `$MOS` and `$FREE`.
        pub head_dataset: ObjectId,
        /// Parent directory; 0 at the root.
        pub parent: ObjectId,
        /// Origin snapshot of a clone, else 0.
        pub origin: ObjectId,
        /// ZAP: child name to `dsl_dir`.
        pub child_dirs_zap: ObjectId,
        /// Space used here and below, with reservations.
        pub used_bytes: u64,
        /// Stored bytes.
        pub compressed_bytes: u64,
        /// Uncompressed bytes.
        pub uncompressed_bytes: u64,
        /// Quota of the subtree; 0 for none.
        pub quota_bytes: u64,
        /// Reservation of the subtree.
        pub reserved_bytes: u64,
        /// ZAP: properties set here.
        pub props_zap: ObjectId,
        /// ZAP: delegated permissions (`zfs allow`).
        pub deleg_zap: ObjectId,
        /// `DD_FLAG_*`.
        pub flags: u64,
        /// Parts of `used_bytes`.
        pub used_breakdown: UsedBreakdown,
        /// ZAP: clones of this directory's snapshots (as `dsl_dir`s).
        pub clones_zap: ObjectId,
        /// Reserved.
        pub pad: Pad<13>,
    }
}

/// `DS_FLAG_INCONSISTENT`: being received or destroyed.
pub const DS_FLAG_INCONSISTENT: u64 = 1 << 0;
/// `DS_FLAG_NOPROMOTE`: may not be promoted.
pub const DS_FLAG_NOPROMOTE: u64 = 1 << 1;
/// `DS_FLAG_UNIQUE_ACCURATE`: a head's `unique_bytes` is exact.
pub const DS_FLAG_UNIQUE_ACCURATE: u64 = 1 << 2;
/// `DS_FLAG_DEFER_DESTROY`: destroyed after its last hold and clone.
pub const DS_FLAG_DEFER_DESTROY: u64 = 1 << 3;
/// `DS_FLAG_CI_DATASET`: names are case-insensitive.
pub const DS_FLAG_CI_DATASET: u64 = 1 << 16;

word_struct! {
    /// A version of a dataset, `dsl_dataset_phys_t`: bonus of a `DSL_DATASET` object.
    pub struct DslDatasetPhys("dsl_dataset", bytes: 320, required: all) {
        /// Owning directory.
        pub dir: ObjectId,
        /// Previous snapshot; 0 only for `$ORIGIN`'s first dataset.
        pub prev_snapshot: ObjectId,
        /// Txg of the previous snapshot: later blocks belong to this version.
        pub prev_snapshot_txg: Txg,
        /// Next snapshot or head; 0 for a head.
        pub next_snapshot: ObjectId,
        /// ZAP: snapshot names; 0 for a snapshot.
        pub snapshot_names_zap: ObjectId,
        /// Snapshot: versions directly after it (the next one and its clones). Head: 0.
        pub num_children: u64,
        /// Seconds since 1970.
        pub creation_time_s: u64,
        /// Txg in which it was created or taken.
        pub creation_txg: Txg,
        /// Blocks of the previous snapshot that this version lacks.
        pub deadlist: ObjectId,
        /// Referenced space, shared or not.
        pub referenced_bytes: u64,
        /// Stored bytes.
        pub compressed_bytes: u64,
        /// Uncompressed bytes.
        pub uncompressed_bytes: u64,
        /// Unshared space: destroying this version frees it.
        pub unique_bytes: u64,
        /// 56-bit identity for `statfs`; may change to stay unique on a host.
        pub fsid_guid: Guid,
        /// Identity preserved by send and receive.
        pub guid: Guid,
        /// `DS_FLAG_*`.
        pub flags: u64,
        /// Object set; a hole if never written.
        pub bp: Blkptr,
        /// Snapshot: ZAP of its clones (as datasets). Head: 0.
        pub next_clones_zap: ObjectId,
        /// ZAP: a snapshot's properties; a head's are in its directory.
        pub props_zap: ObjectId,
        /// ZAP: hold tag to seconds.
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
    /// Whether another version follows.
    pub fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }

    /// Whether it is being received or destroyed, hence maybe incomplete.
    pub fn is_inconsistent(&self) -> bool {
        self.flags & DS_FLAG_INCONSISTENT != 0
    }

    /// Compression ratio in hundredths (`refcompressratio`): 100 means 1.00x.
    pub fn compress_ratio_percent(&self) -> u64 {
        compress_ratio_percent(self.uncompressed_bytes, self.compressed_bytes)
    }
}

/// Ratio in hundredths; 100 without data.
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
