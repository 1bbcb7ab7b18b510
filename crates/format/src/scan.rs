//! Persistent state of scrub, resilver, rebuild, removal, expansion, initialize and trim.
//!
//! Idea: each task keeps its progress as words in a ZAP, to resume after a restart and for `zpool status`.
//! Scans and removal live in the MOS directory, rebuild and RAID-Z expansion in a top-level vdev's ZAP,
//! initialize and trim in a leaf's (`dsl::names::vdev_zap`). A dirty time log (DTL) is a space map over txgs,
//! shift 0. A checkpoint is a copy of the uberblock; discarding it leaves a space map per vdev to process.
//!
//! Source: OpenZFS `dsl_scan.h`, `spa_impl.h` (`spa_removing_phys_t`), `vdev_rebuild.h`, `fs/zfs.h`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::errlog::BlockBookmark;
use crate::units::{ObjectId, Txg, VdevId};
use crate::words::{offset_of, word_struct};

/// Values of [`ScanFunc`].
pub const POOL_SCAN_SCRUB: u64 = 1;
/// [`ScanFunc::Resilver`].
pub const POOL_SCAN_RESILVER: u64 = 2;
/// [`ScanFunc::ErrorScrub`].
pub const POOL_SCAN_ERRORSCRUB: u64 = 3;

/// Values of [`ScanState`].
pub const DSS_SCANNING: u64 = 1;
/// [`ScanState::Finished`].
pub const DSS_FINISHED: u64 = 2;
/// [`ScanState::Canceled`].
pub const DSS_CANCELED: u64 = 3;
/// [`ScanState::ErrorScrubbing`].
pub const DSS_ERRORSCRUBBING: u64 = 4;

/// Kind of a scan, `pool_scan_func_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScanFunc {
    /// No scan has run.
    None,
    /// Verifies all blocks.
    Scrub,
    /// Updates replaced or returned disks.
    Resilver,
    /// Verifies the blocks in the error log.
    ErrorScrub,
    /// Unknown.
    Other(u64),
}

impl From<u64> for ScanFunc {
    fn from(value: u64) -> Self {
        match value {
            0 => ScanFunc::None,
            POOL_SCAN_SCRUB => ScanFunc::Scrub,
            POOL_SCAN_RESILVER => ScanFunc::Resilver,
            POOL_SCAN_ERRORSCRUB => ScanFunc::ErrorScrub,
            other => ScanFunc::Other(other),
        }
    }
}

/// State of a scan, removal or expansion, `dsl_scan_state_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScanState {
    /// Never started.
    None,
    /// In progress.
    Scanning,
    /// Done.
    Finished,
    /// Canceled.
    Canceled,
    /// Error scrub in progress.
    ErrorScrubbing,
    /// Unknown.
    Other(u64),
}

impl From<u64> for ScanState {
    fn from(value: u64) -> Self {
        match value {
            0 => ScanState::None,
            DSS_SCANNING => ScanState::Scanning,
            DSS_FINISHED => ScanState::Finished,
            DSS_CANCELED => ScanState::Canceled,
            DSS_ERRORSCRUBBING => ScanState::ErrorScrubbing,
            other => ScanState::Other(other),
        }
    }
}

/// State of rebuild, initialize and trim: `vdev_rebuild_state_t`, `vdev_initializing_state_t`,
/// `vdev_trim_state_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VdevWorkState {
    /// Never started.
    None,
    /// In progress.
    Active,
    /// Canceled.
    Canceled,
    /// Paused (not a rebuild).
    Suspended,
    /// Done.
    Complete,
    /// Unknown.
    Other(u64),
}

impl VdevWorkState {
    /// Decodes initialize or trim state.
    pub fn of_leaf(value: u64) -> Self {
        match value {
            0 => VdevWorkState::None,
            1 => VdevWorkState::Active,
            2 => VdevWorkState::Canceled,
            3 => VdevWorkState::Suspended,
            4 => VdevWorkState::Complete,
            other => VdevWorkState::Other(other),
        }
    }

