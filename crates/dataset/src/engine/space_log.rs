//! The log of space changes: one map a group, for the changes of all metaslabs.
//!
//! ```text
//!   group                5      6      7      8         a map for each
//!   metaslabs changed    a b    b c    c      a
//!   unflushed since      a 5    b 5    c 6              of groups before that one, a metaslab's own map has all
//!
//!   group 9: a's own map gets what the log has of it; a is unflushed since 9
//!   group 10: b, too; now nobody needs map 5 any more
//! ```
//!
//! Idea: what is freed lies anywhere, so a group may change hundreds of metaslabs. Appending to the map of each is a block a metaslab; one
//! log for all is a few blocks in a row. Each metaslab is brought up to date in its turn, before the log has become too long to be read
//! when the pool is opened; until then memory holds what its own map lacks, in which what was allocated and freed again cancels out.
//!
//! Source: OpenZFS `spa_log_spacemap.c`, `metaslab.c` (`metaslab_flush`, `metaslab_unflushed_bump`). How many metaslabs a group flushes is
//! decided more simply here: as many as it takes to go round before the log is full at its present rate.

use std::collections::BTreeMap;

use cenote_format::dnode::ObjectType;
use cenote_format::dsl::deadlist::deadlist_key;
use cenote_format::dsl::names::{pool as names, vdev_zap};
use cenote_format::space_map::MapType;
use cenote_format::units::{ObjectId, Txg, VdevId};
use cenote_pool::VdevConfig;
use cenote_pool::alloc::MetaslabChanges;
use cenote_pool::ranges::Ranges;

use super::SyncContext;
use super::space::{SpaceMaps, changes};
use crate::error::Result;
use crate::features::FeatureCounts;
use crate::live::NewObject;
use crate::spacemaps::{LOG_SHIFT, LogSpacemaps, MetaslabPlace, SpaceMapChange, SpaceMapEdit, SpaceMapHead};
use crate::zap::ZapEdit;

const FEATURE: &str = "log_spacemap";
/// `zfs_log_sm_blksz`, and that of an array of groups, `SPA_OLD_MAXBLOCKSIZE`.
const BLOCK_BYTES: u32 = 128 << 10;
/// `zfs_unflushed_log_block_pct`, as a factor: blocks of the log for each metaslab that is not up to date...
const BLOCKS_PER_METASLAB: u64 = 4;
/// ...but so many at least, `zfs_unflushed_log_block_min`...
const BLOCKS_MIN: u64 = 1000;
/// ...and at most, `zfs_unflushed_log_block_max`.
const BLOCKS_MAX: u64 = 1 << 17;
/// `zfs_unflushed_log_txg_max`: maps of so many groups at most.
const GROUPS_MAX: u64 = 1000;
/// `zfs_max_log_walking`: so many groups tell the present rate.
const RATE_GROUPS: usize = 5;
/// `zfs_unflushed_max_mem_ppm`: what metaslabs' own maps lack may take a thousandth of memory...
const MEMORY_SHARE: u64 = 1000;
/// ...and at most so much, `zfs_unflushed_max_mem_amt`.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// What a range takes in memory, about.
const RANGE_BYTES: u64 = 32;

type MetaslabId = (VdevId, u64);

/// What is in the log.
#[derive(Debug, Default)]
pub(super) struct SpaceLog {
    /// Each group's map, with its length in blocks.
    maps: BTreeMap<Txg, (ObjectId, u64)>,
    /// The metaslabs that have ever been in the log.
    metaslabs: BTreeMap<MetaslabId, Unflushed>,
    /// The next group brings all metaslabs up to date.
    is_to_be_flushed: bool,
}

/// A metaslab, and what its own map lacks.
#[derive(Debug)]
pub(super) struct Unflushed {
    pub(super) start_bytes: u64,
    /// Changes of groups before this are in its own map.
    since: Txg,
    pub(super) allocated: Ranges,
    pub(super) freed: Ranges,
}

impl Unflushed {
    fn since(txg: Txg, start_bytes: u64) -> Unflushed {
        Unflushed { start_bytes, since: txg, allocated: Ranges::default(), freed: Ranges::default() }
    }

