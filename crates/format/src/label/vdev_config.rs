//! A vdev and its descendants, as a configuration describes them.
//!
//! Idea: missing pairs get OpenZFS's defaults. Contradictions are errors, so code that lays out columns can
//! trust the counts. Unknown types are kept for status output.
//!
//! Source: OpenZFS `vdev.c` (`vdev_alloc`), `vdev_label.c` (`vdev_config_generate`), `vdev_draid.c`.

use std::collections::BTreeSet;

use super::fields::{Fields, required};
use super::vdev_kind::{VdevClass, VdevKind};
use crate::error::{FormatError, Result, at_most};
use crate::nvlist::Nvlist;
use crate::units::{Guid, ObjectId, Txg, VdevId};

/// Bound on top-level vdevs; OpenZFS has none.
pub(super) const MAX_TOP_LEVEL_VDEVS: u64 = 65_536;
/// Bound on depth; real trees have root, top-level, spare, replacing and leaf.
const MAX_VDEV_DEPTH: u64 = 8;
/// `ASHIFT_MAX`.
const ASHIFT_MAX: u64 = 16;
/// Most children of a RAID-Z or dRAID, `VDEV_DRAID_MAX_CHILDREN`.
const MAX_CHILDREN: u64 = 255;
/// Bound on groups in a slice; real ones have far fewer.
const MAX_DRAID_GROUPS: u64 = 1 << 16;

/// Shape of a dRAID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraidConfig {
    /// Data columns per group.
    pub data: u64,
    /// Groups per slice.
    pub groups: u64,
    /// Distributed spares.
    pub spares: u64,
    /// Failure groups, which share the children and groups; 1 without failure domains.
    pub failure_groups: u64,
}

impl DraidConfig {
    /// By failure group, the children of a row that are no spare, among `children` in all: spares are dealt
    /// to the groups in turn.
    pub fn disks(&self, children: u64) -> impl Iterator<Item = u64> + use<> {
        let DraidConfig { spares, failure_groups, .. } = *self;
        let has_more = move |group| u64::from(group < spares % failure_groups);
        let spares_of = move |group| spares / failure_groups + has_more(group);
        (0..failure_groups).map(move |group| children / failure_groups - spares_of(group))
    }
}

/// A configured vdev. Fields are `ZPOOL_CONFIG_*`; those marked "top" exist on top-level vdevs only. A field
/// that the kind lacks is 0, empty or `None`.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct VdevConfig {
    /// Kind.
    pub kind: VdevKind,
    /// Index among siblings; 0 on spares and cache devices.
    pub id: u64,
    /// Permanent guid.
    pub guid: Guid,
    /// Last known path.
    pub path: Option<String>,
    /// Hardware identity.
    pub devid: Option<String>,
    /// Physical location.
    pub phys_path: Option<String>,
    /// Enclosure slot in sysfs.
    pub enclosure_path: Option<String>,
    /// Whether ZFS partitioned the whole disk; `None` if not recorded.
    pub whole_disk: Option<bool>,
    /// Top: log2 of the smallest block.
    pub ashift: u32,
    /// Top: allocatable bytes, parity included.
    pub asize_bytes: u64,
    /// Top: allocation class, if given here; the vdev's ZAP is authoritative.
    pub class: VdevClass,
    /// Top: array of the metaslabs' space maps.
    pub metaslab_array: ObjectId,
    /// Top: log2 of the metaslab size.
    pub metaslab_shift: u32,
    /// RAID-Z, dRAID: parity columns, fewer than children.
    pub parity: usize,
    /// dRAID: shape, consistent with the children.
    pub draid: Option<DraidConfig>,
    /// Distributed spare: index within its dRAID.
    pub spare_id: Option<u64>,
    /// Distributed spare: guid of its dRAID.
    pub top_guid: Option<Guid>,
    /// RAID-Z: expansion in progress.
    pub raidz_expanding: bool,
    /// RAID-Z: txgs of its expansions, oldest first.
    pub raidz_expand_txgs: Vec<Txg>,
    /// Hot spare, idle or active.
    pub is_spare: bool,
    /// Persistently offline by the administrator.
    pub offline: bool,
    /// Faulted by errors or the administrator.
    pub faulted: bool,
    /// Degraded by the fault manager.
    pub degraded: bool,
    /// Pulled out.
    pub removed: bool,
    /// Missing when last opened.
    pub not_present: bool,
    /// Spare that becomes idle after the resilver.
    pub unspare: bool,
    /// Top: no new allocations.
    pub non_allocating: bool,
    /// Top: being removed.
    pub removing: bool,
    /// Resilver deferred until the current one ends.
    pub resilver_defer: bool,
    /// Cause of fault or degradation: `external` or `err_exceeded`.
    pub aux_state: Option<String>,
    /// Txg in which it joined.
    pub create_txg: Txg,
    /// If not 0: resilvering; complete only for blocks born before this txg.
    pub resilver_txg: Txg,
    /// Txg up to which it was rebuilt.
    pub rebuild_txg: Txg,
    /// Space map of missed txgs (dirty time log, DTL).
    pub dtl: ObjectId,
    /// Removed or being removed: object of the indirect mapping.
    pub indirect_object: ObjectId,
    /// Removed: object with the txg of each range's move.
    pub indirect_births: ObjectId,
    /// Removed: previously removed vdev.
    pub prev_indirect_vdev: Option<VdevId>,
    /// ZAP as a leaf. MOS configuration only, like the next two.
    pub leaf_zap: ObjectId,
    /// ZAP as a top-level vdev.
    pub top_zap: ObjectId,
    /// Root vdev's ZAP.
    pub root_zap: ObjectId,
    /// Split off: previous guid.
    pub orig_guid: Option<Guid>,
    /// Child vdevs by `id`.
    pub children: Vec<VdevConfig>,
    /// All other pairs.
    pub other: Nvlist,
}