    /// Encodes initialize or trim state.
    pub fn leaf_value(self) -> u64 {
        match self {
            VdevWorkState::None => 0,
            VdevWorkState::Active => 1,
            VdevWorkState::Canceled => 2,
            VdevWorkState::Suspended => 3,
            VdevWorkState::Complete => 4,
            VdevWorkState::Other(other) => other,
        }
    }

    /// Decodes rebuild state; a rebuild cannot be suspended.
    pub fn of_rebuild(value: u64) -> Self {
        match value {
            3 => VdevWorkState::Complete,
            4 => VdevWorkState::Other(4),
            other => VdevWorkState::of_leaf(other),
        }
    }
}

/// `DSF_VISIT_DS_AGAIN`: revisit a dataset.
pub const DSF_VISIT_DS_AGAIN: u64 = 1 << 0;
/// `DSF_SCRUB_PAUSED`.
pub const DSF_SCRUB_PAUSED: u64 = 1 << 1;
/// `DSF_SCRUB_THOROUGH`: blocks are decrypted and decompressed, too; of OpenZFS after 2.4.
pub const DSF_SCRUB_THOROUGH: u64 = 1 << 2;

word_struct! {
    /// Position in the dedup tables, `ddt_bookmark_t`.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct DdtBookmark("DDT bookmark", bytes: 32, required: all) {
        /// Class.
        pub class: u64,
        /// Storage type.
        pub storage_type: u64,
        /// Checksum algorithm.
        pub checksum: u64,
        /// Cursor in the ZAP.
        pub cursor: u64,
    }
}

word_struct! {
    /// Last or running scrub or resilver, `dsl_scan_phys_t`, in the MOS directory.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct ScanPhys("scan", bytes: 192, required: all) {
        /// A `ScanFunc`.
        pub func: u64,
        /// A `ScanState`.
        pub state: u64,
        /// Dataset queue object.
        pub queue: ObjectId,
        /// Scans blocks born after this txg.
        pub min_txg: Txg,
        /// Scans blocks born before this txg.
        pub max_txg: Txg,
        /// `min_txg` of the current dataset.
        pub cur_min_txg: Txg,
        /// `max_txg` of the current dataset.
        pub cur_max_txg: Txg,
        /// Seconds since 1970.
        pub start_time_s: u64,
        /// Seconds since 1970; 0 while running.
        pub end_time_s: u64,
        /// Allocated bytes at the start.
        pub to_examine_bytes: u64,
        /// Bytes found so far.
        pub examined_bytes: u64,
        /// Of these, not read.
        pub skipped_bytes: u64,
        /// Bytes repaired or resilvered.
        pub processed_bytes: u64,
        /// Errors found.
        pub errors: u64,
        /// Dedup classes up to this one are scanned through their tables.
        pub ddt_class_max: u64,
        /// Position in the dedup tables.
        pub ddt_bookmark: DdtBookmark,
        /// Position in the tree.
        pub bookmark: BlockBookmark,
        /// `DSF_*`.
        pub flags: u64,
    }
}

const _: () = {
    assert!(offset_of::<ScanPhys>("ddt_bookmark") == 120);
    assert!(offset_of::<ScanPhys>("bookmark") == 152);
    assert!(offset_of::<ScanPhys>("flags") == 184);
};

impl ScanPhys {
    /// Whether this is a scrub.
    pub fn is_scrub(&self) -> bool {
        ScanFunc::from(self.func) == ScanFunc::Scrub
    }

    /// Whether this is a resilver.
    pub fn is_resilver(&self) -> bool {
        ScanFunc::from(self.func) == ScanFunc::Resilver
    }

    /// Whether it is in progress or paused.
    pub fn is_running(&self) -> bool {
        ScanState::from(self.state) == ScanState::Scanning
    }

    /// Whether `zpool scrub -p` paused it.
    pub fn is_paused(&self) -> bool {
        self.flags & DSF_SCRUB_PAUSED != 0
    }

    /// Whether this is a scrub that also decrypts and decompresses.
    pub fn is_thorough(&self) -> bool {
        self.is_scrub() && self.flags & DSF_SCRUB_THOROUGH != 0
    }
}

