//! Feature flags and versions that a reader or writer of a pool or file system must support.
//!
//! Idea: up to 28, the pool version implies the format. Version 5000 instead keeps MOS ZAPs of feature guid
//! to reference count. A reader must know every feature in `features_for_read`; a writer also those in
//! `features_for_write`. A count above zero means active, zero enabled. The labels repeat the features needed
//! to open the MOS.
//!
//! Source: OpenZFS `zfeature_common.c`, `zfeature_common.h`, `fs/zfs.h` (`SPA_VERSION_*`, `ZPL_VERSION_*`).

/// Pool version with feature flags, `SPA_VERSION_FEATURES`.
pub const SPA_VERSION_FEATURES: u64 = 5000;
/// Last version before feature flags, `SPA_VERSION_BEFORE_FEATURES`.
pub const SPA_VERSION_BEFORE_FEATURES: u64 = 28;
/// Newest file system version, `ZPL_VERSION`.
pub const ZPL_VERSION: u64 = 5;

/// Whether the pool version exists, `SPA_VERSION_IS_SUPPORTED`.
pub fn spa_version_is_known(version: u64) -> bool {
    (1..=SPA_VERSION_BEFORE_FEATURES).contains(&version) || version == SPA_VERSION_FEATURES
}

/// Pool versions by the property they introduced, `SPA_VERSION_*`. All version checks of old pools go through
/// here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Since {
    /// Oldest pools that Cenote changes: heads know their unique space (`UNIQUE_ACCURATE`).
    Unique = 9,
    /// Everything descends from `$ORIGIN`, and snapshots know their clones (`ORIGIN`, `NEXT_CLONES`).
    Origin = 11,
    /// Snapshots have properties (`SNAP_PROPS`).
    SnapshotProperties = 12,
    /// Directories break down their used space (`USED_BREAKDOWN`).
    UsedBreakdown = 13,
    /// User and group accounting (`USERSPACE`).
    Userspace = 15,
    /// Snapshot holds (`USERREFS`).
    Holds = 18,
    /// `compression=zle` (`ZLE_COMPRESSION`).
    Zle = 20,
    /// Deduplication (`DEDUP`).
    Dedup = 21,
    /// Log blocks start with their checksum (`SLIM_ZIL`).
    SlimLog = 23,
    /// System attributes (`SA`).
    Attributes = 24,
    /// Deadlists are sorted by birth, and directories know their clones (`DEADLISTS`, `DIR_CLONES`).
    Deadlists = 26,
}

impl Since {
    /// Whether that version has it.
    pub fn is_in(self, version: u64) -> bool {
        version >= self as u64
    }
}

/// Newest file system version in a pool of this version, `zfs_zpl_version_map`.
pub fn zpl_version_of(spa_version: u64) -> u64 {
    match spa_version {
        version if Since::Attributes.is_in(version) => ZPL_VERSION,
        version if Since::Userspace.is_in(version) => 4,
        version if Since::Unique.is_in(version) => 3,
        _ => 2,
    }
}

/// Oldest version of a pool that may have file systems of this version, `zfs_spa_version_map`.
pub fn spa_version_for(zpl_version: u64) -> u64 {
    match zpl_version {
        0..=2 => 1,
        3 => Since::Unique as u64,
        4 => Since::Userspace as u64,
        _ => Since::Attributes as u64,
    }
}

/// Type of a per-dataset feature field, `zfeature_type_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureType {
    /// Present or not.
    Boolean,
    /// Words (snapshot guids).
    U64Array,
}

/// What a program does with pools in which a feature is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It reads and writes them.
    ReadsAndWrites,
    /// It opens them read-only.
    Reads,
    /// It refuses them.
    Refuses,
}

