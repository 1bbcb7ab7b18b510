//! Which ranges of each vdev are allocated, as the pool's space maps say.
//!
//! Idea: a vdev is cut into metaslabs, and each has a space map: a log of allocations and frees, which replayed gives its
//! allocated ranges. Since feature `log_spacemap` a group's changes to all metaslabs are first collected in one map of that
//! group; a metaslab's own map is brought up to date now and then, and a table per vdev says up to which group it is. So:
//!
//! ```text
//!   allocated = replay(metaslab's own map) + changes in the maps of groups >= the metaslab's unflushed group
//! ```
//!
//! What was allocated in the last group may lie in the map, or not: space maps are written in the same groups as what they
//! describe, so for one uberblock they are exact.
//!
//! Memory: one vdev's ranges at a time, one range an allocated run. The log maps of all groups are read once and kept, as
//! OpenZFS bounds their size.
//!
//! Source: OpenZFS `space_map.c`, `metaslab.c`, `spa_log_spacemap.c`.

mod ranges;

use std::collections::BTreeMap;

use cenote_format::dsl::deadlist::parse_deadlist_key;
use cenote_format::dsl::names::{pool as names, vdev_zap};
use cenote_format::space_map::{MapType, SPACE_MAP_SIZE_V0, SpaceMapEntry, SpaceMapPhys, SpaceMapReader};
use cenote_format::units::{BlockId, ObjectId, Txg, VdevId};
use cenote_format::words::Phys;
use cenote_pool::VdevConfig;

use crate::error::Result;
use crate::mos::Mos;
use crate::object::Object;
use crate::zap::Zap;

pub use ranges::{Overlap, Ranges};

/// Offsets in a log space map count sectors of 512.
const LOG_SHIFT: u32 = 9;

/// Metaslabs that a vdev may have; OpenZFS makes at most 2^17 (`zfs_vdev_ms_count_limit`).
const MAX_METASLABS: u64 = 1 << 20;

/// A metaslab and what is allocated on it.
#[derive(Debug, Clone)]
pub struct Metaslab {
    /// Its number within the vdev.
    pub index: u64,
    /// Where it begins on the vdev, in bytes.
    pub start_bytes: u64,
    /// How long it is, what a dRAID leaves unused at its ends included.
    pub size_bytes: u64,
    /// Allocated ranges, in bytes from the start of the vdev.
    pub allocated: Ranges,
    /// Bytes allocated as its own map says, without changes that are only in log space maps.
    pub own_map_bytes: u64,
    /// Free ranges by size, as its own map counted them last: element i those of 2^i bytes up to twice that. `None` if the map does
    /// not count them.
    pub free_ranges: Option<[u64; 64]>,
    /// Contradictions met while replaying: what was allocated twice, or freed without being allocated.
    pub overlaps: Vec<Overlap>,
}

/// The changes of groups that are not yet in the metaslabs' own maps, in order.
#[derive(Debug, Default)]
pub struct LogSpacemaps {
    /// (group, change) for each vdev.
    changes: BTreeMap<VdevId, Vec<(Txg, SpaceMapEntry)>>,
}

impl Mos {
    /// The log space maps of all groups. Give it to [`Mos::metaslabs`].
    ///
    /// # Errors
    /// A map is damaged.
    pub async fn log_spacemaps(&self) -> Result<LogSpacemaps> {
        let mut maps = Vec::new();
        if let Some(zap) = self.directory_zap(names::LOG_SPACEMAP_ZAP).await? {
            for entry in zap.to_vec().await? {
                // Keys are groups in hexadecimal text, as those of a deadlist.
                let txg = parse_deadlist_key(&entry.name)
                    .map_err(|e| self.objset().format(zap.object().id(), e))?;
                let id =
                    entry.value.as_u64().ok_or_else(|| zap.object().damaged("names a map by no number"))?;
                maps.push((txg, ObjectId(id)));
            }
        }
        maps.sort();
        let mut log = LogSpacemaps::default();
        for (txg, id) in maps {
            let object = self.objset().object(id).await?;
            replay(&object, LOG_SHIFT, |change| {
                let vdev = change.vdev.unwrap_or_default();
                log.changes.entry(vdev).or_default().push((txg, change));
            })
            .await?;
        }
        Ok(log)
    }

