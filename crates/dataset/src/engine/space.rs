//! Space maps: what each pass allocated and freed is noted on disk.
//!
//! Idea: a metaslab's map is a log; each pass appends its changes. When the log has become much longer than what it says, it
//! is written anew from what is allocated in memory. In a pool with feature `log_spacemap` the changes of all metaslabs go to one
//! map of the group first ([`super::space_log`]).
//!
//! Source: OpenZFS `metaslab.c` (`metaslab_sync`, `metaslab_condense`), `space_map.c` (`space_map_write`).

use std::collections::BTreeMap;

use cenote_format::space_map::MapType;
use cenote_format::units::{ObjectId, VdevId};
use cenote_pool::ranges::Ranges;

use super::SyncContext;
use super::space_log::{SpaceLog, Unflushed};
use crate::error::Result;
use crate::mos::Mos;
use crate::spacemaps::{LogSpacemaps, SpaceMapChange, SpaceMapEdit, SpaceMapHead};

/// `zfs_metaslab_sm_blksz_no_log`...
const BLOCK_BYTES: u32 = 16 << 10;
/// ...and `zfs_metaslab_sm_blksz_with_log`: what has gathered comes at once.
const BLOCK_BYTES_WITH_LOG: u32 = 128 << 10;
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
    /// What is not in them yet.
    pub(super) log: SpaceLog,
}

impl SpaceMaps {
    /// As an opened pool has them.
    pub(super) async fn of(mos: &Mos, log: &LogSpacemaps) -> Result<SpaceMaps> {
        let mut all = SpaceMaps { log: SpaceLog::of(log), ..SpaceMaps::default() };
        for vdev in mos.pool().vdevs().tops().filter(|vdev| vdev.metaslab_array.0 != 0) {
            let id = VdevId(vdev.id);
            all.add_vdev(id, vdev.metaslab_array);
            let places = mos.metaslab_places(vdev).await?;
            all.maps.extend(places.iter().filter_map(|place| Some(((id, place.index), place.map?))));
            all.log.add_vdev(vdev, &places, log);
        }
        Ok(all)
    }

    /// A vdev whose maps' numbers are in that object.
    pub(super) fn add_vdev(&mut self, vdev: VdevId, array: ObjectId) {
        self.arrays.insert(vdev, array);
    }
}

impl SyncContext {
    /// Notes what this pass allocated and freed.
    pub(super) async fn write_space_maps(&mut self) -> Result<()> {
        let engine = self.engine.clone();
        let maps = &mut *engine.space_maps.lock().await;
        let is_first = self.group.pass == 1;
        let is_logged = self.begin_space_log(&mut maps.log).await?;
        if is_first && is_logged {
            self.flush_metaslabs(maps).await?;
        }
        for change in self.group.allocator.take_changes(self.group.txg) {
            let object = self.space_map(maps, change.vdev, change.index).await?;
            if is_logged {
                self.log_changes(&mut maps.log, &change).await?;
            } else {
                let ranges = (&change.allocated, &change.freed);
                self.append(object, change.vdev, change.start_bytes, ranges).await?;
                if is_first && self.should_condense(change.vdev, change.index, object).await? {
                    self.condense(object, change.vdev, change.index, change.start_bytes).await?;
                }
            }
            let edit = self.edit();
            let map = SpaceMapEdit::new(&edit, object, self.ashift(change.vdev));
            map.set_free_ranges(&change.free_ranges).await?;
            self.write_kept(change.vdev, &change.checkpointed).await?;
            self.note_removal(&change).await?;
        }
        self.write_obsolete().await
    }

    /// Brings a metaslab's own map up to date: what has changed since it was is appended, or all of it is written anew.
    pub(super) async fn flush_metaslab(
        &mut self,
        maps: &mut SpaceMaps,
        (vdev, index): (VdevId, u64),
        unflushed: &Unflushed,
    ) -> Result<()> {
        let object = self.space_map(maps, vdev, index).await?;
        if self.should_condense(vdev, index, object).await? {
            return self.condense(object, vdev, index, unflushed.start_bytes).await;
        }
        self.append(object, vdev, unflushed.start_bytes, (&unflushed.allocated, &unflushed.freed)).await
    }

    /// Appends to a metaslab's own map.
    async fn append(
        &self,
        map: ObjectId,
        vdev: VdevId,
        start_bytes: u64,
        (allocated, freed): (&Ranges, &Ranges),
    ) -> Result<()> {
        let (edit, pass) = (self.edit(), self.group.pass as u16);
        let map = SpaceMapEdit::new(&edit, map, self.ashift(vdev));
        map.append(&changes(MapType::Alloc, allocated, start_bytes), pass).await?;
        map.append(&changes(MapType::Free, freed, start_bytes), pass).await
    }

    /// A metaslab's map, made when it is needed first.
    async fn space_map(&mut self, maps: &mut SpaceMaps, vdev: VdevId, index: u64) -> Result<ObjectId> {
        if let Some(&map) = maps.maps.get(&(vdev, index)) {
            return Ok(map);
        }
        let array = maps.arrays.get(&vdev).copied();
        let array = array.ok_or_else(|| self.damaged("a vdev has no array of space maps"))?;
        let edit = self.edit();
        let block_bytes = if maps.log.is_kept() { BLOCK_BYTES_WITH_LOG } else { BLOCK_BYTES };
        let block_bytes = block_bytes.max(1 << self.ashift(vdev));
        let map = SpaceMapEdit::create(&edit, block_bytes, self.ashift(vdev)).await?.object();
        edit.write_words(array, index, &[map.0]).await?;
        maps.maps.insert((vdev, index), map);
        Ok(map)
    }

    /// Writes a map anew: only what is allocated.
    async fn condense(&self, map: ObjectId, vdev: VdevId, index: u64, start_bytes: u64) -> Result<()> {
        let Some(allocated) = self.group.allocator.allocated(vdev, index) else { return Ok(()) };
        let (edit, ashift) = (self.edit(), self.ashift(vdev));
        let head = SpaceMapHead::of(&edit.view().object(map).await?, ashift)?;
        let map = SpaceMapEdit::new(&edit, map, ashift);
        map.truncate().await?;
        map.append(&changes(MapType::Alloc, &allocated, start_bytes), self.group.pass as u16).await?;
        match head.free_ranges {
            Some(free_ranges) => map.set_free_ranges(&free_ranges).await,
            None => Ok(()),
        }
    }

    async fn should_condense(&self, vdev: VdevId, index: u64, map: ObjectId) -> Result<bool> {
        let object = self.edit().view().object(map).await?;
        let length = SpaceMapHead::of(&object, self.ashift(vdev))?.length_bytes;
        if length <= CONDENSE_BLOCKS * object.block_bytes() {
            return Ok(false);
        }
        let Some(allocated) = self.group.allocator.allocated(vdev, index) else {
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
