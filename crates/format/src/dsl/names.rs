//! The names of entries in the MOS's ZAPs.
//!
//! Source: OpenZFS `dmu.h` (`DMU_POOL_*`), `dsl_dir.h` (`DD_FIELD_*`), `dsl_dataset.h` (`DS_FIELD_*`),
//! `dsl_crypt.h` (`DSL_CRYPTO_KEY_*`), `fs/zfs.h` (`VDEV_*_ZAP_*`).

use crate::units::ObjectId;

/// The object directory of the MOS, `DMU_POOL_DIRECTORY_OBJECT`: a ZAP of the `DMU_POOL_*` names.
pub const DMU_POOL_DIRECTORY_OBJECT: ObjectId = ObjectId(1);

/// Keys of the object directory. Values are object numbers unless noted otherwise.
pub mod pool {
    /// Packed nvlist of the pool's configuration.
    pub const CONFIG: &str = "config";
    /// ZAP of feature guid to reference count: features that a writer must know.
    pub const FEATURES_FOR_WRITE: &str = "features_for_write";
    /// ZAP of feature guid to reference count: features that a reader must know.
    pub const FEATURES_FOR_READ: &str = "features_for_read";
    /// ZAP of feature guid to description.
    pub const FEATURE_DESCRIPTIONS: &str = "feature_descriptions";
    /// ZAP of feature guid to the txg in which it was enabled.
    pub const FEATURE_ENABLED_TXG: &str = "feature_enabled_txg";
    /// The root `dsl_dir`.
    pub const ROOT_DATASET: &str = "root_dataset";
    /// Block pointers to free at the next sync.
    pub const SYNC_BPOBJ: &str = "sync_bplist";
    /// Error log of the scrub in progress.
    pub const ERRLOG_SCRUB: &str = "errlog_scrub";
    /// Error log of the last complete scrub.
    pub const ERRLOG_LAST: &str = "errlog_last";
    /// Packed nvlist of spares.
    pub const SPARES: &str = "spares";
    /// Number: 1 if space is accounted net of RAID-Z parity.
    pub const DEFLATE: &str = "deflate";
    /// Ring of command history.
    pub const HISTORY: &str = "history";
    /// ZAP of pool properties.
    pub const PROPS: &str = "pool_props";
    /// Packed nvlist of cache devices.
    pub const L2CACHE: &str = "l2cache";
    /// ZAP of temporary holds, `OBJECT-TAG` (object in hex) to time in seconds.
    pub const TMP_USERREFS: &str = "tmp_userrefs";
    /// ZAP of dedup statistics.
    pub const DDT_STATS: &str = "DDT-statistics";
    /// Number: the version that the pool was created with.
    pub const CREATION_VERSION: &str = "creation_version";
    /// Words: `dsl_scan_phys_t`.
    pub const SCAN: &str = "scan";
    /// Words: `dsl_errorscrub_phys_t`.
    pub const ERRORSCRUB: &str = "error_scrub";
    /// Number: the txg up to which the last scrub verified.
    pub const LAST_SCRUBBED_TXG: &str = "last_scrubbed_txg";
    /// Block pointers waiting to be freed.
    pub const FREE_BPOBJ: &str = "free_bpobj";
    /// Datasets being destroyed in the background (`bptree`).
    pub const BPTREE_OBJ: &str = "bptree_obj";
    /// The one empty bpobj that all empty lists share.
    pub const EMPTY_BPOBJ: &str = "empty_bpobj";
    /// 32 bytes: the salt that keys Skein, Edon-R and BLAKE3 checksums.
    pub const CHECKSUM_SALT: &str = "org.illumos:checksum_salt";
    /// ZAP of all vdevs' ZAPs.
    pub const VDEV_ZAP_MAP: &str = "com.delphix:vdev_zap_map";
    /// Words: `spa_removing_phys_t`.
    pub const REMOVING: &str = "com.delphix:removing";
    /// Dead blocks of removed vdevs.
    pub const OBSOLETE_BPOBJ: &str = "com.delphix:obsolete_bpobj";
    /// Words: `spa_condensing_indirect_phys_t`.
    pub const CONDENSING_INDIRECT: &str = "com.delphix:condensing_indirect";
    /// Bytes of the checkpoint's uberblock.
    pub const ZPOOL_CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
    /// ZAP of txg (hexadecimal) to space map: log space maps.
    pub const LOG_SPACEMAP_ZAP: &str = "com.delphix:log_spacemap_zap";
    /// ZAP of livelists of destroyed clones.
    pub const DELETED_CLONES: &str = "com.delphix:deleted_clones";
}

