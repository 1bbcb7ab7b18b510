//! From name-value lists to typed configuration.
//!
//! What a list lacks gets the value OpenZFS gives it; what contradicts itself is an error. Unknown vdev
//! types are kept, so that a status can name them.

use super::{DraidConfig, PoolConfig, PoolState, VdevClass, VdevConfig, VdevKind};
use cenote_format::nvlist::Nvlist;
use cenote_format::units::{Guid, ObjectId, Txg, VdevId};
use cenote_format::{FormatError, Result};

/// Top-level vdevs that a pool may have here; OpenZFS sets no bound, disks do.
const MAX_TOP_LEVEL_VDEVS: u64 = 65_536;
/// Levels of vdevs: root, top-level, spare, replacing, leaf, with room to spare.
const MAX_VDEV_DEPTH: u32 = 8;
/// The largest ashift there is (`ASHIFT_MAX`) and a little more: damaged ones are far off.
const MAX_ASHIFT: u64 = 17;

impl PoolConfig {
    /// The whole configuration, from the MOS (`DMU_POOL_CONFIG`) or a cache file: all top-level vdevs.
    /// Spares and cache devices are kept elsewhere in the MOS; add them with [`vdev_list`].
    pub fn from_mos(list: &Nvlist) -> Result<PoolConfig> {
        let mut config = pool_fields(list)?;
        let root = list.get_nvlist("vdev_tree").ok_or(missing("vdev_tree"))?;
        config.vdevs = children(root, 1)?;
        Ok(config)
    }
}

/// The `spares` or `l2cache` array of a list, as the MOS keeps them.
pub fn vdev_list(list: &Nvlist, name: &str) -> Result<Vec<VdevConfig>> {
    let lists = list.get_nvlist_array(name).unwrap_or_default();
    lists.iter().map(|entry| vdev(entry, 1)).collect()
}

fn missing(what: &'static str) -> FormatError {
    FormatError::Corrupt { what, why: "is not in the pool configuration" }
}