/// Feature, `zfeature_info_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Key in the feature ZAPs.
    pub guid: &'static str,
    /// Name after `feature@`.
    pub name: &'static str,
    /// Short description.
    pub description: &'static str,
    /// Programs without it can still read the pool.
    pub readonly_compatible: bool,
    /// Needed to open the MOS, so repeated in the labels.
    pub mos: bool,
    /// Active once enabled.
    pub activate_on_enable: bool,
    /// Using datasets have a field for it.
    pub per_dataset: bool,
    /// Type of that field.
    pub value_type: FeatureType,
    /// Prerequisites.
    pub depends: &'static [&'static str],
    /// Cause of activation: "active from the first ... on".
    pub first_use: &'static str,
    /// `zpool upgrade` enables it only if the compatibility set lists it.
    pub no_upgrade: bool,
}

const RO: u8 = 1 << 0;
const MOS: u8 = 1 << 1;
const ACTIVATE: u8 = 1 << 2;
const DATASET: u8 = 1 << 3;
const NO_UPGRADE: u8 = 1 << 4;

const EXT: &str = "extensible_dataset";

/// Table row: organization, name, flags, dependencies, description, first use.
const fn feature(
    guid: &'static str,
    name: &'static str,
    flags: u8,
    depends: &'static [&'static str],
    description: &'static str,
    first_use: &'static str,
) -> Feature {
    Feature {
        guid,
        name,
        description,
        readonly_compatible: flags & RO != 0,
        mos: flags & MOS != 0,
        activate_on_enable: flags & ACTIVATE != 0,
        per_dataset: flags & DATASET != 0,
        value_type: FeatureType::Boolean,
        depends,
        first_use,
        no_upgrade: flags & NO_UPGRADE != 0,
    }
}

