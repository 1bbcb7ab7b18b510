//! Allocated ranges of each vdev, from the pool's space maps.
//!
//! Idea: each metaslab of a vdev has a space map, a log of allocations and frees that replays to its
//! allocated ranges. With feature `log_spacemap`, one map per txg first collects the changes of all
//! metaslabs; a metaslab's own map is flushed now and then, and a table per vdev records up to which txg. So:
//!
//! ```text
//!   allocated = replay(metaslab's own map) + changes in the maps of txgs >= the metaslab's unflushed txg
//! ```
//!
//! Space maps are written with the changes they describe, so for an uberblock they are exact.
//!
//! Memory: one vdev's ranges at a time, one range per allocated run. The log maps of all txgs are read once
//! and kept; OpenZFS bounds their size.
//!
//! Source: OpenZFS `space_map.c`, `metaslab.c`, `spa_log_spacemap.c`.

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_format::dsl::deadlist::parse_deadlist_key;
use cenote_format::dsl::names::{pool as names, vdev_zap};
use cenote_format::space_map::{MapType, SPACE_MAP_SIZE_V0, SpaceMapEntry, SpaceMapPhys, SpaceMapReader};
use cenote_format::units::{BlockId, ObjectId, Txg, VdevId};
use cenote_format::words::Phys;
use cenote_object::{DatasetError, Object, Result, Zap};
use cenote_pool::VdevConfig;
use cenote_pool::alloc::{Allocator, NewMetaslab, SizeHistogram};
use futures::{StreamExt, TryStreamExt, stream};

use crate::mos::Mos;

pub use cenote_pool::alloc::has_embedded_log;
pub use cenote_pool::ranges::{Overlap, Ranges};

/// Log space maps count 512-byte sectors.
pub const LOG_SHIFT: u32 = 9;

/// Concurrent map reads: there are hundreds of maps, mostly one block, scattered over the pool.
const MAPS_AT_ONCE: usize = 16;

/// Bound on metaslabs per vdev; OpenZFS makes at most 2^17 (`zfs_vdev_ms_count_limit`).
const MAX_METASLABS: u64 = 1 << 20;

/// Location and accounting of a metaslab.
#[derive(Debug, Clone, Copy)]
pub struct MetaslabPlace {
    /// Index within the vdev.
    pub index: u64,
    /// Start on the vdev, in bytes.
    pub start_bytes: u64,
    /// Length in bytes, without the ends that a dRAID leaves unused.
    pub size_bytes: u64,
    /// Space map; `None` if never used.
    pub map: Option<ObjectId>,
    /// First txg whose changes its own map lacks; `None` if it has all.
    pub unflushed: Option<Txg>,
}

/// Allocation of a metaslab.
#[derive(Debug, Clone)]
pub struct Metaslab {
    /// Location.
    pub place: MetaslabPlace,
    /// Allocated ranges, as vdev offsets.
    pub allocated: Ranges,
    /// Bytes allocated per its own map, without the log space maps.
    pub own_map_bytes: u64,
    /// Contradictions in the log: ranges allocated twice, or freed while free.
    pub overlaps: Vec<Overlap>,
}

/// Header of a space map.
#[derive(Debug, Clone)]
pub struct SpaceMapHead {
    /// Bytes of log.
    pub length_bytes: u64,
    /// Bytes allocated less bytes freed at the last write. Negative for a map of frees only.
    net_bytes: i64,
    /// Free ranges by size at that time; `None` if not counted.
    pub free_ranges: Option<SizeHistogram>,
}

/// Log space map of a txg.
#[derive(Debug, Clone, Copy)]
pub struct LogMap {
    /// Object.
    pub object: ObjectId,
    /// Length in blocks.
    pub blocks: u64,
}

/// A metaslab with an unreadable map. It counts as allocated, except ranges that the log frees.
#[derive(Debug)]
pub struct LostMap {
    /// Vdev.
    pub vdev: VdevId,
    /// Location, with a map.
    pub place: MetaslabPlace,
    /// Read error.
    pub why: DatasetError,
}

/// Logged changes of one vdev by metaslab, in order.
pub type Logged<'a> = BTreeMap<u64, Vec<&'a (Txg, SpaceMapEntry)>>;

