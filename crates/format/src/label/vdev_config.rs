//! One vdev and those below it, as a configuration describes them.

use std::fmt;

use super::fields::{Fields, required};
use crate::error::Result;
use crate::nvlist::Nvlist;
use crate::units::{Guid, ObjectId, Txg, VdevId};

/// The largest ashift, `ASHIFT_MAX`.
const ASHIFT_MAX: u64 = 16;
/// The largest number of drives of a dRAID, `VDEV_DRAID_MAX_CHILDREN`.
const DRAID_MAX_CHILDREN: u64 = 255;

/// What a vdev is, `VDEV_TYPE_*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VdevType {
    /// The parent of all top-level vdevs.
    Root,
    /// Every child holds the same.
    Mirror,
    /// A mirror of a disk and the one that takes its place.
    Replacing,
    /// Parity over all children in one row.
    Raidz,
    /// Parity over groups spread on all children, with distributed spares.
    Draid,
    /// A dRAID's distributed spare.
    DraidSpare,
    /// A block device.
    Disk,
    /// A file.
    File,
    /// A vdev known only by its guid.
    Missing,
    /// The gap that a removed log device leaves in the numbering.
    Hole,
    /// A mirror of a disk and the hot spare that stands in for it.
    Spare,
    /// A log device in a configuration not yet stored.
    Log,
    /// A cache device.
    L2cache,
    /// What is left of a removed vdev: a map to where its blocks went.
    Indirect,
    /// A type that OpenZFS 2.3 does not have.
    Other(String),
}

const TYPE_NAMES: [(VdevType, &str); 14] = [
    (VdevType::Root, "root"),
    (VdevType::Mirror, "mirror"),
    (VdevType::Replacing, "replacing"),
    (VdevType::Raidz, "raidz"),
    (VdevType::Draid, "draid"),
    (VdevType::DraidSpare, "dspare"),
    (VdevType::Disk, "disk"),
    (VdevType::File, "file"),
    (VdevType::Missing, "missing"),
    (VdevType::Hole, "hole"),
    (VdevType::Spare, "spare"),
    (VdevType::Log, "log"),
    (VdevType::L2cache, "l2cache"),
    (VdevType::Indirect, "indirect"),
];

impl VdevType {
    /// The type of that name.
    pub fn from_name(name: &str) -> VdevType {
        let known = TYPE_NAMES.iter().find(|(_, known)| *known == name);
        known.map_or_else(|| VdevType::Other(name.to_owned()), |(vdev_type, _)| vdev_type.clone())
    }

    /// The name on disk.
    pub fn name(&self) -> &str {
        if let VdevType::Other(name) = self {
            return name;
        }
        TYPE_NAMES.iter().find(|(known, _)| known == self).map_or("", |(_, name)| name)
    }
}

