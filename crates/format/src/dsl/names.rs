//! Key names in the MOS's ZAPs.
//!
//! Source: OpenZFS `dmu.h` (`DMU_POOL_*`), `dsl_dir.h` (`DD_FIELD_*`), `dsl_dataset.h` (`DS_FIELD_*`),
//! `dsl_crypt.h` (`DSL_CRYPTO_KEY_*`), `fs/zfs.h` (`VDEV_*_ZAP_*`).

use crate::units::ObjectId;

/// MOS object directory, `DMU_POOL_DIRECTORY_OBJECT`: a ZAP of `DMU_POOL_*` names.
pub const DMU_POOL_DIRECTORY_OBJECT: ObjectId = ObjectId(1);

/// Object directory keys. Values are object numbers unless noted.
pub mod pool {
    /// Packed nvlist: pool configuration.
    pub const CONFIG: &str = "config";
    /// ZAP, feature guid to refcount: needed to write.
    pub const FEATURES_FOR_WRITE: &str = "features_for_write";
    /// ZAP, feature guid to refcount: needed to read.
    pub const FEATURES_FOR_READ: &str = "features_for_read";
    /// ZAP, feature guid to description.
    pub const FEATURE_DESCRIPTIONS: &str = "feature_descriptions";
    /// ZAP, feature guid to enabling txg.
    pub const FEATURE_ENABLED_TXG: &str = "feature_enabled_txg";
    /// Root `dsl_dir`.
    pub const ROOT_DATASET: &str = "root_dataset";
    /// Blocks to free at the next sync.
    pub const SYNC_BPOBJ: &str = "sync_bplist";
    /// Error log of the running scrub.
    pub const ERRLOG_SCRUB: &str = "errlog_scrub";
    /// Error log of the last complete scrub.
    pub const ERRLOG_LAST: &str = "errlog_last";
    /// Packed nvlist: spares.
    pub const SPARES: &str = "spares";
    /// Number: 1 if accounting excludes RAID-Z parity.
    pub const DEFLATE: &str = "deflate";
    /// Command history ring.
    pub const HISTORY: &str = "history";
    /// ZAP: pool properties.
    pub const PROPS: &str = "pool_props";
    /// Packed nvlist: cache devices.
    pub const L2CACHE: &str = "l2cache";
    /// ZAP: temporary holds, `OBJECT-TAG` (object in hex) to seconds.
    pub const TMP_USERREFS: &str = "tmp_userrefs";
    /// ZAP: dedup statistics.
    pub const DDT_STATS: &str = "DDT-statistics";
    /// Number: pool version at creation.
    pub const CREATION_VERSION: &str = "creation_version";
    /// Words: `dsl_scan_phys_t`.
    pub const SCAN: &str = "scan";
    /// Words: `dsl_errorscrub_phys_t`.
    pub const ERRORSCRUB: &str = "error_scrub";
    /// Number: last scrubbed txg.
    pub const LAST_SCRUBBED_TXG: &str = "last_scrubbed_txg";
    /// Words: `rrd_t`, times of txgs less than a day apart.
    pub const TXG_LOG_TIME_MINUTES: &str = "com.klarasystems:txg_log_time:minutes";
    /// Words: `rrd_t`, times of txgs a day apart.
    pub const TXG_LOG_TIME_DAYS: &str = "com.klarasystems:txg_log_time:days";
    /// Words: `rrd_t`, times of txgs 30 days apart.
    pub const TXG_LOG_TIME_MONTHS: &str = "com.klarasystems:txg_log_time:months";
    /// Blocks waiting to be freed.
    pub const FREE_BPOBJ: &str = "free_bpobj";
    /// Datasets destroyed in the background (`bptree`).
    pub const BPTREE_OBJ: &str = "bptree_obj";
    /// Shared empty bpobj.
    pub const EMPTY_BPOBJ: &str = "empty_bpobj";
    /// 32 bytes: salt of Skein, Edon-R and BLAKE3 checksums.
    pub const CHECKSUM_SALT: &str = "org.illumos:checksum_salt";
    /// ZAP: all vdev ZAPs.
    pub const VDEV_ZAP_MAP: &str = "com.delphix:vdev_zap_map";
    /// Words: `spa_removing_phys_t`.
    pub const REMOVING: &str = "com.delphix:removing";
    /// Dead blocks of removed vdevs.
    pub const OBSOLETE_BPOBJ: &str = "com.delphix:obsolete_bpobj";
    /// Words: `spa_condensing_indirect_phys_t`.
    pub const CONDENSING_INDIRECT: &str = "com.delphix:condensing_indirect";
    /// Uberblock of the checkpoint.
    pub const ZPOOL_CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
    /// ZAP, hexadecimal txg to log space map.
    pub const LOG_SPACEMAP_ZAP: &str = "com.delphix:log_spacemap_zap";
    /// ZAP: livelists of destroyed clones.
    pub const DELETED_CLONES: &str = "com.delphix:deleted_clones";
}