/// All features of OpenZFS 2.4, in the order of `zpool get all`. Cenote reads, writes and creates pools with
/// all.
#[rustfmt::skip]
pub static SPA_FEATURES: [Feature; 47] = [
    feature("com.delphix:async_destroy", "async_destroy", RO, &[],
        "datasets are destroyed in the background",
        "destroyed dataset, until its blocks are freed"),
    feature("com.delphix:empty_bpobj", "empty_bpobj", RO, &[],
        "all empty block lists share one object",
        "list of blocks that is empty"),
    feature("org.illumos:lz4_compress", "lz4_compress", ACTIVATE, &[],
        "LZ4 compression",
        "txg after it is enabled"),
    feature("com.joyent:multi_vdev_crash_dump", "multi_vdev_crash_dump", 0, &[],
        "crash dumps to volumes on several vdevs",
        "crash dump volume"),
    feature("com.delphix:spacemap_histogram", "spacemap_histogram", RO, &[],
        "space maps count free ranges by size",
        "space map"),
    feature("com.delphix:enabled_txg", "enabled_txg", RO, &[],
        "records the txg in which a feature was enabled",
        "feature that is enabled after it"),
    feature("com.delphix:hole_birth", "hole_birth", MOS | ACTIVATE, &["enabled_txg"],
        "holes record the txg in which they were made",
        "txg after it is enabled"),
    feature("com.delphix:extensible_dataset", EXT, 0, &[],
        "datasets and directories may have more fields",
        "dataset or directory with a field"),
    feature("com.delphix:embedded_data", "embedded_data", MOS | ACTIVATE, &[],
        "tiny blocks are stored in their block pointer",
        "txg after it is enabled"),
    feature("com.delphix:bookmarks", "bookmarks", RO, &[EXT],
        "bookmarks of snapshots",
        "bookmark"),
    feature("com.joyent:filesystem_limits", "filesystem_limits", RO, &[EXT],
        "limits on the number of file systems and snapshots",
        "limit that is set"),
    feature("org.open-zfs:large_blocks", "large_blocks", DATASET, &[EXT],
        "blocks of more than 128 KiB",
        "dataset with such blocks"),
    feature("org.zfsonlinux:large_dnode", "large_dnode", DATASET, &[EXT],
        "dnodes of more than 512 bytes",
        "dataset with such dnodes"),
    feature("org.illumos:sha512", "sha512", DATASET, &[EXT],
        "SHA-512/256 checksums",
        "dataset with such checksums"),
    feature("org.illumos:skein", "skein", DATASET, &[EXT],
        "Skein checksums",
        "dataset with such checksums"),
    feature("org.illumos:edonr", "edonr", DATASET, &[EXT],
        "Edon-R checksums",
        "dataset with such checksums"),
    feature("org.zfsonlinux:userobj_accounting", "userobj_accounting", RO | DATASET, &[EXT],
        "objects are counted by user and group",
        "file system"),
    feature("com.datto:encryption", "encryption", DATASET, &[EXT, "bookmark_v2"],
        "encrypted datasets",
        "encrypted dataset"),
    feature("org.zfsonlinux:project_quota", "project_quota", RO | DATASET, &[EXT],
        "space and objects are counted by project",
        "file system"),
    feature("com.delphix:device_removal", "device_removal", MOS, &[],
        "top-level vdevs can be removed",
        "removal of a vdev"),
    feature("com.delphix:obsolete_counts", "obsolete_counts", RO, &[EXT, "device_removal"],
        "mappings of removed vdevs shrink as blocks are freed",
        "removal of a vdev"),
    feature("com.delphix:zpool_checkpoint", "zpool_checkpoint", RO, &[],
        "the pool's state can be kept, to rewind to it",
        "checkpoint, until it is discarded"),
    feature("com.delphix:spacemap_v2", "spacemap_v2", RO | ACTIVATE, &[],
        "space map entries for long ranges",
        "txg after it is enabled"),
    feature("org.zfsonlinux:allocation_classes", "allocation_classes", RO, &[],
        "special and dedup vdevs",
        "special or dedup vdev"),
    feature("com.datto:resilver_defer", "resilver_defer", RO, &[],
        "new resilvers wait for the one in progress",
        "resilver that waits, until it is done"),
    feature("com.datto:bookmark_v2", "bookmark_v2", 0, &[EXT, "bookmarks"],
        "bookmarks with more fields",
        "bookmark of an encrypted dataset"),
    feature("com.delphix:redaction_bookmarks", "redaction_bookmarks", 0, &["bookmark_v2", EXT, "bookmarks"],
        "bookmarks that list the blocks left out of a redacted send",
        "redaction bookmark"),
    Feature {
        value_type: FeatureType::U64Array,
        ..feature("com.delphix:redacted_datasets", "redacted_datasets", DATASET, &[EXT],
        "datasets received from a redacted send",
        "redacted dataset")
    },
    feature("com.delphix:bookmark_written", "bookmark_written", 0, &["bookmark_v2", EXT, "bookmarks"],
        "reports the space written since a bookmark",
        "bookmark"),
    feature("com.delphix:log_spacemap", "log_spacemap", RO, &["spacemap_v2"],
        "one log of space changes for all metaslabs",
        "txg after it is enabled"),
    feature("com.delphix:livelist", "livelist", RO, &[EXT],
        "clones list their own blocks, for faster deletion",
        "clone"),
    feature("org.openzfs:device_rebuild", "device_rebuild", RO, &[],
        "sequential rebuild of mirrors and dRAID",
        "sequential rebuild, until it is done"),
    feature("org.freebsd:zstd_compress", "zstd_compress", DATASET, &[EXT],
        "Zstandard compression",
        "dataset with compression=zstd"),
    feature("org.openzfs:draid", "draid", MOS, &[],
        "RAID with distributed spares",
        "dRAID vdev"),
    feature("org.openzfs:zilsaxattr", "zilsaxattr", RO | DATASET, &[EXT],
        "extended attributes in system attributes are logged",
        "intent log of a file system with xattr=sa"),
    feature("com.delphix:head_errlog", "head_errlog", ACTIVATE, &[],
        "error logs by head dataset",
        "txg after it is enabled"),
    feature("org.openzfs:blake3", "blake3", DATASET, &[EXT],
        "BLAKE3 checksums",
        "dataset with such checksums"),
    feature("com.fudosecurity:block_cloning", "block_cloning", RO, &[],
        "files may share blocks, counted in a table",
        "cloned block, until none is left"),
    feature("com.klarasystems:vdev_zaps_v2", "vdev_zaps_v2", MOS, &[],
        "the root vdev has a ZAP of its own",
        "import after it is enabled"),
    feature("com.delphix:redaction_list_spill", "redaction_list_spill", 0, &["redaction_bookmarks"],
        "redaction lists for more snapshots",
        "redaction list of many snapshots"),
    feature("org.openzfs:raidz_expansion", "raidz_expansion", MOS, &[],
        "disks can be added to RAID-Z",
        "expansion of a RAID-Z"),
    feature("com.klarasystems:fast_dedup", "fast_dedup", RO, &[],
        "flat dedup tables with a log",
        "deduplication table"),
    feature("org.zfsonlinux:longname", "longname", DATASET, &[EXT],
        "file names of up to 1023 bytes",
        "file system with longname=on"),
    feature("com.klarasystems:large_microzap", "large_microzap", RO | DATASET, &[EXT, "large_blocks"],
        "micro ZAPs of more than 128 KiB",
        "micro ZAP of that size"),
    feature("com.klarasystems:dynamic_gang_header", "dynamic_gang_header", MOS | NO_UPGRADE, &[],
        "headers of gang blocks fill a sector",
        "gang block that has more pieces than an old header"),
    feature("com.truenas:block_cloning_endian", "block_cloning_endian", RO, &[],
        "counts of cloned blocks do not depend on the machine",
        "cloned block, if none was cloned before"),
    feature("com.truenas:physical_rewrite", "physical_rewrite", RO | DATASET, &[EXT],
        "rewritten blocks keep the birth of their content",
        "dataset with blocks of zfs rewrite -P"),
];

