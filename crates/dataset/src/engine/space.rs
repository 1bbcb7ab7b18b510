//! Space maps: what each pass allocated and freed is noted on disk.
//!
//! Idea: a metaslab's map is a log; each pass appends its changes. When the log has become much longer than what it says, it
//! is written anew from what is allocated in memory. A pool whose last writer kept the changes of many groups in log space maps
//! has all its metaslabs' maps written anew in the first group here; from then on each map is up to date by itself.
//!
//! Source: OpenZFS `metaslab.c` (`metaslab_sync`, `metaslab_condense`), `space_map.c` (`space_map_write`).

use std::collections::BTreeMap;

use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names, vdev_zap};
use cenote_format::space_map::MapType;
use cenote_format::units::{ObjectId, VdevId};
use cenote_pool::alloc::MetaslabChanges;
use cenote_pool::ranges::Ranges;

use super::SyncContext;
use crate::error::Result;
use crate::spacemaps::{LOG_SHIFT, MetaslabPlace, SpaceMapChange, SpaceMapEdit, SpaceMapHead};
use crate::zap::{Zap, ZapEdit};

/// `zfs_metaslab_sm_blksz_no_log`.
const SPACE_MAP_BLOCK_BYTES: u32 = 16 << 10;
/// `zfs_condense_pct`: a map is written anew when it is so much longer than it need be, in percent...
const CONDENSE_PERCENT: u64 = 200;
/// ...and has more than so many blocks (`zfs_metaslab_condense_block_threshold`).
const CONDENSE_BLOCKS: u64 = 4;

/// Where metaslabs' maps are.
#[derive(Debug, Default)]
pub(super) struct SpaceMaps {
    /// For each vdev the object whose words are the maps' numbers.
    arrays: BTreeMap<VdevId, ObjectId>,
    maps: BTreeMap<(VdevId, u64), ObjectId>,
    /// Metaslabs whose own maps lack what log space maps say.
    unflushed: Vec<(VdevId, u64, u64)>,
    /// The table of log space maps, until these are brought home.
    logs: Option<ObjectId>,
}

impl SpaceMaps {
    /// Of no vdevs yet; `logs` is the table of log space maps, if there is one.
    pub(super) fn with_logs(logs: Option<ObjectId>) -> SpaceMaps {
        SpaceMaps { logs, ..SpaceMaps::default() }
    }

    /// A vdev whose maps' numbers are in that object.
    pub(super) fn add_vdev(&mut self, vdev: VdevId, array: ObjectId) {
        self.arrays.insert(vdev, array);
    }

    /// A metaslab as it was found.
    pub(super) fn insert(&mut self, vdev: VdevId, place: &MetaslabPlace) {
        if let Some(map) = place.map {
            self.maps.insert((vdev, place.index), map);
        }
        if place.unflushed.is_some() {
            self.unflushed.push((vdev, place.index, place.start_bytes));
        }
    }
}

impl SyncContext {
    /// Notes what this pass allocated and freed.
    pub(super) async fn write_space_maps(&mut self) -> Result<()> {
        self.flush_logged().await?;
        for change in self.group.allocator.take_changes(self.group.txg) {
            let object = self.space_map(change.vdev, change.index).await?;
            let edit = self.edit();
            let map = SpaceMapEdit::new(&edit, object, self.ashift(change.vdev));
            let pass = self.group.pass as u16;
            map.append(&changes(MapType::Alloc, &change.allocated, change.start_bytes), pass).await?;
            map.append(&changes(MapType::Free, &change.freed, change.start_bytes), pass).await?;
            if self.group.pass == 1 && self.should_condense(&change, object).await? {
                self.condense(change.vdev, change.index, change.start_bytes).await?;
            }
            map.set_free_ranges(&change.free_ranges).await?;
            self.write_kept(change.vdev, &change.checkpointed).await?;
            self.note_removal(&change).await?;
        }
        self.write_obsolete().await
    }