    /// The metaslabs of a top-level vdev with their allocated ranges. None of a vdev that was removed.
    ///
    /// # Errors
    /// A space map is damaged.
    pub async fn metaslabs(&self, vdev: &VdevConfig, log: &LogSpacemaps) -> Result<Vec<Metaslab>> {
        if vdev.metaslab_array.0 == 0 || !(9..64).contains(&vdev.metaslab_shift) || vdev.ashift >= 64 {
            return Ok(Vec::new());
        }
        let array = self.objset().object(vdev.metaslab_array).await?;
        let count = vdev.asize_bytes >> vdev.metaslab_shift;
        if count > MAX_METASLABS {
            return Err(array.damaged("would have more metaslabs than a vdev can have"));
        }
        // The array ends at the last metaslab that has been used.
        let mut maps = array.read_words(0, count.min(array.capacity_bytes() / 8) as usize).await?;
        maps.resize(count as usize, 0);
        let unflushed = self.unflushed(vdev, count).await?;
        let mut metaslabs = Vec::with_capacity(maps.len());
        for (index, map) in maps.into_iter().enumerate() {
            let (start_bytes, size_bytes) = metaslab_extent(vdev, index as u64);
            let mut metaslab = Metaslab {
                index: index as u64,
                start_bytes,
                size_bytes,
                allocated: Ranges::default(),
                own_map_bytes: 0,
                free_ranges: None,
                overlaps: Vec::new(),
            };
            // A metaslab that was never used has no map.
            if map != 0 {
                let object = self.objset().object(ObjectId(map)).await?;
                metaslab.free_ranges = free_ranges(&object, vdev.ashift)?;
                let start = metaslab.start_bytes;
                replay(&object, vdev.ashift, |change| {
                    metaslab.apply(
                        change.map_type,
                        start.saturating_add(change.offset_bytes),
                        change.run_bytes,
                    );
                })
                .await?;
                metaslab.own_map_bytes = metaslab.allocated_bytes();
            }
            let since = unflushed.get(index).copied().unwrap_or(Txg(0));
            for (txg, change) in log.changes.get(&VdevId(vdev.id)).into_iter().flatten() {
                let inside = change.offset_bytes >> vdev.metaslab_shift == metaslab.index;
                if inside && since.0 != 0 && *txg >= since {
                    metaslab.apply(change.map_type, change.offset_bytes, change.run_bytes);
                }
            }
            metaslabs.push(metaslab);
        }
        Ok(metaslabs)
    }

    /// For each metaslab, the first group whose changes are not in its own map; 0: all are.
    async fn unflushed(&self, vdev: &VdevConfig, count: u64) -> Result<Vec<Txg>> {
        let Some(zap) = self.vdev_zap(vdev).await? else { return Ok(Vec::new()) };
        let Some(id) = zap.get_u64(vdev_zap::MS_UNFLUSHED_PHYS_TXGS).await? else { return Ok(Vec::new()) };
        let object = self.objset().object(ObjectId(id)).await?;
        let count = count.min(object.capacity_bytes() / 8);
        Ok(object.read_words(0, count as usize).await?.into_iter().map(Txg).collect())
    }

    /// What a checkpoint holds although it was freed since, on one vdev.
    ///
    /// # Errors
    /// The map is damaged.
    pub async fn checkpointed(&self, vdev: &VdevConfig) -> Result<Ranges> {
        let mut ranges = Ranges::default();
        let Some(zap) = self.vdev_zap(vdev).await? else { return Ok(ranges) };
        if let Some(id) = zap.get_u64(vdev_zap::POOL_CHECKPOINT_SM).await? {
            let object = self.objset().object(ObjectId(id)).await?;
            replay(&object, vdev.ashift, |change| {
                // The map lists what was freed from under the checkpoint.
                ranges.insert(change.offset_bytes, change.run_bytes);
            })
            .await?;
        }
        Ok(ranges)
    }

    /// The ZAP of a top-level vdev's own fields, as the trusted configuration names it.
    ///
    /// # Errors
    /// It is damaged.
    pub async fn vdev_zap(&self, vdev: &VdevConfig) -> Result<Option<Zap>> {
        let tree = self.config().get_nvlist("vdev_tree").and_then(|t| t.get_nvlist_array("children"));
        let top = tree.unwrap_or_default().iter().find(|top| top.get_u64("id") == Some(vdev.id));
        match top.and_then(|top| top.get_u64("com.delphix:vdev_zap_top")) {
            None | Some(0) => Ok(None),
            Some(id) => Zap::open_id(self.objset(), ObjectId(id)).await.map(Some),
        }
    }
}