impl fmt::Display for VdevType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The class of blocks that a top-level vdev is for, `VDEV_ALLOC_BIAS_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AllocationBias {
    /// The intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Deduplication tables.
    Dedup,
}

impl AllocationBias {
    /// The class of that name, also as the vdev's ZAP keeps it.
    pub fn from_name(name: &str) -> Option<AllocationBias> {
        match name {
            "log" => Some(AllocationBias::Log),
            "special" => Some(AllocationBias::Special),
            "dedup" => Some(AllocationBias::Dedup),
            _ => None,
        }
    }
}

/// A vdev of a configuration. Fields are `ZPOOL_CONFIG_*`; those marked top exist on top-level vdevs only.
#[derive(Debug, Clone, PartialEq)]
pub struct VdevConfig {
    /// What it is.
    pub vdev_type: VdevType,
    /// Position among its siblings; none on spares and cache devices.
    pub id: Option<VdevId>,
    /// Its name for life.
    pub guid: Guid,
    /// Where it was last seen.
    pub path: Option<String>,
    /// The hardware's own name for it.
    pub devid: Option<String>,
    /// Where it is plugged in.
    pub phys_path: Option<String>,
    /// Where its enclosure slot is in sysfs.
    pub enclosure_path: Option<String>,
    /// ZFS partitioned the disk itself. Missing: unknown.
    pub whole_disk: Option<bool>,
    /// Top: log2 of the smallest block that can be written.
    pub ashift: Option<u32>,
    /// Top: bytes that can be allocated, parity included.
    pub asize_bytes: Option<u64>,
    /// Top: object whose words are the space maps of the metaslabs; 0 if there is none.
    pub metaslab_array: Option<ObjectId>,
    /// Top: log2 of the bytes of a metaslab.
    pub metaslab_shift: Option<u32>,
    /// RAID-Z and dRAID: parity columns. Missing in pools before version 3: one.
    pub nparity: Option<u32>,
    /// Top: for the intent log only.
    pub is_log: bool,
    /// A hot spare, in its place or in use.
    pub is_spare: bool,
    /// A hole in an old form of configuration.
    pub is_hole: bool,
    /// Taken offline by the administrator, to last.
    pub offline: bool,
    /// Faulted.
    pub faulted: bool,
    /// Degraded.
    pub degraded: bool,
    /// Pulled out.
    pub removed: bool,
    /// Could not be found when the pool was last opened.
    pub not_present: bool,
    /// A spare that goes back to its place when the resilver ends.
    pub unspare: bool,
    /// Top: no new allocations.
    pub non_allocating: bool,
    /// Top: being removed.
    pub removing: bool,
    /// Waits for the resilver after the present one.
    pub resilver_defer: bool,
    /// Why it is faulted or degraded: `external` or `err_exceeded`.
    pub aux_state: Option<String>,
    /// When it joined.
    pub create_txg: Option<Txg>,
    /// Its resilver has come to this group.
    pub resilver_txg: Option<Txg>,
    /// Its rebuild has come to this group.
    pub rebuild_txg: Option<Txg>,
    /// Space map of the groups that it misses ("dirty time log").
    pub dtl_object: Option<ObjectId>,
    /// Class by name, where a configuration has it; the vdev's own ZAP always does.
    pub allocation_bias: Option<AllocationBias>,
    /// Removed or being removed: object that maps its offsets to other vdevs.
    pub indirect_object: Option<ObjectId>,
    /// Removed: object that says which group's allocations were moved when.
    pub indirect_births: Option<ObjectId>,
    /// Removed: the vdev removed before it.
    pub prev_indirect_vdev: Option<VdevId>,
    /// Its ZAP as a leaf; in the MOS configuration only, like the two below.
    pub leaf_zap: Option<ObjectId>,
    /// Its ZAP as a top-level vdev.
    pub top_zap: Option<ObjectId>,
    /// The root vdev's ZAP.
    pub root_zap: Option<ObjectId>,
    /// dRAID: data columns of a group.
    pub draid_ndata: Option<u32>,
    /// dRAID: distributed spares.
    pub draid_nspares: Option<u32>,
    /// dRAID: groups in a slice.
    pub draid_ngroups: Option<u32>,
    /// Distributed spare: its number and its dRAID vdev's guid.
    pub spare_id: Option<u64>,
    /// Distributed spare: guid of the dRAID vdev that it belongs to.
    pub top_guid: Option<Guid>,
    /// RAID-Z: a disk is being added right now.
    pub raidz_expanding: bool,
    /// RAID-Z: the groups in which it grew by one disk, oldest first.
    pub raidz_expand_txgs: Vec<Txg>,
    /// Split off: the guid it had.
    pub orig_guid: Option<Guid>,
    /// The vdevs below it.
    pub children: Vec<VdevConfig>,
    /// Pairs that are not above.
    pub other: Nvlist,
}

impl VdevConfig {
    /// Reads a `vdev_tree`, recursively.
    ///
    /// # Errors
    /// A pair of the wrong type or range; no type or guid.
    pub fn decode(list: &Nvlist) -> Result<VdevConfig> {
        let mut f = Fields::new(list);
        let objects = |f: &mut Fields, name| -> Result<_> { Ok(f.u64(name)?.map(ObjectId)) };
        let children = f.nvlists("children")?.iter().map(VdevConfig::decode).collect::<Result<_>>()?;
        Ok(VdevConfig {
            vdev_type: VdevType::from_name(&required("type", f.string("type")?)?),
            id: f.u64("id")?.map(VdevId),
            guid: required("guid", f.guid("guid")?)?,
            path: f.string("path")?,
            devid: f.string("devid")?,
            phys_path: f.string("phys_path")?,
            enclosure_path: f.string("vdev_enc_sysfs_path")?,
            whole_disk: f.u64("whole_disk")?.map(|n| n != 0),
            ashift: f.small("ashift", ASHIFT_MAX)?,
            asize_bytes: f.u64("asize")?,
            metaslab_array: objects(&mut f, "metaslab_array")?,
            metaslab_shift: f.small("metaslab_shift", 63)?,
            nparity: f.small("nparity", 3)?,
            is_log: f.flag("is_log")?,
            is_spare: f.flag("is_spare")?,
            is_hole: f.flag("is_hole")?,
            offline: f.flag("offline")?,
            faulted: f.flag("faulted")?,
            degraded: f.flag("degraded")?,
            removed: f.flag("removed")?,
            not_present: f.flag("not_present")?,
            unspare: f.flag("unspare")?,
            non_allocating: f.flag("non_allocating")?,
            removing: f.flag("removing")?,
            resilver_defer: f.flag("com.datto:resilver_defer")?,
            aux_state: f.string("aux_state")?,
            create_txg: f.u64("create_txg")?.map(Txg),
            resilver_txg: f.u64("resilver_txg")?.map(Txg),
            rebuild_txg: f.u64("rebuild_txg")?.map(Txg),
            dtl_object: objects(&mut f, "DTL")?,
            allocation_bias: f.string("alloc_bias")?.and_then(|name| AllocationBias::from_name(&name)),
            indirect_object: objects(&mut f, "com.delphix:indirect_object")?,
            indirect_births: objects(&mut f, "com.delphix:indirect_births")?,
            prev_indirect_vdev: f.u64("com.delphix:prev_indirect_vdev")?.map(VdevId),
            leaf_zap: objects(&mut f, "com.delphix:vdev_zap_leaf")?,
            top_zap: objects(&mut f, "com.delphix:vdev_zap_top")?,
            root_zap: objects(&mut f, "com.klarasystems:vdev_zap_root")?,
            draid_ndata: f.small("draid_ndata", DRAID_MAX_CHILDREN)?,
            draid_nspares: f.small("draid_nspares", DRAID_MAX_CHILDREN)?,
            draid_ngroups: f.small("draid_ngroups", u32::MAX.into())?,
            spare_id: f.u64("spareid")?,
            top_guid: f.guid("top_guid")?,
            raidz_expanding: f.flag("raidz_expanding")?,
            raidz_expand_txgs: f.u64s("raidz_expand_txgs")?.into_iter().map(Txg).collect(),
            orig_guid: f.guid("orig_guid")?,
            children,
            other: f.into_rest(),
        })
    }

    /// It has no vdevs below it.
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// This vdev and all below it, parents first, in the order of their ids.
    pub fn walk(&self) -> impl Iterator<Item = &VdevConfig> {
        let mut open = vec![self];
        std::iter::from_fn(move || {
            let vdev = open.pop()?;
            open.extend(vdev.children.iter().rev());
            Some(vdev)
        })
    }

    /// The vdevs that hold bytes.
    pub fn leaves(&self) -> impl Iterator<Item = &VdevConfig> {
        self.walk().filter(|vdev| vdev.is_leaf())
    }
}