    /// Brings every metaslab's own map up to date and removes the log space maps, once.
    async fn flush_logged(&mut self) -> Result<()> {
        let (unflushed, logs) = {
            let mut maps = self.engine.space_maps.lock();
            (std::mem::take(&mut maps.unflushed), maps.logs.take())
        };
        for (vdev, index, start_bytes) in unflushed {
            self.condense(vdev, index, start_bytes).await?;
        }
        let Some(logs) = logs else { return Ok(()) };
        let edit = self.edit();
        for entry in Zap::open_id(&edit.view(), logs).await?.to_vec().await? {
            if let Some(log) = entry.value.as_u64() {
                SpaceMapEdit::new(&edit, ObjectId(log), LOG_SHIFT).free().await?;
            }
        }
        edit.destroy(logs).await?;
        ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).remove(names::LOG_SPACEMAP_ZAP).await?;
        self.use_feature("log_spacemap", -1).await?;
        self.forget_unflushed().await
    }

    /// Without logs no metaslab is behind its own map.
    async fn forget_unflushed(&mut self) -> Result<()> {
        let edit = self.edit();
        let tops: Vec<ObjectId> =
            self.engine.config.lock().vdev_tree.children.iter().map(|top| top.top_zap).collect();
        for top_zap in tops.into_iter().filter(|zap| zap.0 != 0) {
            let fields = ZapEdit::new(&edit, top_zap);
            let found = fields.get(vdev_zap::MS_UNFLUSHED_PHYS_TXGS).await?.and_then(|value| value.as_u64());
            if let Some(groups) = found {
                edit.destroy(ObjectId(groups)).await?;
                fields.remove(vdev_zap::MS_UNFLUSHED_PHYS_TXGS).await?;
            }
        }
        Ok(())
    }

    /// A metaslab's map, made when it is needed first.
    async fn space_map(&mut self, vdev: VdevId, index: u64) -> Result<ObjectId> {
        let known = self.engine.space_maps.lock().maps.get(&(vdev, index)).copied();
        if let Some(map) = known {
            return Ok(map);
        }
        let edit = self.edit();
        let block_bytes = SPACE_MAP_BLOCK_BYTES.max(1 << self.ashift(vdev));
        let map = SpaceMapEdit::create(&edit, block_bytes, self.ashift(vdev)).await?.object();
        let array = {
            let mut maps = self.engine.space_maps.lock();
            maps.maps.insert((vdev, index), map);
            maps.arrays.get(&vdev).copied()
        };
        let array = array.ok_or_else(|| self.damaged("a vdev has no array of space maps"))?;
        edit.write_words(array, index, &[map.0]).await?;
        Ok(map)
    }

    /// Writes a map anew: only what is allocated.
    async fn condense(&mut self, vdev: VdevId, index: u64, start_bytes: u64) -> Result<()> {
        let Some(allocated) = self.group.allocator.allocated(vdev, index) else { return Ok(()) };
        let object = self.space_map(vdev, index).await?;
        let edit = self.edit();
        let map = SpaceMapEdit::new(&edit, object, self.ashift(vdev));
        map.truncate().await?;
        map.append(&changes(MapType::Alloc, &allocated, start_bytes), self.group.pass as u16).await
    }

    async fn should_condense(&self, change: &MetaslabChanges, map: ObjectId) -> Result<bool> {
        let head = SpaceMapHead::of(&self.edit().view().object(map).await?, self.ashift(change.vdev))?;
        let length = head.length_bytes;
        if length <= CONDENSE_BLOCKS * u64::from(SPACE_MAP_BLOCK_BYTES) {
            return Ok(false);
        }
        let Some(allocated) = self.group.allocator.allocated(change.vdev, change.index) else {
            return Ok(false);
        };
        // Two words a range at most, but for ranges too long for one entry, of which there are few.
        let needed = allocated.len() as u64 * 16;
        Ok(length >= needed * CONDENSE_PERCENT / 100)
    }

    pub(super) fn ashift(&self, vdev: VdevId) -> u32 {
        self.group.pool.vdevs().top(vdev).map_or(9, |top| top.ashift)
    }
}

/// Ranges of a vdev as changes of the map of the metaslab that begins at `start_bytes`.
pub(super) fn changes(map_type: MapType, ranges: &Ranges, start_bytes: u64) -> Vec<SpaceMapChange> {
    let change = |(start, end)| SpaceMapChange {
        map_type,
        vdev: None,
        offset_bytes: start - start_bytes,
        run_bytes: end - start,
    };
    ranges.iter().map(change).collect()
}