impl Metaslab {
    /// Bytes allocated.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated.total_bytes()
    }

    fn apply(&mut self, map_type: MapType, offset: u64, len: u64) {
        let overlap = match map_type {
            MapType::Alloc => self.allocated.insert(offset, len),
            MapType::Free => self.allocated.remove(offset, len),
        };
        self.overlaps.extend(overlap);
    }
}

/// Where a metaslab begins and how long it is: on a dRAID from the first group after its border, so that no group lies on two, and in
/// whole groups (`vdev_draid_metaslab_init`).
fn metaslab_extent(vdev: &VdevConfig, index: u64) -> (u64, u64) {
    let (border, size) = (index << vdev.metaslab_shift, 1 << vdev.metaslab_shift);
    let Some(draid) = vdev.draid else { return (border, size) };
    let group_sectors = draid.data.saturating_add(vdev.parity as u64).max(1);
    let group_bytes = group_sectors.checked_shl(vdev.ashift).unwrap_or(u64::MAX).max(1);
    let start = border.checked_next_multiple_of(group_bytes).unwrap_or(border);
    (start, size.saturating_sub(start - border) / group_bytes * group_bytes)
}

/// Bytes of a vdev's first metaslabs.
pub(crate) fn metaslabs_bytes(vdev: &VdevConfig, count: u64) -> u64 {
    match vdev.draid {
        None => count << vdev.metaslab_shift,
        Some(_) => (0..count.min(MAX_METASLABS)).map(|index| metaslab_extent(vdev, index).1).sum(),
    }
}

/// The histogram in a space map's head, if the head is of those that have one.
fn free_ranges(object: &Object, shift: u32) -> Result<Option<[u64; 64]>> {
    let dnode = object.dnode();
    if dnode.bonus().len() <= SPACE_MAP_SIZE_V0 {
        return Ok(None);
    }
    let phys = SpaceMapPhys::decode(dnode.bonus(), dnode.endian()).map_err(|e| object.format(e))?;
    let mut counts = [0; 64];
    for (count, at) in phys.histogram.into_iter().zip(shift as usize..counts.len()) {
        counts[at] = count;
    }
    Ok(Some(counts))
}

/// The groups that a dirty time log lists: a space map that counts groups.
pub(crate) async fn group_ranges(object: &Object) -> Result<Ranges> {
    let mut groups = Ranges::default();
    replay(object, 0, |change| {
        _ = match change.map_type {
            MapType::Alloc => groups.insert(change.offset_bytes, change.run_bytes),
            MapType::Free => groups.remove(change.offset_bytes, change.run_bytes),
        };
    })
    .await?;
    Ok(groups)
}

/// Reads a space map from its start to the end that its head notes.
async fn replay(object: &Object, shift: u32, mut each: impl FnMut(SpaceMapEntry)) -> Result<()> {
    /// Bytes of map read at once.
    const WINDOW_BYTES: u64 = 4 << 20;
    let dnode = object.dnode();
    let phys = SpaceMapPhys::decode(dnode.bonus(), dnode.endian()).map_err(|e| object.format(e))?;
    let size = object.block_bytes().max(1);
    if phys.length_bytes > object.capacity_bytes() {
        return Err(object.damaged("claims a longer space map than it has room for"));
    }
    let blocks = phys.length_bytes.div_ceil(size);
    let mut reader = None;
    for first in (0..blocks).step_by((WINDOW_BYTES / size).max(1) as usize) {
        let last = blocks.min(first + (WINDOW_BYTES / size).max(1));
        for block in object.read_blocks(first..last).await {
            let BlockId(id) = block.id;
            let Some(bytes) = block.data? else { continue };
            let reader = match &mut reader {
                Some(reader) => reader,
                none => none.insert(SpaceMapReader::new(shift, block.endian).map_err(|e| object.format(e))?),
            };
            let used = (phys.length_bytes - id * size).min(size) as usize;
            for entry in reader.block(&bytes[..used.min(bytes.len())]) {
                each(entry.map_err(|e| object.format(e))?);
            }
        }
    }
    Ok(())
}