/// Logged changes, not yet in the metaslabs' own maps, in order.
#[derive(Debug, Default)]
pub struct LogSpacemaps {
    /// Map of each txg.
    pub maps: BTreeMap<Txg, LogMap>,
    /// (txg, change) per vdev.
    changes: BTreeMap<VdevId, Vec<(Txg, SpaceMapEntry)>>,
}

impl Mos {
    /// Reads the log space maps of all txgs, for [`Mos::metaslabs`].
    ///
    /// # Errors
    /// A map is damaged.
    #[boxed]
    pub async fn log_spacemaps(&self) -> Result<LogSpacemaps> {
        let mut log = LogSpacemaps::default();
        let Some(zap) = self.directory_zap(names::LOG_SPACEMAP_ZAP).await? else { return Ok(log) };
        for entry in zap.to_vec().await? {
            // Keys are hexadecimal txgs, as in a deadlist.
            let txg =
                parse_deadlist_key(&entry.name).map_err(|e| self.objset().format(zap.object().id(), e))?;
            let id = entry.value.as_u64().ok_or_else(|| zap.object().damaged("names a map by no number"))?;
            log.maps.insert(txg, LogMap { object: ObjectId(id), blocks: 0 });
        }
        let read = async |txg: Txg, map: LogMap| Ok::<_, DatasetError>((txg, self.read_log_map(map).await?));
        let maps: Vec<_> = log.maps.iter().map(|(&txg, &map)| read(txg, map)).collect();
        let mut maps = stream::iter(maps).buffered(MAPS_AT_ONCE);
        while let Some((txg, (map, changes))) = maps.try_next().await? {
            log.maps.insert(txg, map);
            for change in changes {
                let vdev = change.vdev.unwrap_or_default();
                log.changes.entry(vdev).or_default().push((txg, change));
            }
        }
        Ok(log)
    }

    async fn read_log_map(&self, map: LogMap) -> Result<(LogMap, Vec<SpaceMapEntry>)> {
        let object = self.objset().object(map.object).await?;
        let length_bytes = SpaceMapHead::of(&object, LOG_SHIFT)?.length_bytes;
        let mut changes = Vec::new();
        read_space_map(&object, LOG_SHIFT, |change| changes.push(change)).await?;
        Ok((LogMap { blocks: length_bytes.div_ceil(object.block_bytes().max(1)), ..map }, changes))
    }

    /// Metaslabs of a top-level vdev with their allocation; none for a removed vdev.
    ///
    /// # Errors
    /// A space map is damaged.
    #[boxed]
    pub async fn metaslabs(&self, vdev: &VdevConfig, log: &LogSpacemaps) -> Result<Vec<Metaslab>> {
        let loaded = self.load_metaslabs(vdev, log).await?;
        loaded.into_iter().map(|(metaslab, lost)| lost.map_or(Ok(metaslab), Err)).collect()
    }

    /// Like [`Mos::metaslabs`]; a metaslab with an unreadable map is full and carries the error.
    async fn load_metaslabs(
        &self,
        vdev: &VdevConfig,
        log: &LogSpacemaps,
    ) -> Result<Vec<(Metaslab, Option<DatasetError>)>> {
        let logged = log.by_metaslab(vdev);
        let places = self.metaslab_places(vdev).await?;
        let load = async |place| match self.metaslab(vdev, place, &logged).await {
            Ok(metaslab) => (metaslab, None),
            Err(why) => (Metaslab::full(place, &logged), Some(why)),
        };
        let maps: Vec<_> = places.into_iter().map(load).collect();
        Ok(stream::iter(maps).buffered(MAPS_AT_ONCE).collect().await)
    }

    /// Reads one metaslab; `logged` is from [`LogSpacemaps::by_metaslab`].
    ///
    /// # Errors
    /// Its space map is damaged.
    #[boxed]
    pub async fn metaslab(
        &self,
        vdev: &VdevConfig,
        place: MetaslabPlace,
        logged: &Logged<'_>,
    ) -> Result<Metaslab> {
        let mut metaslab = self.own_map(vdev, place).await?;
        metaslab.apply_logged(logged);
        Ok(metaslab)
    }