fn text(list: &Nvlist, name: &str) -> Option<String> {
    list.get_string_bytes(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Fields of the pool itself, without vdevs.
pub(crate) fn pool_fields(list: &Nvlist) -> Result<PoolConfig> {
    let features = list.get_nvlist("features_for_read");
    Ok(PoolConfig {
        name: text(list, "name").ok_or(missing("name"))?,
        guid: Guid(list.get_u64("pool_guid").ok_or(missing("pool_guid"))?),
        version: list.get_u64("version").ok_or(missing("version"))?,
        state: PoolState::from(list.get_u64("state").unwrap_or(0)),
        txg: Txg(list.get_u64("txg").unwrap_or(0)),
        hostid: list.get_u64("hostid").filter(|&id| id != 0),
        hostname: text(list, "hostname"),
        comment: text(list, "comment"),
        features_for_read: features.map_or(Vec::new(), |f| f.iter().map(|(n, _)| n.to_owned()).collect()),
        vdevs: Vec::new(),
        spares: Vec::new(),
        l2cache: Vec::new(),
    })
}

/// How many top-level vdevs a label says the pool has, if it says so.
pub(crate) fn vdev_children(list: &Nvlist) -> Option<u64> {
    list.get_u64("vdev_children").filter(|&count| count <= MAX_TOP_LEVEL_VDEVS)
}

/// A vdev and all below it.
pub(crate) fn vdev(list: &Nvlist, depth: u32) -> Result<VdevConfig> {
    let type_name = text(list, "type").ok_or(missing("type"))?;
    let kind = kind_of(&type_name);
    let guid = Guid(list.get_u64("guid").unwrap_or(0));
    let id = at_most("vdev id", list.get_u64("id").unwrap_or(0), MAX_TOP_LEVEL_VDEVS)?;
    let number = |name: &str| list.get_u64(name).unwrap_or(0);
    let flag = |name: &str| number(name) != 0;
    let mut vdev = VdevConfig::new(kind, id, guid);
    vdev.path = text(list, "path");
    vdev.devid = text(list, "devid");
    vdev.physical_path = text(list, "phys_path");
    vdev.whole_disk = flag("whole_disk");
    vdev.ashift = at_most("ashift", number("ashift"), MAX_ASHIFT)? as u32;
    vdev.asize_bytes = number("asize");
    vdev.class = class_of(list);
    vdev.create_txg = Txg(number("create_txg"));
    vdev.offline = flag("offline");
    vdev.faulted = flag("faulted");
    vdev.degraded = flag("degraded");
    vdev.removed = flag("removed");
    vdev.not_present = flag("not_present");
    vdev.resilver_txg = Txg(number("resilver_txg"));
    vdev.metaslab_shift = at_most("metaslab_shift", number("metaslab_shift"), 63)? as u32;
    vdev.metaslab_array = ObjectId(number("metaslab_array"));
    vdev.top_zap = ObjectId(number("com.delphix:vdev_zap_top"));
    vdev.dtl = ObjectId(number("DTL"));
    vdev.indirect_object = ObjectId(number("com.delphix:indirect_object"));
    vdev.indirect_births = ObjectId(number("com.delphix:indirect_births"));
    vdev.prev_indirect_vdev = list.get_u64("com.delphix:prev_indirect_vdev").map(VdevId);
    vdev.raidz_expanding = list.contains("raidz_expanding");
    let expand_txgs = list.get_u64_array("raidz_expand_txgs").unwrap_or_default();
    vdev.raidz_expand_txgs = expand_txgs.iter().map(|&txg| Txg(txg)).collect();
    vdev.children = children(list, depth)?;
    redundancy(list, &mut vdev)?;
    vdev.type_name = type_name;
    Ok(vdev)
}

/// Parity and shape of RAID-Z and dRAID, checked against the number of children.
fn redundancy(list: &Nvlist, vdev: &mut VdevConfig) -> Result<()> {
    let number = |name: &str| list.get_u64(name).unwrap_or(0);
    if vdev.kind == VdevKind::DistributedSpare {
        vdev.spare_id = list.get_u64("spareid").or_else(|| spare_id_of(vdev.path.as_deref()?));
    }
    if !matches!(vdev.kind, VdevKind::Raidz | VdevKind::Draid) {
        return Ok(());
    }
    // Pools before version 3 had RAID-Z with one parity column and did not say so.
    let parity = list.get_u64("nparity").unwrap_or(1);
    let width = vdev.children.len() as u64;
    if !(1..=3).contains(&parity) || width <= parity || width > 255 {
        return Err(FormatError::Corrupt { what: "vdev", why: "parity does not fit the number of children" });
    }
    vdev.parity = parity as usize;
    let grown = vdev.raidz_expand_txgs.len() as u64 + u64::from(vdev.raidz_expanding);
    if grown >= width - parity {
        return Err(FormatError::Corrupt { what: "vdev", why: "RAID-Z grew from less than its parity" });
    }
    if vdev.kind == VdevKind::Draid {
        let draid = DraidConfig {
            data: number("draid_ndata"),
            groups: number("draid_ngroups"),
            spares: number("draid_nspares"),
        };
        let fits = draid.data > 0
            && (1..=1 << 16).contains(&draid.groups)
            && draid.spares < width
            && draid.data.saturating_add(parity) <= width - draid.spares
            && ((draid.data + parity) * draid.groups).is_multiple_of(width - draid.spares);
        if !fits {
            return Err(FormatError::Corrupt { what: "dRAID", why: "its groups do not fit its children" });
        }
        vdev.draid = Some(draid);
    }
    Ok(())
}

/// The last number of a distributed spare's name, `draid1-0-3`.
fn spare_id_of(name: &str) -> Option<u64> {
    name.rsplit('-').next()?.parse().ok()
}

fn children(list: &Nvlist, depth: u32) -> Result<Vec<VdevConfig>> {
    let lists = list.get_nvlist_array("children").unwrap_or_default();
    if !lists.is_empty() {
        at_most("vdev depth", u64::from(depth), u64::from(MAX_VDEV_DEPTH))?;
    }
    lists.iter().map(|child| vdev(child, depth + 1)).collect()
}

fn at_most(what: &'static str, value: u64, bound: u64) -> Result<u64> {
    cenote_format::error::at_most(what, value, bound)
}

fn kind_of(name: &str) -> VdevKind {
    match name {
        "root" => VdevKind::Root,
        "disk" => VdevKind::Disk,
        "file" => VdevKind::File,
        "mirror" => VdevKind::Mirror,
        "replacing" => VdevKind::Replacing,
        "spare" => VdevKind::Spare,
        "raidz" => VdevKind::Raidz,
        "draid" => VdevKind::Draid,
        "dspare" => VdevKind::DistributedSpare,
        "indirect" => VdevKind::Indirect,
        "hole" => VdevKind::Hole,
        "missing" => VdevKind::Missing,
        _ => VdevKind::Unknown,
    }
}

fn class_of(list: &Nvlist) -> VdevClass {
    if list.get_u64("is_log").is_some_and(|flag| flag != 0) {
        return VdevClass::Log;
    }
    match list.get_str("alloc_bias") {
        Some("log") => VdevClass::Log,
        Some("special") => VdevClass::Special,
        Some("dedup") => VdevClass::Dedup,
        _ => VdevClass::Normal,
    }
}
