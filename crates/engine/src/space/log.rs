//! The space map log: one map per txg with the changes of all metaslabs.
//!
//! ```text
//!   txg                5      6      7      8         a map for each
//!   metaslabs changed    a b    b c    c      a
//!   unflushed since      a 5    b 5    c 6           a metaslab's own map covers all txgs before
//!
//!   txg 9: flush the changes of a to its own map; a is unflushed since 9
//!   txg 10: flush b; now map 5 is obsolete
//! ```
//!
//! Idea: frees are scattered, so a txg may change hundreds of metaslabs. Appending to each map costs a block;
//! one log costs a few sequential blocks. Metaslabs are flushed in turn, before the log becomes too long to
//! read at import. Until then memory holds the changes that their own maps lack, where an allocation and its
//! free cancel out.
//!
//! Source: OpenZFS `spa_log_spacemap.c`, `metaslab.c` (`metaslab_flush`, `metaslab_unflushed_bump`). The
//! number of flushes per txg is simpler here: enough to go round before the log is full at its present rate.

use std::collections::BTreeMap;

use cenote_dataset::spacemaps::{LogMap, LogSpacemaps, MetaslabPlace};
use cenote_format::space_map::MapType;
use cenote_format::units::{SPA_OLD_MAXBLOCKSIZE, Txg, VdevId};
use cenote_pool::VdevConfig;
use cenote_pool::ranges::Ranges;

/// `zfs_log_sm_blksz`, and the block size of an array of txgs.
pub(crate) const BLOCK_BYTES: u32 = SPA_OLD_MAXBLOCKSIZE as u32;
/// `zfs_max_log_walking`: txgs that determine the present rate.
const RATE_TXGS: usize = 5;
/// Memory of a range, about.
const RANGE_BYTES: u64 = 32;

/// Bounds of the log, from tunables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogBounds {
    /// `zfs_unflushed_log_txg_max`.
    pub(crate) txgs: u64,
    /// `zfs_unflushed_log_block_pct`: log blocks per unflushed metaslab...
    pub(crate) blocks_percent: u64,
    /// ...but at least `zfs_unflushed_log_block_min`...
    pub(crate) blocks_min: u64,
    /// ...and at most `zfs_unflushed_log_block_max`.
    pub(crate) blocks_max: u64,
    /// `zfs_unflushed_max_mem_ppm`: memory that unflushed changes may take, in millionths...
    pub(crate) memory_ppm: u64,
    /// ...and at most `zfs_unflushed_max_mem_amt`.
    pub(crate) memory_bytes_max: u64,
}

impl LogBounds {
    fn blocks(&self, metaslabs: usize) -> u64 {
        let blocks = (metaslabs as u64).saturating_mul(self.blocks_percent) / 100;
        blocks.max(self.blocks_min).min(self.blocks_max)
    }

    fn memory(&self, all_bytes: u64) -> u64 {
        let share = u128::from(all_bytes) * u128::from(self.memory_ppm) / 1_000_000;
        u64::try_from(share).unwrap_or(u64::MAX).min(self.memory_bytes_max)
    }
}

pub(crate) type MetaslabId = (VdevId, u64);

#[derive(Debug, Default)]
pub(crate) struct SpaceLog {
    pub(crate) maps: BTreeMap<Txg, LogMap>,
    /// Metaslabs that have ever been in the log.
    pub(crate) metaslabs: BTreeMap<MetaslabId, Unflushed>,
    pub(crate) is_to_be_flushed: bool,
}

#[derive(Debug)]
pub(crate) struct Unflushed {
    pub(crate) start_bytes: u64,
    /// Earlier txgs are in its own map.
    pub(crate) since: Txg,
    /// Last change in the log, if made by this engine.
    changed: Txg,
    pub(crate) allocated: Ranges,
    pub(crate) freed: Ranges,
}

impl Unflushed {
    pub(crate) fn since(txg: Txg, start_bytes: u64) -> Unflushed {
        let (allocated, freed) = Default::default();
        Unflushed { start_bytes, since: txg, changed: Txg(0), allocated, freed }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.allocated.is_empty() && self.freed.is_empty()
    }

    fn bytes(&self) -> u64 {
        (self.allocated.len() + self.freed.len()) as u64 * RANGE_BYTES
    }

