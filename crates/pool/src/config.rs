//! The pool's configuration as typed values: what labels and the MOS say of the pool and its vdevs.
//!
//! Idea: the same nvlist comes from two places. A label describes the pool and *one* top-level vdev, as of
//! the txg when that vdev last changed; the MOS describes all of them, as of the uberblock's txg, and is
//! trusted. Both become a [`PoolConfig`], of which labels fill in what they know.
//!
//! Source: OpenZFS `spa_config_generate`, `vdev_config_generate`, `vdev_label.c` (theory comment).

pub(crate) mod decode;

pub use decode::vdev_list;

use cenote_format::units::{Guid, ObjectId, Txg, VdevId};

/// What the pool's last writer left it as, `pool_state_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolState {
    /// In use, or not exported cleanly.
    Active,
    /// Explicitly exported.
    Exported,
    /// Explicitly destroyed; still importable on request.
    Destroyed,
    /// The device is a hot spare.
    Spare,
    /// The device is a cache device.
    L2cache,
    /// Another number, or none.
    Other(u64),
}

impl From<u64> for PoolState {
    fn from(number: u64) -> Self {
        match number {
            0 => PoolState::Active,
            1 => PoolState::Exported,
            2 => PoolState::Destroyed,
            3 => PoolState::Spare,
            4 => PoolState::L2cache,
            other => PoolState::Other(other),
        }
    }
}

/// The kind of a vdev: its `type` string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VdevKind {
    /// The pool itself.
    Root,
    /// A block device.
    Disk,
    /// A regular file.
    File,
    /// Every child holds all.
    Mirror,
    /// An old and a new device, while the new one is filled.
    Replacing,
    /// A device and the hot spare that stands in for it.
    Spare,
    /// Striped with one to three parity columns of variable width.
    Raidz,
    /// Declustered RAID: fixed-width groups permuted over all children, spares distributed.
    Draid,
    /// A spare distributed over the children of a dRAID, `draid1-0-0`.
    DistributedSpare,
    /// A removed top-level vdev: its blocks were moved elsewhere.
    Indirect,
    /// A removed log: an empty place in the numbering.
    Hole,
    /// A top-level vdev that no label describes.
    Missing,
    /// A type this version does not know.
    Unknown,
}

/// The allocation class of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VdevClass {
    /// Data and, lacking better, everything.
    Normal,
    /// A separate intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Deduplication tables.
    Dedup,
}

/// The width of a dRAID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraidConfig {
    /// Data columns of a group.
    pub data: u64,
    /// Groups in a slice.
    pub groups: u64,
    /// Distributed spares.
    pub spares: u64,
}

/// A vdev as configured. Fields that a kind does not have are zero, empty or `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdevConfig {
    /// What it is.
    pub kind: VdevKind,
    /// Its `type` as spelled on disk, for messages about unknown ones.
    pub type_name: String,
    /// Index among its parent's children.
    pub id: u64,
    /// Its name for life.
    pub guid: Guid,
    /// Where it was last: `/dev/...` or a file.
    pub path: Option<String>,
    /// The host's name for the device that moves with it (`ata-...`).
    pub devid: Option<String>,
    /// Its place in the enclosure or on the bus.
    pub physical_path: Option<String>,
    /// ZFS was given the whole disk and made the partition.
    pub whole_disk: bool,
    /// log2 of its sector; set on top-level vdevs.
    pub ashift: u32,
    /// Usable bytes; set on top-level vdevs.
    pub asize_bytes: u64,
    /// The allocation class; set on top-level vdevs.
    pub class: VdevClass,
    /// Parity columns.
    pub parity: usize,
    /// The shape of a dRAID.
    pub draid: Option<DraidConfig>,
    /// Of a distributed spare: which of its dRAID's spares it is.
    pub spare_id: Option<u64>,
    /// When it was added.
    pub create_txg: Txg,
    /// Taken offline by the administrator.
    pub offline: bool,
    /// Faulted by the fault manager or the administrator.
    pub faulted: bool,
    /// Degraded by the fault manager.
    pub degraded: bool,
    /// Physically removed.
    pub removed: bool,
    /// Could not be opened when the configuration was written.
    pub not_present: bool,
    /// Not 0: being resilvered, complete for blocks born before this group only.
    pub resilver_txg: Txg,
    /// Groups in which a RAID-Z finished growing by one child, oldest first.
    pub raidz_expand_txgs: Vec<Txg>,
    /// A RAID-Z expansion is under way.
    pub raidz_expanding: bool,
    /// log2 of a metaslab's bytes.
    pub metaslab_shift: u32,
    /// The array of space maps.
    pub metaslab_array: ObjectId,
    /// The ZAP of a top-level vdev's own state (`com.delphix:vdev_zap_top`); 0: none.
    pub top_zap: ObjectId,
    /// The space map of groups that the leaf lacks.
    pub dtl: ObjectId,
    /// Of a removed vdev: where its blocks are now.
    pub indirect_object: ObjectId,
    /// Of a removed vdev: when they were moved.
    pub indirect_births: ObjectId,
    /// Of a removed vdev: the one removed before it.
    pub prev_indirect_vdev: Option<VdevId>,
    /// Its children, by `id`.
    pub children: Vec<VdevConfig>,
}

impl VdevConfig {
    /// A vdev of this kind with nothing known about it.
    pub fn new(kind: VdevKind, id: u64, guid: Guid) -> VdevConfig {
        VdevConfig {
            kind,
            type_name: String::new(),
            id,
            guid,
            path: None,
            devid: None,
            physical_path: None,
            whole_disk: false,
            ashift: 0,
            asize_bytes: 0,
            class: VdevClass::Normal,
            parity: 0,
            draid: None,
            spare_id: None,
            create_txg: Txg(0),
            offline: false,
            faulted: false,
            degraded: false,
            removed: false,
            not_present: false,
            resilver_txg: Txg(0),
            raidz_expand_txgs: Vec::new(),
            raidz_expanding: false,
            metaslab_shift: 0,
            metaslab_array: ObjectId(0),
            top_zap: ObjectId(0),
            dtl: ObjectId(0),
            indirect_object: ObjectId(0),
            indirect_births: ObjectId(0),
            prev_indirect_vdev: None,
            children: Vec::new(),
        }
    }

    /// Calls `visit` on this vdev and all below, parents first.
    pub fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a VdevConfig)) {
        visit(self);
        for child in &self.children {
            child.walk(visit);
        }
    }

    /// Holds bytes itself.
    pub fn is_leaf(&self) -> bool {
        matches!(self.kind, VdevKind::Disk | VdevKind::File | VdevKind::DistributedSpare)
    }
}

/// The pool as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Its name.
    pub name: String,
    /// Its name for life.
    pub guid: Guid,
    /// SPA version; 5000 with feature flags.
    pub version: u64,
    /// What its last writer left it as.
    pub state: PoolState,
    /// The group in which this was written.
    pub txg: Txg,
    /// The machine that had it last; 0 or `None` if not recorded.
    pub hostid: Option<u64>,
    /// That machine's name.
    pub hostname: Option<String>,
    /// Set by `zpool reguid` and such; comment property.
    pub comment: Option<String>,
    /// Features without which the pool can't be read, `features_for_read`.
    pub features_for_read: Vec<String>,
    /// Top-level vdevs by id. A label knows its own only; the others are then [`VdevKind::Missing`].
    pub vdevs: Vec<VdevConfig>,
    /// Hot spares.
    pub spares: Vec<VdevConfig>,
    /// Cache devices.
    pub l2cache: Vec<VdevConfig>,
}