    /// Builds the pool's allocator from the space maps of all vdevs.
    ///
    /// # Errors
    /// A space map is damaged or contradicts itself: ranges that it calls free may be in use.
    #[boxed]
    pub async fn allocator(&self, log: &LogSpacemaps) -> Result<Allocator> {
        let (allocator, lost) = self.allocator_despite_losses(log).await?;
        lost.into_iter().next().map_or(Ok(allocator), |lost| Err(lost.why))
    }

    /// Like [`Mos::allocator`], with unreadable maps tolerated: these metaslabs start full.
    ///
    /// # Errors
    /// A readable map contradicts itself, or the location of a vdev's maps is unknown.
    #[boxed]
    pub async fn allocator_despite_losses(&self, log: &LogSpacemaps) -> Result<(Allocator, Vec<LostMap>)> {
        let (allocator, mut lost) = (Allocator::new(), Vec::new());
        for vdev in &self.pool_config().vdevs {
            let mut metaslabs = Vec::new();
            for (metaslab, why) in self.load_metaslabs(vdev, log).await? {
                lost.extend(why.map(|why| LostMap { vdev: VdevId(vdev.id), place: metaslab.place, why }));
                metaslabs.push(metaslab);
            }
            if let Some(bad) = metaslabs.iter().find(|metaslab| !metaslab.overlaps.is_empty()) {
                let why = format!("vdev {} metaslab {}: freed or allocated twice", vdev.id, bad.place.index);
                return Err(self.objset().damaged(bad.place.map.unwrap_or_default(), why));
            }
            let loaded = metaslabs.into_iter().map(|Metaslab { place, allocated, .. }| NewMetaslab {
                index: place.index,
                start_bytes: place.start_bytes,
                size_bytes: place.size_bytes,
                allocated,
            });
            allocator.add_vdev(vdev, loaded.collect());
        }
        Ok((allocator, lost))
    }

    /// Division of a top-level vdev into metaslabs; none for a removed vdev.
    ///
    /// # Errors
    /// The array of space maps or of txgs is damaged.
    #[boxed]
    pub async fn metaslab_places(&self, vdev: &VdevConfig) -> Result<Vec<MetaslabPlace>> {
        if vdev.metaslab_array.0 == 0 || !(9..64).contains(&vdev.metaslab_shift) || vdev.ashift >= 64 {
            return Ok(Vec::new());
        }
        let array = self.objset().object(vdev.metaslab_array).await?;
        let count = vdev.asize_bytes >> vdev.metaslab_shift;
        if count > MAX_METASLABS {
            return Err(array.damaged("would have more metaslabs than a vdev can have"));
        }
        // Both arrays end at the last metaslab ever used.
        let maps = array.read_words(0, count.min(array.capacity_bytes() / 8) as usize).await?;
        let unflushed = self.unflushed(vdev, count).await?;
        let entry = |array: &[u64], index: u64| array.get(index as usize).copied().filter(|&word| word != 0);
        let place = |index| {
            let (start_bytes, size_bytes) = metaslab_extent(vdev, index);
            let (map, unflushed) = (entry(&maps, index).map(ObjectId), entry(&unflushed, index).map(Txg));
            MetaslabPlace { index, start_bytes, size_bytes, map, unflushed }
        };
        Ok((0..count).map(place).collect())
    }

    async fn own_map(&self, vdev: &VdevConfig, place: MetaslabPlace) -> Result<Metaslab> {
        let (allocated, overlaps) = (Ranges::default(), Vec::new());
        let mut metaslab = Metaslab { place, allocated, own_map_bytes: 0, overlaps };
        if let Some(map) = place.map {
            let object = self.objset().object(map).await?;
            read_space_map(&object, vdev.ashift, |change| {
                let offset = place.start_bytes.saturating_add(change.offset_bytes);
                metaslab.apply(change.map_type, offset, change.run_bytes);
            })
            .await?;
            metaslab.own_map_bytes = metaslab.allocated_bytes();
        }
        Ok(metaslab)
    }

    /// Per metaslab, the first txg whose changes its own map lacks; 0 if none.
    async fn unflushed(&self, vdev: &VdevConfig, count: u64) -> Result<Vec<u64>> {
        let Some(zap) = self.vdev_zap(vdev).await? else { return Ok(Vec::new()) };
        let Some(id) = zap.get_u64(vdev_zap::MS_UNFLUSHED_PHYS_TXGS).await? else { return Ok(Vec::new()) };
        let object = self.objset().object(ObjectId(id)).await?;
        object.read_words(0, count.min(object.capacity_bytes() / 8) as usize).await
    }