/// Fields of an extended `dsl_dir`, `DD_FIELD_*`.
pub mod dir_field {
    /// Number of file systems here and below.
    pub const FILESYSTEM_COUNT: &str = "com.joyent:filesystem_count";
    /// Number of snapshots here and below.
    pub const SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";
    /// Object of the directory's encryption key.
    pub const CRYPTO_KEY_OBJ: &str = "com.datto:crypto_key_obj";
    /// Deadlist-shaped object: the blocks that a clone allocated or freed.
    pub const LIVELIST: &str = "com.delphix:livelist";
    /// Two words, seconds and nanoseconds: when a snapshot was last added or removed.
    pub const SNAPSHOTS_CHANGED: &str = "com.ixsystems:snapshots_changed";
}

/// Fields of an extended `dsl_dataset`, `DS_FIELD_*`. A feature in use by the dataset is also a
/// field, whose name is the feature's guid.
pub mod dataset_field {
    /// ZAP of bookmark name to `zfs_bookmark_phys_t`.
    pub const BOOKMARK_NAMES: &str = "com.delphix:bookmarks";
    /// Present if there may be dnodes of more than 512 bytes.
    pub const LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";
    /// Interrupted receive: guid of the snapshot it starts from.
    pub const RESUME_FROMGUID: &str = "com.delphix:resume_fromguid";
    /// Name of the snapshot being received.
    pub const RESUME_TONAME: &str = "com.delphix:resume_toname";
    /// Guid of the snapshot being received.
    pub const RESUME_TOGUID: &str = "com.delphix:resume_toguid";
    /// Object at which to resume.
    pub const RESUME_OBJECT: &str = "com.delphix:resume_object";
    /// Offset at which to resume.
    pub const RESUME_OFFSET: &str = "com.delphix:resume_offset";
    /// Bytes received so far.
    pub const RESUME_BYTES: &str = "com.delphix:resume_bytes";
    /// The stream has large blocks.
    pub const RESUME_LARGEBLOCK: &str = "com.delphix:resume_largeblockok";
    /// The stream has embedded blocks.
    pub const RESUME_EMBEDOK: &str = "com.delphix:resume_embedok";
    /// The stream has compressed blocks.
    pub const RESUME_COMPRESSOK: &str = "com.delphix:resume_compressok";
    /// The stream is raw.
    pub const RESUME_RAWOK: &str = "com.datto:resume_rawok";
    /// Guids of the snapshots that the redaction bookmark was made for.
    pub const RESUME_REDACT_BOOKMARK_SNAPS: &str = "com.delphix:resume_redact_book_snaps";
    /// Bpobj of blocks that were moved off a removed vdev.
    pub const REMAP_DEADLIST: &str = "com.delphix:remap_deadlist";
    /// Identifies the set of IVs of an encrypted snapshot.
    pub const IVSET_GUID: &str = "com.datto:ivset_guid";
}