/// Number of leading features that OpenZFS 2.3 has; 2.4 added the rest.
pub const FEATURES_OF_2_3: usize = 44;

/// Features newer than OpenZFS 2.4 that are read but not written: pools that use them are opened read-only.
#[rustfmt::skip]
static READ_FEATURES: [Feature; 1] = [
    feature("com.seagate:draid_failure_domains", "draid_failure_domains", MOS, &["draid"],
        "dRAID that survives the loss of an enclosure, of OpenZFS after 2.4",
        "dRAID vdev with failure domains"),
];

/// Features newer than OpenZFS 2.4 that are not known. Pools that use them are refused, and the message names
/// the feature.
#[rustfmt::skip]
static LATER_FEATURES: [Feature; 1] = [
    feature("com.klarasystems:anyraid", "anyraid", MOS, &[],
        "AnyRAID, vdevs of disks of different sizes, of OpenZFS after 2.4",
        "AnyRAID vdev"),
];

impl Feature {
    /// Features of OpenZFS after 2.4.
    pub fn later() -> impl Iterator<Item = &'static Feature> {
        READ_FEATURES.iter().chain(&LATER_FEATURES)
    }

    /// Cenote's support of pools in which it is active.
    pub fn support(&self) -> Support {
        match Feature::is_readable(self.guid) {
            _ if Feature::by_guid(self.guid).is_some() => Support::ReadsAndWrites,
            false if !self.readonly_compatible => Support::Refuses,
            true | false => Support::Reads,
        }
    }

    /// Feature newer than OpenZFS 2.4, which Cenote does not write, for the message.
    pub fn of_later_version(guid: &str) -> Option<&'static Feature> {
        Feature::later().find(|f| f.guid == guid)
    }

    /// Whether pools that use the feature can be read: Cenote writes it, or at least knows it.
    pub fn is_readable(guid: &str) -> bool {
        SPA_FEATURES.iter().chain(&READ_FEATURES).any(|f| f.guid == guid)
    }

    /// Finds a feature.
    pub fn by_guid(guid: &str) -> Option<&'static Feature> {
        SPA_FEATURES.iter().find(|f| f.guid == guid)
    }

    /// Finds a feature; the name excludes `feature@`.
    pub fn by_name(name: &str) -> Option<&'static Feature> {
        SPA_FEATURES.iter().find(|f| f.name == name)
    }
}