/// `aux_state` of a vdev that the administrator took out of use; only the administrator clears it.
pub const EXTERNAL: &str = "external";
/// `aux_state` after too many errors.
pub const ERR_EXCEEDED: &str = "err_exceeded";

impl VdevConfig {
    /// The table with this vdev's own properties, in the MOS configuration: that of the top-level vdev, of
    /// the leaf, or of the root; `None` on other vdevs.
    pub fn own_zap(&self) -> Option<ObjectId> {
        [self.root_zap, self.top_zap, self.leaf_zap].into_iter().find(|zap| *zap != ObjectId(0))
    }

    /// Whether I/O is forbidden by decision.
    pub fn is_taken_out(&self) -> bool {
        self.offline || self.faulted || self.removed
    }

    /// Clears failures that an earlier open diagnosed; this open repeats the diagnosis. The administrator's
    /// decisions stay (`vdev_alloc`).
    pub fn forget_diagnoses(&mut self) {
        self.children.iter_mut().for_each(VdevConfig::forget_diagnoses);
        if self.aux_state.as_deref() != Some(EXTERNAL) {
            (self.faulted, self.degraded, self.removed, self.aux_state) = (false, false, false, None);
        }
    }

    /// A child's failure group and failure domain (enclosure), if this vdev has any.
    pub fn failure_group_and_domain(&self, child: usize) -> Option<(usize, usize)> {
        let groups = self.draid.filter(|draid| draid.failure_groups > 1)?.failure_groups as usize;
        let children = (self.children.len() / groups).max(1);
        Some((child / children, child % children))
    }

    /// How many failures the loss of these children amounts to: those of one failure domain are one, as no
    /// row has two of them.
    pub fn failures(&self, children: impl Iterator<Item = usize>) -> usize {
        let domain = |child| self.failure_group_and_domain(child).map_or(child, |(_, domain)| domain);
        children.map(domain).collect::<BTreeSet<_>>().len()
    }

    /// Otherwise empty vdev.
    pub fn new(kind: VdevKind, id: u64, guid: Guid) -> VdevConfig {
        VdevConfig { kind, id, guid, ..VdevConfig::default() }
    }

    /// Decodes a `vdev_tree` recursively.
    ///
    /// # Errors
    /// A pair of the wrong type or range; no type or guid; parity or shape inconsistent with the children.
    pub fn decode(list: &Nvlist) -> Result<VdevConfig> {
        Self::decode_below(list, 0)
    }

    /// The `spares` or `l2cache` array of the MOS.
    ///
    /// # Errors
    /// As [`VdevConfig::decode`].
    pub fn decode_array(list: &Nvlist, name: &str) -> Result<Vec<VdevConfig>> {
        list.get_nvlist_array(name).unwrap_or_default().iter().map(VdevConfig::decode).collect()
    }

    fn decode_below(list: &Nvlist, depth: u64) -> Result<VdevConfig> {
        at_most("vdev depth", depth, MAX_VDEV_DEPTH)?;
        let mut f = Fields::new(list);
        let children = f.nvlists("children")?;
        let children =
            children.iter().map(|child| Self::decode_below(child, depth + 1)).collect::<Result<_>>()?;
        let mut vdev = VdevConfig {
            kind: VdevKind::from_name(&required("type", f.string("type")?)?),
            id: f.small("id", MAX_TOP_LEVEL_VDEVS)?.unwrap_or(0),
            guid: required("guid", f.guid("guid")?)?,
            path: f.string("path")?,
            devid: f.string("devid")?,
            phys_path: f.string("phys_path")?,
            enclosure_path: f.string("vdev_enc_sysfs_path")?,
            whole_disk: f.u64("whole_disk")?.map(|flag| flag != 0),
            ashift: f.small("ashift", ASHIFT_MAX)?.unwrap_or(0),
            asize_bytes: f.number("asize")?,
            class: class(&mut f)?,
            metaslab_array: f.object("metaslab_array")?,
            metaslab_shift: f.small("metaslab_shift", 63)?.unwrap_or(0),
            spare_id: f.u64("spareid")?,
            top_guid: f.guid("top_guid")?,
            raidz_expanding: f.flag("raidz_expanding")?,
            raidz_expand_txgs: f.u64s("raidz_expand_txgs")?.into_iter().map(Txg).collect(),
            is_spare: f.flag("is_spare")?,
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
            create_txg: Txg(f.number("create_txg")?),
            resilver_txg: Txg(f.number("resilver_txg")?),
            rebuild_txg: Txg(f.number("rebuild_txg")?),
            dtl: f.object("DTL")?,
            indirect_object: f.object("com.delphix:indirect_object")?,
            indirect_births: f.object("com.delphix:indirect_births")?,
            prev_indirect_vdev: f.u64("com.delphix:prev_indirect_vdev")?.map(VdevId),
            leaf_zap: f.object("com.delphix:vdev_zap_leaf")?,
            top_zap: f.object("com.delphix:vdev_zap_top")?,
            root_zap: f.object("com.klarasystems:vdev_zap_root")?,
            orig_guid: f.guid("orig_guid")?,
            children,
            ..VdevConfig::default()
        };
        vdev.redundancy(&mut f)?;
        vdev.other = f.into_rest();
        Ok(vdev)
    }