/// Keys of a `DSL_CRYPTO_KEY` object, a ZAP: `DSL_CRYPTO_KEY_*`, and the properties kept with them.
pub mod crypto_key {
    /// Number: cipher, a value of `enum zio_encrypt`.
    pub const CRYPTO_SUITE: &str = "DSL_CRYPTO_SUITE";
    /// Number: the key's guid, which its MAC covers too.
    pub const GUID: &str = "DSL_CRYPTO_GUID";
    /// 12 bytes: IV of the wrapped keys.
    pub const IV: &str = "DSL_CRYPTO_IV";
    /// 16 bytes: MAC of the wrapped keys.
    pub const MAC: &str = "DSL_CRYPTO_MAC";
    /// 32 bytes, as many of them used as the cipher needs: the wrapped master key.
    pub const MASTER_KEY: &str = "DSL_CRYPTO_MASTER_KEY_1";
    /// 64 bytes: the wrapped HMAC key.
    pub const HMAC_KEY: &str = "DSL_CRYPTO_HMAC_KEY_1";
    /// Number: the `dsl_dir` of the encryption root.
    pub const ROOT_DDOBJ: &str = "DSL_CRYPTO_ROOT_DDOBJ";
    /// Number: directories that use this key.
    pub const REFCOUNT: &str = "DSL_CRYPTO_REFCOUNT";
    /// Number: 0 before the authenticated data held the suite and version, 1 since.
    pub const VERSION: &str = "DSL_CRYPTO_VERSION";
    /// Number: format of the user's key, property `keyformat`.
    pub const KEYFORMAT: &str = "keyformat";
    /// Number: property `pbkdf2salt`.
    pub const PBKDF2_SALT: &str = "pbkdf2salt";
    /// Number: property `pbkdf2iters`.
    pub const PBKDF2_ITERS: &str = "pbkdf2iters";
}

/// Keys of a vdev's own ZAPs (top-level: `VDEV_TOP_ZAP_*`; leaf: `VDEV_LEAF_ZAP_*`).
pub mod vdev_zap {
    /// Space map of obsolete ranges of an indirect vdev.
    pub const INDIRECT_OBSOLETE_SM: &str = "com.delphix:indirect_obsolete_sm";
    /// Number: 1 if the obsolete counts are exact.
    pub const OBSOLETE_COUNTS_ARE_PRECISE: &str = "com.delphix:obsolete_counts_are_precise";
    /// Space map of what the current tree has freed and the checkpoint still holds.
    pub const POOL_CHECKPOINT_SM: &str = "com.delphix:pool_checkpoint_sm";
    /// Object: an array of `metaslab_unflushed_phys_t`.
    pub const MS_UNFLUSHED_PHYS_TXGS: &str = "com.delphix:ms_unflushed_phys_txgs";
    /// Words: `vdev_rebuild_phys_t`.
    pub const VDEV_REBUILD_PHYS: &str = "org.openzfs:vdev_rebuild";
    /// Text: `log`, `special` or `dedup`.
    pub const ALLOCATION_BIAS: &str = "org.zfsonlinux:allocation_bias";
    /// Number: state of RAID-Z expansion, `dsl_scan_state_t`.
    pub const RAIDZ_EXPAND_STATE: &str = "org.openzfs:raidz_expand_state";
    /// Seconds since 1970.
    pub const RAIDZ_EXPAND_START_TIME: &str = "org.openzfs:raidz_expand_start_time";
    /// Seconds since 1970.
    pub const RAIDZ_EXPAND_END_TIME: &str = "org.openzfs:raidz_expand_end_time";
    /// Bytes moved by the expansion.
    pub const RAIDZ_EXPAND_BYTES_COPIED: &str = "org.openzfs:raidz_expand_bytes_copied";
    /// Offset up to which `zpool initialize` has written.
    pub const INITIALIZE_LAST_OFFSET: &str = "com.delphix:next_offset_to_initialize";
    /// State of initialization, `vdev_initializing_state_t`.
    pub const INITIALIZE_STATE: &str = "com.delphix:vdev_initialize_state";
    /// Seconds since 1970 of its last change.
    pub const INITIALIZE_ACTION_TIME: &str = "com.delphix:vdev_initialize_action_time";
    /// Offset up to which `zpool trim` has gone.
    pub const TRIM_LAST_OFFSET: &str = "org.zfsonlinux:next_offset_to_trim";
    /// State of trimming, `vdev_trim_state_t`.
    pub const TRIM_STATE: &str = "org.zfsonlinux:vdev_trim_state";
    /// Seconds since 1970 of its last change.
    pub const TRIM_ACTION_TIME: &str = "org.zfsonlinux:vdev_trim_action_time";
    /// Most bytes that trimming may do per second; 0 for no limit.
    pub const TRIM_RATE: &str = "org.zfsonlinux:vdev_trim_rate";
    /// Only ranges that were never trimmed are trimmed.
    pub const TRIM_PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
    /// Trimmed data must be unrecoverable.
    pub const TRIM_SECURE: &str = "org.zfsonlinux:vdev_trim_secure";
}