/// Description of each pool version, from 1.
pub static SPA_VERSIONS: [&str; 28] = [
    "first version",
    "ditto blocks: metadata in several copies",
    "hot spares and double-parity RAID-Z",
    "zpool history",
    "gzip compression",
    "pool property bootfs",
    "separate intent log devices",
    "delegated administration",
    "refquota and refreservation",
    "cache devices",
    "faster scrub",
    "snapshot properties",
    "space usage of snapshots",
    "ACL inheritance passthrough-x",
    "space accounting by user and group",
    "property of the SCSI target framework",
    "triple-parity RAID-Z",
    "holds on snapshots",
    "removal of log devices",
    "zle compression",
    "deduplication",
    "received properties",
    "slim intent log",
    "system attributes",
    "scrub statistics",
    "faster deletion of snapshots",
    "faster creation of snapshots",
    "replacement of several vdevs at once",
];

/// Description of each file system version, from 1, as `zfs upgrade -v` has it.
pub static ZPL_VERSIONS: [&str; 5] = [
    "Initial ZFS filesystem version",
    "Enhanced directory entries",
    "Case insensitive and filesystem user identifier (FUID)",
    "userquota, groupquota properties",
    "System attributes",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_and_names_are_unique_and_dependencies_exist() {
        for (i, feature) in SPA_FEATURES.iter().enumerate() {
            assert_eq!(Feature::by_guid(feature.guid), Some(feature));
            assert_eq!(Feature::by_name(feature.name), Some(feature));
            assert!(SPA_FEATURES[i + 1..].iter().all(|f| f.guid != feature.guid && f.name != feature.name));
            for name in feature.depends {
                assert!(Feature::by_name(name).is_some(), "{} needs {name}", feature.name);
            }
        }
        assert!(Feature::by_guid("com.example:none").is_none());
    }

    #[test]
    fn versions_of_pools_and_file_systems_fit() {
        for (zpl, spa) in [(1, 1), (2, 1), (3, 9), (4, 15), (5, 24)] {
            assert_eq!(spa_version_for(zpl), spa);
            assert!(zpl_version_of(spa) >= zpl, "{zpl}");
            assert!(spa == 1 || zpl_version_of(spa - 1) < zpl, "{zpl}");
        }
    }

    #[test]
    fn flags_are_those_of_openzfs() {
        let encryption = Feature::by_name("encryption").unwrap();
        assert!(!encryption.readonly_compatible && encryption.per_dataset && !encryption.mos);
        let hole_birth = Feature::by_guid("com.delphix:hole_birth").unwrap();
        assert!(hole_birth.mos && hole_birth.activate_on_enable);
        assert_eq!(SPA_FEATURES.iter().filter(|f| f.readonly_compatible).count(), 22);
        assert_eq!(SPA_FEATURES.iter().filter(|f| f.mos).count(), 7);
        let not_upgraded: Vec<&str> = SPA_FEATURES.iter().filter(|f| f.no_upgrade).map(|f| f.name).collect();
        assert_eq!(not_upgraded, ["dynamic_gang_header"]);
        assert_eq!(SPA_FEATURES[FEATURES_OF_2_3].name, "dynamic_gang_header", "the first of 2.4");
        assert!(SPA_FEATURES.iter().all(|f| Feature::of_later_version(f.guid).is_none()));
        assert!(SPA_FEATURES.iter().all(|f| Feature::is_readable(f.guid)));
        let later = ["com.seagate:draid_failure_domains", "com.klarasystems:anyraid", "com.example:none"];
        assert_eq!(later.map(Feature::is_readable), [true, false, false]);
        assert!(later.iter().all(|guid| Feature::by_guid(guid).is_none()), "none of them is written");
    }

    #[test]
    fn only_versions_that_exist_are_known() {
        let known = [1, 28, 5000].map(spa_version_is_known);
        let unknown = [0, 29, 4999, 5001].map(spa_version_is_known);
        assert_eq!((known, unknown), ([true; 3], [false; 4]));
    }
}