    /// Ranges of a vdev freed since, but held by the checkpoint.
    ///
    /// # Errors
    /// The map is damaged.
    #[boxed]
    pub async fn checkpointed(&self, vdev: &VdevConfig) -> Result<Ranges> {
        let mut ranges = Ranges::default();
        if let Some(map) = self.checkpoint_map(vdev).await? {
            read_space_map(&map, vdev.ashift, |change| {
                ranges.insert(change.offset_bytes, change.run_bytes);
            })
            .await?;
        }
        Ok(ranges)
    }

    /// Bytes that the checkpoint holds on a vdev, from the map's header.
    ///
    /// # Errors
    /// The header is damaged.
    #[boxed]
    pub async fn checkpoint_bytes(&self, vdev: &VdevConfig) -> Result<u64> {
        let Some(map) = self.checkpoint_map(vdev).await? else { return Ok(0) };
        Ok(SpaceMapHead::of(&map, vdev.ashift)?.net_bytes.min(0).unsigned_abs())
    }

    /// Space map of ranges freed since the checkpoint: frees only.
    async fn checkpoint_map(&self, vdev: &VdevConfig) -> Result<Option<Object>> {
        let Some(zap) = self.vdev_zap(vdev).await? else { return Ok(None) };
        match zap.get_u64(vdev_zap::POOL_CHECKPOINT_SM).await? {
            Some(id) => self.objset().object(ObjectId(id)).await.map(Some),
            None => Ok(None),
        }
    }

    /// ZAP of a top-level vdev.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn vdev_zap(&self, vdev: &VdevConfig) -> Result<Option<Zap>> {
        match vdev.top_zap {
            ObjectId(0) => Ok(None),
            id => Zap::open_id(self.objset(), id).await.map(Some),
        }
    }
}

impl MetaslabPlace {
    /// Whether that txg's changes are in the log only.
    pub fn lacks(&self, txg: Txg) -> bool {
        self.unflushed.is_some_and(|since| txg >= since)
    }
}

impl LogSpacemaps {
    /// Txgs with a log map, in order.
    pub fn txgs(&self) -> impl Iterator<Item = Txg> + '_ {
        self.maps.keys().copied()
    }

    /// Changes of a vdev by metaslab, in order.
    pub fn by_metaslab(&self, vdev: &VdevConfig) -> Logged<'_> {
        let mut logged: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for change in self.changes.get(&VdevId(vdev.id)).into_iter().flatten() {
            logged.entry(change.1.offset_bytes >> vdev.metaslab_shift.min(63)).or_default().push(change);
        }
        logged
    }
}

impl Metaslab {
    /// Allocated bytes.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated.total_bytes()
    }

    /// A metaslab with an unreadable map: everything that may be in use counts as in use.
    fn full(place: MetaslabPlace, logged: &Logged<'_>) -> Metaslab {
        let mut allocated = Ranges::default();
        allocated.insert(place.start_bytes, place.size_bytes);
        let mut metaslab = Metaslab { place, allocated, own_map_bytes: 0, overlaps: Vec::new() };
        metaslab.apply_logged(logged);
        // Ranges that the log allocates were free in the lost map, so they do not overlap.
        metaslab.overlaps.clear();
        metaslab
    }

    fn apply_logged(&mut self, logged: &Logged<'_>) {
        let place = self.place;
        let changes = logged.get(&place.index).into_iter().flatten();
        for (_, change) in changes.filter(|(txg, _)| place.lacks(*txg)) {
            self.apply(change.map_type, change.offset_bytes, change.run_bytes);
        }
    }

    fn apply(&mut self, map_type: MapType, offset: u64, len: u64) {
        let overlap = match map_type {
            MapType::Alloc => self.allocated.insert(offset, len),
            MapType::Free => self.allocated.remove(offset, len),
        };
        self.overlaps.extend(overlap);
    }
}