/// Extended `dsl_dir` fields, `DD_FIELD_*`.
pub mod dir_field {
    /// File systems here and below.
    pub const FILESYSTEM_COUNT: &str = "com.joyent:filesystem_count";
    /// Snapshots here and below.
    pub const SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";
    /// Encryption key object.
    pub const CRYPTO_KEY_OBJ: &str = "com.datto:crypto_key_obj";
    /// Deadlist-shaped: blocks that a clone allocated or freed.
    pub const LIVELIST: &str = "com.delphix:livelist";
    /// Seconds, nanoseconds: last change of the snapshots.
    pub const SNAPSHOTS_CHANGED: &str = "com.ixsystems:snapshots_changed";
}

/// Extended `dsl_dataset` fields, `DS_FIELD_*`. The guid of a feature that the dataset uses is also a field.
pub mod dataset_field {
    /// ZAP, bookmark name to `zfs_bookmark_phys_t`.
    pub const BOOKMARK_NAMES: &str = "com.delphix:bookmarks";
    /// Present if dnodes may exceed 512 bytes.
    pub const LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";
    /// Interrupted receive: guid of the incremental source.
    pub const RESUME_FROMGUID: &str = "com.delphix:resume_fromguid";
    /// Name of the incoming snapshot.
    pub const RESUME_TONAME: &str = "com.delphix:resume_toname";
    /// Guid of the incoming snapshot.
    pub const RESUME_TOGUID: &str = "com.delphix:resume_toguid";
    /// Object to resume at.
    pub const RESUME_OBJECT: &str = "com.delphix:resume_object";
    /// Offset to resume at.
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
    /// Snapshot guids of the redaction bookmark.
    pub const RESUME_REDACT_BOOKMARK_SNAPS: &str = "com.delphix:resume_redact_book_snaps";
    /// Bpobj: blocks moved off a removed vdev.
    pub const REMAP_DEADLIST: &str = "com.delphix:remap_deadlist";
    /// IV set of an encrypted snapshot.
    pub const IVSET_GUID: &str = "com.datto:ivset_guid";
}

/// `DSL_CRYPTO_KEY_*` keys of the key ZAP, and the properties stored there.
pub mod crypto_key {
    /// Number: cipher, `enum zio_encrypt`.
    pub const CRYPTO_SUITE: &str = "DSL_CRYPTO_SUITE";
    /// Number: key guid, covered by its MAC.
    pub const GUID: &str = "DSL_CRYPTO_GUID";
    /// 12 bytes: IV of the wrapped keys.
    pub const IV: &str = "DSL_CRYPTO_IV";
    /// 16 bytes: MAC of the wrapped keys.
    pub const MAC: &str = "DSL_CRYPTO_MAC";
    /// 32 bytes, used up to the cipher's key size: wrapped master key.
    pub const MASTER_KEY: &str = "DSL_CRYPTO_MASTER_KEY_1";
    /// 64 bytes: the wrapped HMAC key.
    pub const HMAC_KEY: &str = "DSL_CRYPTO_HMAC_KEY_1";
    /// Number: `dsl_dir` of the encryption root.
    pub const ROOT_DDOBJ: &str = "DSL_CRYPTO_ROOT_DDOBJ";
    /// Number: directories using this key.
    pub const REFCOUNT: &str = "DSL_CRYPTO_REFCOUNT";
    /// Number: 1 if the authenticated data include suite and version; else 0.
    pub const VERSION: &str = "DSL_CRYPTO_VERSION";
    /// Number: property `keyformat`.
    pub const KEYFORMAT: &str = "keyformat";
    /// Number: property `pbkdf2salt`.
    pub const PBKDF2_SALT: &str = "pbkdf2salt";
    /// Number: property `pbkdf2iters`.
    pub const PBKDF2_ITERS: &str = "pbkdf2iters";
}