word_struct! {
    /// Last or running error scrub, `dsl_errorscrub_phys_t`, in the MOS directory.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct ErrorScrubPhys("error scrub", bytes: 72, required: all) {
        /// A `ScanFunc`.
        pub func: u64,
        /// A `ScanState`.
        pub state: u64,
        /// Position in the error log.
        pub cursor: u64,
        /// Seconds since 1970.
        pub start_time_s: u64,
        /// Seconds since 1970.
        pub end_time_s: u64,
        /// Blocks to scrub.
        pub to_examine: u64,
        /// Blocks scrubbed.
        pub examined: u64,
        /// Errors found.
        pub errors: u64,
        /// Nonzero if paused.
        pub paused: u64,
    }
}

impl ErrorScrubPhys {
    /// Whether it is in progress or paused.
    pub fn is_running(&self) -> bool {
        ScanState::from(self.state) == ScanState::ErrorScrubbing
    }

    /// Whether `zpool scrub -p` paused it.
    pub fn is_paused(&self) -> bool {
        self.paused != 0
    }
}

/// "No vdev" in a `RemovingPhys`.
pub const NO_VDEV: VdevId = VdevId(u64::MAX);

word_struct! {
    /// Last or running removal of a top-level vdev, `spa_removing_phys_t`, in the MOS directory.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct RemovingPhys("removal", bytes: 56, required: all) {
        /// A `ScanState`.
        pub state: u64,
        /// Vdev of the current or last attempt; `NO_VDEV` if none.
        pub removing_vdev: VdevId,
        /// Last removed vdev, head of the indirect chain; `NO_VDEV` if none.
        pub prev_indirect_vdev: VdevId,
        /// Seconds since 1970.
        pub start_time_s: u64,
        /// Seconds since 1970.
        pub end_time_s: u64,
        /// Bytes to copy.
        pub to_copy_bytes: u64,
        /// Bytes copied, or freed meanwhile.
        pub copied_bytes: u64,
    }
}

word_struct! {
    /// Last or running sequential rebuild of a mirror or dRAID, `vdev_rebuild_phys_t`, in the vdev's ZAP.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct RebuildPhys("rebuild", bytes: 96, required: all) {
        /// A `VdevWorkState` (`of_rebuild`).
        pub state: u64,
        /// Rebuilt up to this offset.
        pub last_offset_bytes: u64,
        /// First missing txg.
        pub min_txg: Txg,
        /// Last missing txg.
        pub max_txg: Txg,
        /// Seconds since 1970.
        pub start_time_s: u64,
        /// Seconds since 1970.
        pub end_time_s: u64,
        /// Run time in milliseconds.
        pub scan_time_ms: u64,
        /// Allocated bytes found so far.
        pub scanned_bytes: u64,
        /// Bytes read.
        pub issued_bytes: u64,
        /// Bytes rebuilt.
        pub rebuilt_bytes: u64,
        /// Total bytes.
        pub estimated_bytes: u64,
        /// Errors.
        pub errors: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Phys, check_phys};

    #[test]
    fn sizes_are_those_of_the_disk_and_words_come_back() {
        check_phys::<ScanPhys>();
        check_phys::<ErrorScrubPhys>();
        check_phys::<RemovingPhys>();
        check_phys::<RebuildPhys>();
    }

    #[test]
    fn a_finished_scrub_reads_as_it_lies_on_disk() {
        let mut words = [0; 24];
        (words[0], words[1], words[12], words[13], words[23]) = (1, 2, 4096, 3, 2);
        let scan = ScanPhys::from_words(&words).unwrap();
        assert_eq!(
            (ScanFunc::from(scan.func), ScanState::from(scan.state)),
            (ScanFunc::Scrub, ScanState::Finished)
        );
        assert_eq!((scan.processed_bytes, scan.errors, scan.is_paused()), (4096, 3, true));
        assert_eq!(VdevWorkState::of_rebuild(3), VdevWorkState::of_leaf(4));
    }
}