/// Start and length of a metaslab. On a dRAID it starts at the first group boundary and has whole groups, so
/// that no group straddles two metaslabs (`vdev_draid_metaslab_init`).
pub fn metaslab_extent(vdev: &VdevConfig, index: u64) -> (u64, u64) {
    let (border, size) = (index << vdev.metaslab_shift, 1 << vdev.metaslab_shift);
    let Some(draid) = vdev.draid else { return (border, size) };
    let group_sectors = draid.data.saturating_add(vdev.parity as u64).max(1);
    let group_bytes = group_sectors.checked_shl(vdev.ashift).unwrap_or(u64::MAX).max(1);
    let start = border.checked_next_multiple_of(group_bytes).unwrap_or(border);
    (start, size.saturating_sub(start - border) / group_bytes * group_bytes)
}

/// Metaslabs of a vdev without any allocation.
pub fn empty_metaslabs(vdev: &VdevConfig) -> Vec<NewMetaslab> {
    let metaslab = |index| {
        let (start_bytes, size_bytes) = metaslab_extent(vdev, index);
        NewMetaslab { index, start_bytes, size_bytes, allocated: Ranges::default() }
    };
    (0..vdev.asize_bytes >> vdev.metaslab_shift).map(metaslab).collect()
}

pub(crate) fn metaslabs_bytes(vdev: &VdevConfig, count: u64) -> u64 {
    match vdev.draid {
        None => count << vdev.metaslab_shift,
        Some(_) => (0..count.min(MAX_METASLABS)).map(|index| metaslab_extent(vdev, index).1).sum(),
    }
}

impl SpaceMapHead {
    /// Decodes the header of a map with units of `1 << shift` bytes.
    ///
    /// # Errors
    /// It is truncated, or the map exceeds its object.
    pub fn of(object: &Object, shift: u32) -> Result<SpaceMapHead> {
        let dnode = object.dnode();
        let phys = SpaceMapPhys::decode(dnode.bonus(), dnode.endian()).map_err(|e| object.format(e))?;
        if phys.length_bytes > object.capacity_bytes() {
            return Err(object.damaged("claims a longer space map than it has room for"));
        }
        let counts_free = dnode.bonus().len() > SPACE_MAP_SIZE_V0;
        let free_ranges = counts_free.then(|| SizeHistogram::from_space_map(&phys.histogram, shift));
        Ok(SpaceMapHead { length_bytes: phys.length_bytes, net_bytes: phys.alloc_bytes, free_ranges })
    }

    /// Bytes allocated at the last write.
    pub fn allocated_bytes(&self) -> u64 {
        self.net_bytes.max(0).unsigned_abs()
    }
}

/// Txgs of a dirty time log (DTL), a space map over txgs.
pub(crate) async fn txg_ranges(object: &Object) -> Result<Ranges> {
    let mut groups = Ranges::default();
    read_space_map(object, 0, |change| {
        _ = match change.map_type {
            MapType::Alloc => groups.insert(change.offset_bytes, change.run_bytes),
            MapType::Free => groups.remove(change.offset_bytes, change.run_bytes),
        };
    })
    .await?;
    Ok(groups)
}

/// Passes the changes of a space map, with units of `1 << shift` bytes, to `each`.
///
/// # Errors
/// A block is unreadable or malformed; `each` has seen the changes before it.
pub async fn read_space_map(object: &Object, shift: u32, mut each: impl FnMut(SpaceMapEntry)) -> Result<()> {
    /// Map bytes per read.
    const WINDOW_BYTES: u64 = 4 << 20;
    let length_bytes = SpaceMapHead::of(object, shift)?.length_bytes;
    let size = object.block_bytes().max(1);
    let blocks = length_bytes.div_ceil(size);
    let window = (WINDOW_BYTES / size).max(1);
    let mut reader = None;
    for first in (0..blocks).step_by(window as usize) {
        for block in object.read_blocks(first..blocks.min(first + window)).await {
            let BlockId(id) = block.id;
            let Some(bytes) = block.data? else {
                return Err(object.damaged("has a hole where its changes go on"));
            };
            let reader = match &mut reader {
                Some(reader) => reader,
                none => none.insert(SpaceMapReader::new(shift, block.endian).map_err(|e| object.format(e))?),
            };
            let used = (length_bytes - id * size).min(size) as usize;
            for entry in reader.block(&bytes[..used.min(bytes.len())]) {
                each(entry.map_err(|e| object.format(e))?);
            }
        }
    }
    Ok(())
}