    fn redundancy(&mut self, f: &mut Fields) -> Result<()> {
        if self.kind == VdevKind::DistributedSpare {
            self.spare_id = self.spare_id.or_else(|| spare_id_of(self.path.as_deref()?));
        }
        if !matches!(self.kind, VdevKind::Raidz | VdevKind::Draid) {
            return Ok(());
        }
        // Pools before version 3 omit the parity, which is 1.
        let parity = f.u64("nparity")?.unwrap_or(1);
        let width = self.children.len() as u64;
        if !(1..=3).contains(&parity) || width <= parity || width > MAX_CHILDREN {
            return Err(corrupt("vdev", "parity does not fit the number of children"));
        }
        self.parity = parity as usize;
        let grown = self.raidz_expand_txgs.len() as u64 + u64::from(self.raidz_expanding);
        if grown >= width - parity {
            return Err(corrupt("vdev", "RAID-Z grew from less than its parity"));
        }
        if self.kind == VdevKind::Draid {
            self.draid = Some(draid(f, width, parity)?);
        }
        Ok(())
    }

    /// Whether it stores bytes itself.
    pub fn is_leaf(&self) -> bool {
        matches!(self.kind, VdevKind::Disk | VdevKind::File | VdevKind::DistributedSpare)
    }

    /// This vdev and its descendants, parents first, siblings by id.
    pub fn walk(&self) -> impl Iterator<Item = &VdevConfig> {
        let mut open = vec![self];
        std::iter::from_fn(move || {
            let vdev = open.pop()?;
            open.extend(vdev.children.iter().rev());
            Some(vdev)
        })
    }

    /// Vdevs that store bytes.
    pub fn leaves(&self) -> impl Iterator<Item = &VdevConfig> {
        self.walk().filter(|vdev| vdev.is_leaf())
    }

    /// Leaf of that guid.
    pub fn leaf_mut(&mut self, guid: Guid) -> Option<&mut VdevConfig> {
        if self.children.is_empty() {
            return (self.guid == guid).then_some(self);
        }
        self.children.iter_mut().find_map(|child| child.leaf_mut(guid))
    }
}

/// Labels say `is_log`; newer ones name the class.
fn class(f: &mut Fields) -> Result<VdevClass> {
    let is_log = f.flag("is_log")?;
    let named = f.string("alloc_bias")?.and_then(|name| VdevClass::from_name(&name));
    Ok(if is_log { VdevClass::Log } else { named.unwrap_or_default() })
}

fn draid(f: &mut Fields, width: u64, parity: u64) -> Result<DraidConfig> {
    // Children of a failure group. Only pools with failure domains have it, for all of their dRAIDs.
    let children = f.u64("draid_nchildren")?.unwrap_or(width);
    if children == 0 || !width.is_multiple_of(children) {
        return Err(corrupt("dRAID", "its failure groups do not have the same number of children"));
    }
    let draid = DraidConfig {
        data: f.number("draid_ndata")?,
        groups: f.number("draid_ngroups")?,
        spares: f.number("draid_nspares")?,
        failure_groups: width / children,
    };
    let group_width = draid.data.saturating_add(parity);
    let fits = draid.data > 0
        && (1..=MAX_DRAID_GROUPS).contains(&draid.groups)
        && draid.spares.div_ceil(draid.failure_groups) < children
        && draid.disks(width).all(|disks| group_width <= disks)
        && has_whole_rows(&draid, width, group_width);
    if fits { Ok(draid) } else { Err(corrupt("dRAID", "its groups do not fit its children")) }
}

/// Whether the redundancy groups of a slice fill the same number of rows in every failure group.
fn has_whole_rows(draid: &DraidConfig, width: u64, group_width: u64) -> bool {
    let (columns, all) = (group_width * draid.groups, width - draid.spares);
    columns.is_multiple_of(all)
        && draid.disks(width).all(|disks| (columns / all * disks).is_multiple_of(group_width))
}

fn corrupt(what: &'static str, why: &'static str) -> FormatError {
    FormatError::Corrupt { what, why }
}

/// Last number of a distributed spare's name, `draid1-0-3`.
fn spare_id_of(name: &str) -> Option<u64> {
    name.rsplit('-').next()?.parse().ok()
}