    /// Its own map lacks nothing.
    fn is_clean(&self) -> bool {
        self.allocated.is_empty() && self.freed.is_empty()
    }

    fn bytes(&self) -> u64 {
        (self.allocated.len() + self.freed.len()) as u64 * RANGE_BYTES
    }

    /// A change goes into the log: it undoes one that its own map lacks, too, or comes to those.
    fn note(&mut self, map_type: MapType, start: u64, end: u64) {
        let (into, against) = match map_type {
            MapType::Alloc => (&mut self.allocated, &mut self.freed),
            MapType::Free => (&mut self.freed, &mut self.allocated),
        };
        let news = against.complement(start, end);
        against.remove(start, end - start);
        news.iter().for_each(|(start, end)| _ = into.insert(start, end - start));
    }
}

impl SpaceLog {
    /// As an opened pool has it; its vdevs follow.
    pub(super) fn of(log: &LogSpacemaps) -> SpaceLog {
        SpaceLog { maps: log.maps.clone(), ..SpaceLog::default() }
    }

    pub(super) fn add_vdev(&mut self, vdev: &VdevConfig, places: &[MetaslabPlace], log: &LogSpacemaps) {
        let logged = log.by_metaslab(vdev);
        for place in places {
            let Some(since) = place.unflushed else { continue };
            let mut unflushed = Unflushed::since(since, place.start_bytes);
            let changes = logged.get(&place.index).into_iter().flatten();
            for (_, change) in changes.filter(|(txg, _)| place.lacks(*txg)) {
                let end = change.offset_bytes.saturating_add(change.run_bytes);
                unflushed.note(change.map_type, change.offset_bytes, end);
            }
            self.metaslabs.insert((VdevId(vdev.id), place.index), unflushed);
        }
    }

    /// The next group brings all metaslabs up to date: the pool is given up, or a new vdev might take the number of one that is in the log.
    pub(super) fn flush_all(&mut self) {
        self.is_to_be_flushed = true;
    }

    /// The pool keeps a log.
    pub(super) fn is_kept(&self) -> bool {
        !self.maps.is_empty()
    }

    /// How many metaslabs a group brings up to date: all those that are behind have their turn before the log is full.
    fn turns(&self) -> u64 {
        let behind = self.metaslabs.values().filter(|metaslab| !metaslab.is_clean()).count() as u64;
        let recent = self.maps.values().rev().take(RATE_GROUPS).map(|&(_, blocks)| blocks);
        let blocks_per_group = recent.max().unwrap_or(0).max(1);
        let groups = (self.blocks_max() / blocks_per_group).clamp(1, GROUPS_MAX);
        behind.div_ceil(groups)
    }

    fn blocks_max(&self) -> u64 {
        (self.metaslabs.len() as u64 * BLOCKS_PER_METASLAB).clamp(BLOCKS_MIN, BLOCKS_MAX)
    }

    /// The log is longer than it may be, or memory for what it says is, but for what nobody needs who has had a turn.
    fn is_too_long(&self, memory_bytes: u64) -> bool {
        let oldest = self.oldest();
        let needed = || self.maps.range(oldest..).map(|(_, &(_, blocks))| blocks);
        let memory: u64 = self.metaslabs.values().map(Unflushed::bytes).sum();
        needed().sum::<u64>() > self.blocks_max()
            || needed().count() as u64 > GROUPS_MAX
            || memory > (memory_bytes / MEMORY_SHARE).min(MEMORY_BYTES_MAX)
    }

    /// Maps of groups before this serve nobody.
    fn oldest(&self) -> Txg {
        self.metaslabs.values().map(|metaslab| metaslab.since).min().unwrap_or_default()
    }
}