    /// Adds a change; it cancels an opposite one not flushed either.
    pub(crate) fn note(&mut self, map_type: MapType, start: u64, end: u64) {
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
    /// From an opened pool, without its vdevs.
    pub(crate) fn of(log: &LogSpacemaps) -> SpaceLog {
        SpaceLog { maps: log.maps.clone(), ..SpaceLog::default() }
    }

    pub(crate) fn add_vdev(&mut self, vdev: &VdevConfig, places: &[MetaslabPlace], log: &LogSpacemaps) {
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

    /// Notes a change. Returns whether this is the first txg that the metaslab's own map lacks: earlier
    /// changes are in there, or cancel out, perhaps with this txg's.
    pub(crate) fn begins_anew(&mut self, id: MetaslabId, txg: Txg, start_bytes: u64) -> bool {
        let known = self.metaslabs.get(&id);
        let begins = known.is_none_or(|metaslab| metaslab.is_clean() && metaslab.changed != txg);
        if begins {
            self.metaslabs.insert(id, Unflushed::since(txg, start_bytes));
        }
        if let Some(metaslab) = self.metaslabs.get_mut(&id) {
            metaslab.changed = txg;
        }
        begins
    }

    /// Flushes all metaslabs in the next txg: before export, and before a new vdev reuses the number of one
    /// in the log.
    pub(crate) fn flush_all(&mut self) {
        self.is_to_be_flushed = true;
    }

    pub(crate) fn is_kept(&self) -> bool {
        !self.maps.is_empty()
    }

    /// All metaslabs have their turn before the log is full.
    pub(crate) fn turns(&self, bounds: &LogBounds) -> u64 {
        let behind = self.metaslabs.values().filter(|metaslab| !metaslab.is_clean()).count() as u64;
        let recent = self.maps.values().rev().take(RATE_TXGS).map(|map| map.blocks);
        let blocks_per_txg = recent.max().unwrap_or(0).max(1);
        let txgs = (bounds.blocks(self.metaslabs.len()) / blocks_per_txg).clamp(1, bounds.txgs.max(1));
        behind.div_ceil(txgs)
    }

    /// Whether the maps still needed have too many blocks or txgs, or unflushed changes take too much memory.
    pub(crate) fn is_too_long(&self, bounds: &LogBounds, memory_bytes: u64) -> bool {
        let oldest = self.oldest();
        let needed = || self.maps.range(oldest..).map(|(_, map)| map.blocks);
        let memory: u64 = self.metaslabs.values().map(Unflushed::bytes).sum();
        needed().sum::<u64>() > bounds.blocks(self.metaslabs.len())
            || needed().count() as u64 > bounds.txgs
            || memory > bounds.memory(memory_bytes)
    }

    /// Maps of earlier txgs are obsolete.
    pub(crate) fn oldest(&self) -> Txg {
        self.metaslabs.values().map(|metaslab| metaslab.since).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use cenote_format::units::ObjectId;

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

    /// A later pass needs the free of txg 16, which an earlier pass cancelled out.
    #[test]
    fn changes_of_a_txg_that_cancel_out_with_earlier_ones_do_not_begin_anew() {
        let (mut log, id) = (SpaceLog::default(), (VdevId(0), 2));
        assert!(log.begins_anew(id, Txg(16), 0));
        log.metaslabs.get_mut(&id).unwrap().note(MapType::Free, 0, 100);
        assert!(!log.begins_anew(id, Txg(19), 0));
        log.metaslabs.get_mut(&id).unwrap().note(MapType::Alloc, 0, 100);
        assert!(log.metaslabs[&id].is_clean());
        assert!(!log.begins_anew(id, Txg(19), 0));
        assert_eq!(log.metaslabs[&id].since, Txg(16));
        assert!(log.begins_anew(id, Txg(20), 0));
        assert_eq!(log.metaslabs[&id].since, Txg(20));
    }

    /// The defaults.
    const BOUNDS: LogBounds = LogBounds {
        txgs: 1000,
        blocks_percent: 400,
        blocks_min: 1000,
        blocks_max: 1 << 17,
        memory_ppm: 1000,
        memory_bytes_max: 1 << 30,
    };

    /// A log in which one metaslab is unflushed since each of the first txgs.
    fn log(txgs: u64, blocks: u64, metaslabs: u64) -> SpaceLog {
        let mut log = SpaceLog::default();
        log.maps.extend((1..=txgs).map(|txg| (Txg(txg), LogMap { object: ObjectId(txg), blocks })));
        for index in 0..metaslabs {
            let mut metaslab = Unflushed::since(Txg(1 + index % txgs), 0);
            metaslab.note(MapType::Alloc, 0, 100);
            log.metaslabs.insert((VdevId(0), index), metaslab);
        }
        log
    }

    #[test]
    fn all_have_their_turn_before_the_log_is_full() {
        assert_eq!(log(10, 1, 1).turns(&BOUNDS), 1, "one at least, so that a small pool's log stays short");
        // Room for 4,000 blocks, which 10 a txg fill in 400 txgs.
        assert_eq!(log(10, 10, 1000).turns(&BOUNDS), 3);
        assert_eq!(log(10, 2000, 200).turns(&BOUNDS), 200, "each txg fills it");
        assert_eq!(log(10, 1, 0).turns(&BOUNDS), 0);
    }

    #[test]
    fn the_log_is_bounded_in_blocks_groups_and_memory() {
        let memory_bytes = 1 << 30;
        assert!(!log(1000, 1, 1000).is_too_long(&BOUNDS, memory_bytes));
        assert!(log(1001, 1, 1001).is_too_long(&BOUNDS, memory_bytes), "txgs");
        assert!(log(3, 400, 3).is_too_long(&BOUNDS, memory_bytes), "blocks");
        assert!(log(3, 1, 3).is_too_long(&BOUNDS, 90_000), "memory");
        // Maps needed only by flushed metaslabs do not count.
        let mut caught_up = log(3, 400, 3);
        caught_up.metaslabs.values_mut().for_each(|metaslab| metaslab.since = Txg(3));
        assert!(!caught_up.is_too_long(&BOUNDS, memory_bytes));
    }
}