/// Keys of vdev ZAPs (`VDEV_TOP_ZAP_*`, `VDEV_LEAF_ZAP_*`).
pub mod vdev_zap {
    /// Space map: obsolete ranges of an indirect vdev.
    pub const INDIRECT_OBSOLETE_SM: &str = "com.delphix:indirect_obsolete_sm";
    /// Number: 1 if obsolete counts are exact.
    pub const OBSOLETE_COUNTS_ARE_PRECISE: &str = "com.delphix:obsolete_counts_are_precise";
    /// Space map: freed since, but held by the checkpoint.
    pub const POOL_CHECKPOINT_SM: &str = "com.delphix:pool_checkpoint_sm";
    /// Array of `metaslab_unflushed_phys_t`.
    pub const MS_UNFLUSHED_PHYS_TXGS: &str = "com.delphix:ms_unflushed_phys_txgs";
    /// Words: `vdev_rebuild_phys_t`.
    pub const VDEV_REBUILD_PHYS: &str = "org.openzfs:vdev_rebuild";
    /// Text: `log`, `special` or `dedup`.
    pub const ALLOCATION_BIAS: &str = "org.zfsonlinux:allocation_bias";
    /// Number: expansion state, `dsl_scan_state_t`.
    pub const RAIDZ_EXPAND_STATE: &str = "org.openzfs:raidz_expand_state";
    /// Seconds since 1970.
    pub const RAIDZ_EXPAND_START_TIME: &str = "org.openzfs:raidz_expand_start_time";
    /// Seconds since 1970.
    pub const RAIDZ_EXPAND_END_TIME: &str = "org.openzfs:raidz_expand_end_time";
    /// Bytes moved.
    pub const RAIDZ_EXPAND_BYTES_COPIED: &str = "org.openzfs:raidz_expand_bytes_copied";
    /// Offset reached by `zpool initialize`.
    pub const INITIALIZE_LAST_OFFSET: &str = "com.delphix:next_offset_to_initialize";
    /// `vdev_initializing_state_t`.
    pub const INITIALIZE_STATE: &str = "com.delphix:vdev_initialize_state";
    /// Last change, seconds since 1970.
    pub const INITIALIZE_ACTION_TIME: &str = "com.delphix:vdev_initialize_action_time";
    /// Word that `zpool initialize` writes; of OpenZFS after 2.4, the default without it.
    pub const INITIALIZE_VALUE: &str = "org.openzfs:vdev_initialize_value";
    /// Offset reached by `zpool trim`.
    pub const TRIM_LAST_OFFSET: &str = "org.zfsonlinux:next_offset_to_trim";
    /// `vdev_trim_state_t`.
    pub const TRIM_STATE: &str = "org.zfsonlinux:vdev_trim_state";
    /// Last change, seconds since 1970.
    pub const TRIM_ACTION_TIME: &str = "org.zfsonlinux:vdev_trim_action_time";
    /// Bytes per second; 0 for no limit.
    pub const TRIM_RATE: &str = "org.zfsonlinux:vdev_trim_rate";
    /// Trim only never-trimmed ranges.
    pub const TRIM_PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
    /// Secure trim.
    pub const TRIM_SECURE: &str = "org.zfsonlinux:vdev_trim_secure";
}