impl SyncContext {
    /// Makes the log's map of this group, if it is not there. Says whether the pool keeps a log.
    pub(super) async fn begin_space_log(&mut self, log: &mut SpaceLog) -> Result<bool> {
        let (txg, edit) = (self.txg(), self.edit());
        if log.maps.contains_key(&txg) {
            return Ok(true);
        }
        let has_zap = |top: &VdevConfig| top.metaslab_array.0 == 0 || top.top_zap.0 != 0;
        let have_zaps = self.engine.config.lock().vdev_tree.children.iter().all(has_zap);
        if !have_zaps || FeatureCounts::of(&edit).count(FEATURE).await?.is_none() {
            return Ok(false);
        }
        let table = match self.find_directory_object(names::LOG_SPACEMAP_ZAP).await? {
            Some(table) => table,
            None => {
                self.use_feature(FEATURE, 1).await?;
                self.make_linked_zap(names::LOG_SPACEMAP_ZAP).await?
            }
        };
        let map = SpaceMapEdit::create(&edit, BLOCK_BYTES, LOG_SHIFT).await?.object();
        ZapEdit::new(&edit, table).add(&*deadlist_key(txg), map.0).await?;
        log.maps.insert(txg, (map, 0));
        Ok(true)
    }

    /// Notes changes of a metaslab in the log.
    pub(super) async fn log_changes(&mut self, log: &mut SpaceLog, change: &MetaslabChanges) -> Result<()> {
        let (txg, id) = (self.txg(), (change.vdev, change.index));
        let Some((map, blocks)) = log.maps.get_mut(&txg) else { return Ok(()) };
        let edit = self.edit();
        let map = SpaceMapEdit::new(&edit, *map, LOG_SHIFT);
        for (map_type, ranges) in [(MapType::Alloc, &change.allocated), (MapType::Free, &change.freed)] {
            let of_vdev = |one| SpaceMapChange { vdev: Some(change.vdev), ..one };
            let changes: Vec<_> = changes(map_type, ranges, 0).into_iter().map(of_vdev).collect();
            map.append(&changes, self.group.pass as u16).await?;
        }
        let head = SpaceMapHead::of(&edit.view().object(map.object()).await?, LOG_SHIFT)?;
        *blocks = head.length_bytes.div_ceil(BLOCK_BYTES.into());
        let known = log.metaslabs.get(&id).filter(|metaslab| !metaslab.is_clean());
        if known.is_none() {
            // Whatever the log says of it up to now is in its own map, or came to nothing.
            self.set_unflushed(id, txg).await?;
            log.metaslabs.insert(id, Unflushed::since(txg, change.start_bytes));
        }
        if let Some(metaslab) = log.metaslabs.get_mut(&id) {
            change.allocated.iter().for_each(|(start, end)| metaslab.note(MapType::Alloc, start, end));
            change.freed.iter().for_each(|(start, end)| metaslab.note(MapType::Free, start, end));
        }
        Ok(())
    }

    /// Brings those metaslabs up to date that have waited longest, and gives up the maps that served only them.
    pub(super) async fn flush_metaslabs(&mut self, maps: &mut SpaceMaps) -> Result<()> {
        let txg = self.txg();
        let memory_bytes = self.engine.runtime.memory_bytes();
        let is_all = std::mem::take(&mut maps.log.is_to_be_flushed);
        let mut turns = if is_all { u64::MAX } else { maps.log.turns() };
        let mut waiting: Vec<(Txg, MetaslabId)> =
            maps.log.metaslabs.iter().map(|(&id, metaslab)| (metaslab.since, id)).collect();
        waiting.sort_unstable();
        for (_, id) in waiting {
            if turns == 0 && !maps.log.is_too_long(memory_bytes) {
                break;
            }
            let Some(metaslab) = maps.log.metaslabs.get_mut(&id) else { continue };
            let flushed = std::mem::replace(metaslab, Unflushed::since(txg, metaslab.start_bytes));
            if !flushed.is_clean() {
                self.flush_metaslab(maps, id, &flushed).await?;
                turns = turns.saturating_sub(1);
            }
            self.set_unflushed(id, txg).await?;
        }
        self.forget_maps(&mut maps.log).await
    }

    /// Gives up the maps that serve nobody any more.
    async fn forget_maps(&mut self, log: &mut SpaceLog) -> Result<()> {
        let needed = log.maps.split_off(&log.oldest().min(self.txg()));
        let gone = std::mem::replace(&mut log.maps, needed);
        if gone.is_empty() {
            return Ok(());
        }
        let edit = self.edit();
        let table = self.directory_object(names::LOG_SPACEMAP_ZAP).await?;
        for (txg, (map, _)) in gone {
            SpaceMapEdit::new(&edit, map, LOG_SHIFT).free().await?;
            ZapEdit::new(&edit, table).remove(&*deadlist_key(txg)).await?;
        }
        Ok(())
    }

    /// Notes on disk since when a metaslab's own map lacks changes.
    async fn set_unflushed(&mut self, (vdev, index): MetaslabId, since: Txg) -> Result<()> {
        let edit = self.edit();
        let fields = ZapEdit::new(&edit, self.top_zap(vdev)?);
        let field = fields.get(vdev_zap::MS_UNFLUSHED_PHYS_TXGS).await?.and_then(|value| value.as_u64());
        let array = match field {
            Some(array) => ObjectId(array),
            None => {
                let new = NewObject::of(ObjectType::UINT64_METADATA).block_bytes(BLOCK_BYTES);
                let array = edit.create(&new).await?;
                fields.add(vdev_zap::MS_UNFLUSHED_PHYS_TXGS, array.0).await?;
                array
            }
        };
        edit.write_words(array, index, &[since.0]).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(ranges: &Ranges) -> Vec<(u64, u64)> {
        ranges.iter().collect()
    }

    #[test]
    fn what_is_allocated_and_freed_again_comes_to_nothing() {
        let mut metaslab = Unflushed::since(Txg(5), 0);
        metaslab.note(MapType::Alloc, 0, 100);
        metaslab.note(MapType::Free, 20, 50);
        // 100..150 was allocated before the log began.
        metaslab.note(MapType::Free, 90, 150);
        assert_eq!(
            (ranges(&metaslab.allocated), ranges(&metaslab.freed)),
            (vec![(0, 20), (50, 90)], vec![(100, 150)])
        );
        metaslab.note(MapType::Alloc, 100, 150);
        metaslab.note(MapType::Free, 0, 20);
        metaslab.note(MapType::Free, 50, 90);
        assert!(metaslab.is_clean());
    }

    /// A log of so many groups, with so many blocks each, of which one metaslab a group has not caught up.
    fn log(groups: u64, blocks: u64, metaslabs: u64) -> SpaceLog {
        let mut log = SpaceLog::default();
        log.maps.extend((1..=groups).map(|txg| (Txg(txg), (ObjectId(txg), blocks))));
        for index in 0..metaslabs {
            let mut metaslab = Unflushed::since(Txg(1 + index % groups), 0);
            metaslab.note(MapType::Alloc, 0, 100);
            log.metaslabs.insert((VdevId(0), index), metaslab);
        }
        log
    }

    #[test]
    fn all_have_their_turn_before_the_log_is_full() {
        assert_eq!(log(10, 1, 1).turns(), 1, "one at least, so that a small pool's log stays short");
        // Room for 4,000 blocks, which 10 a group fill in 400 groups.
        assert_eq!(log(10, 10, 1000).turns(), 3);
        assert_eq!(log(10, 2000, 200).turns(), 200, "each group fills it");
        assert_eq!(log(10, 1, 0).turns(), 0);
    }

    #[test]
    fn the_log_is_bounded_in_blocks_groups_and_memory() {
        let memory_bytes = 1 << 30;
        assert!(!log(1000, 1, 1000).is_too_long(memory_bytes));
        assert!(log(1001, 1, 1001).is_too_long(memory_bytes), "groups");
        assert!(log(3, 400, 3).is_too_long(memory_bytes), "blocks");
        assert!(log(3, 1, 3).is_too_long(90_000), "memory");
        // What only metaslabs needed that have caught up is gone in a moment.
        let mut caught_up = log(3, 400, 3);
        caught_up.metaslabs.values_mut().for_each(|metaslab| metaslab.since = Txg(3));
        assert!(!caught_up.is_too_long(memory_bytes));
    }
}
