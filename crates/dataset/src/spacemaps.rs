//! Which ranges of each vdev are allocated, as the pool's space maps say.
//!
//! Idea: a vdev is cut into metaslabs, and each has a space map: a log of allocations and frees, which
//! replayed gives its allocated ranges. Since feature `log_spacemap` a txg's changes to all metaslabs are
//! first collected in one map of that txg; a metaslab's own map is brought up to date now and then, and a
//! table per vdev says up to which txg it is. So:
//!
//! ```text
//!   allocated = replay(metaslab's own map) + changes in the maps of txgs >= the metaslab's unflushed txg
//! ```
//!
//! What was allocated in the last txg may lie in the map, or not: space maps are written in the same txgs
//! as what they describe, so for one uberblock they are exact.
//!
//! Memory: one vdev's ranges at a time, one range an allocated run. The log maps of all txgs are read once
//! and kept, as OpenZFS bounds their size.
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

/// Offsets in a log space map count sectors of 512.
pub const LOG_SHIFT: u32 = 9;

/// Maps read at once: there are hundreds, most of them a block long, each at its own place.
const MAPS_AT_ONCE: usize = 16;

/// Metaslabs that a vdev may have; OpenZFS makes at most 2^17 (`zfs_vdev_ms_count_limit`).
const MAX_METASLABS: u64 = 1 << 20;

/// Where a metaslab lies and what keeps account of it.
#[derive(Debug, Clone, Copy)]
pub struct MetaslabPlace {
    /// Its number within the vdev.
    pub index: u64,
    /// Where it begins on the vdev, in bytes.
    pub start_bytes: u64,
    /// How long it is, what a dRAID leaves unused at its ends included.
    pub size_bytes: u64,
    /// Its own space map; `None`: it was never used.
    pub map: Option<ObjectId>,
    /// The first txg whose changes are not in its own map; `None`: all are.
    pub unflushed: Option<Txg>,
}

/// A metaslab and what is allocated on it.
#[derive(Debug, Clone)]
pub struct Metaslab {
    /// Where it lies.
    pub place: MetaslabPlace,
    /// Allocated ranges, in bytes from the start of the vdev.
    pub allocated: Ranges,
    /// Bytes allocated as its own map says, without changes that are only in log space maps.
    pub own_map_bytes: u64,
    /// Contradictions met while replaying: what was allocated twice, or freed without being allocated.
    pub overlaps: Vec<Overlap>,
}

/// What a space map says of itself, without its changes.
#[derive(Debug, Clone)]
pub struct SpaceMapHead {
    /// Bytes of changes from the map's start.
    pub length_bytes: u64,
    /// Bytes allocated less bytes freed, when it was last written. A map of frees alone is below 0.
    net_bytes: i64,
    /// Free ranges by size at that time; `None` if the map does not count them.
    pub free_ranges: Option<SizeHistogram>,
}

/// A txg's log space map.
#[derive(Debug, Clone, Copy)]
pub struct LogMap {
    /// Its object.
    pub object: ObjectId,
    /// How long it is, in blocks.
    pub blocks: u64,
}

/// A metaslab whose own map can't be read. All of it counts as allocated, but for what the log says was
/// freed.
#[derive(Debug)]
pub struct LostMap {
    /// Its vdev.
    pub vdev: VdevId,
    /// Where it lies; it has a map.
    pub place: MetaslabPlace,
    /// Why that can't be read.
    pub why: DatasetError,
}

/// Changes of one vdev that the log has, by metaslab, in order.
pub type Logged<'a> = BTreeMap<u64, Vec<&'a (Txg, SpaceMapEntry)>>;

/// The changes of txgs that are not yet in the metaslabs' own maps, in order.
#[derive(Debug, Default)]
pub struct LogSpacemaps {
    /// The map of each txg.
    pub maps: BTreeMap<Txg, LogMap>,
    /// (txg, change) for each vdev.
    changes: BTreeMap<VdevId, Vec<(Txg, SpaceMapEntry)>>,
}

impl Mos {
    /// The log space maps of all txgs. Give it to [`Mos::metaslabs`].
    ///
    /// # Errors
    /// A map is damaged.
    #[boxed]
    pub async fn log_spacemaps(&self) -> Result<LogSpacemaps> {
        let mut log = LogSpacemaps::default();
        let Some(zap) = self.directory_zap(names::LOG_SPACEMAP_ZAP).await? else { return Ok(log) };
        for entry in zap.to_vec().await? {
            // Keys are txgs in hexadecimal text, as those of a deadlist.
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

    /// A log space map with its length, and its changes.
    async fn read_log_map(&self, map: LogMap) -> Result<(LogMap, Vec<SpaceMapEntry>)> {
        let object = self.objset().object(map.object).await?;
        let length_bytes = SpaceMapHead::of(&object, LOG_SHIFT)?.length_bytes;
        let mut changes = Vec::new();
        read_space_map(&object, LOG_SHIFT, |change| changes.push(change)).await?;
        Ok((LogMap { blocks: length_bytes.div_ceil(object.block_bytes().max(1)), ..map }, changes))
    }

    /// The metaslabs of a top-level vdev with their allocated ranges. None of a vdev that was removed.
    ///
    /// # Errors
    /// A space map is damaged.
    #[boxed]
    pub async fn metaslabs(&self, vdev: &VdevConfig, log: &LogSpacemaps) -> Result<Vec<Metaslab>> {
        let loaded = self.load_metaslabs(vdev, log).await?;
        loaded.into_iter().map(|(metaslab, lost)| lost.map_or(Ok(metaslab), Err)).collect()
    }

    /// The same; those whose own maps can't be read are full, and say why.
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

    /// One of them; `logged` is of [`LogSpacemaps::by_metaslab`].
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

    /// The pool's space, ready to allocate from: all vdevs with their metaslabs.
    ///
    /// # Errors
    /// A space map is damaged, or contradicts itself: what it takes for free may be in use.
    #[boxed]
    pub async fn allocator(&self, log: &LogSpacemaps) -> Result<Allocator> {
        let (allocator, lost) = self.allocator_despite_losses(log).await?;
        lost.into_iter().next().map_or(Ok(allocator), |lost| Err(lost.why))
    }

    /// The same although maps can't be read: those metaslabs have nothing free but what is freed from now on.
    ///
    /// # Errors
    /// A map can be read and contradicts itself, or nothing tells where a vdev's maps are.
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

    /// How a top-level vdev is cut into metaslabs. No places on a vdev that was removed.
    ///
    /// # Errors
    /// The array of space maps or that of txgs is damaged.
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
        // Both arrays end at the last metaslab that has been used.
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

    /// A metaslab as its own map has it.
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

    /// For each metaslab, the first txg whose changes are not in its own map; 0: all are.
    async fn unflushed(&self, vdev: &VdevConfig, count: u64) -> Result<Vec<u64>> {
        let Some(zap) = self.vdev_zap(vdev).await? else { return Ok(Vec::new()) };
        let Some(id) = zap.get_u64(vdev_zap::MS_UNFLUSHED_PHYS_TXGS).await? else { return Ok(Vec::new()) };
        let object = self.objset().object(ObjectId(id)).await?;
        object.read_words(0, count.min(object.capacity_bytes() / 8) as usize).await
    }

    /// What a checkpoint holds although it was freed since, on one vdev.
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

    /// How many bytes that is, as the map itself says.
    ///
    /// # Errors
    /// The map's head is damaged.
    #[boxed]
    pub async fn checkpoint_bytes(&self, vdev: &VdevConfig) -> Result<u64> {
        let Some(map) = self.checkpoint_map(vdev).await? else { return Ok(0) };
        Ok(SpaceMapHead::of(&map, vdev.ashift)?.net_bytes.min(0).unsigned_abs())
    }

    /// The map of what was freed from under the checkpoint: frees alone.
    async fn checkpoint_map(&self, vdev: &VdevConfig) -> Result<Option<Object>> {
        let Some(zap) = self.vdev_zap(vdev).await? else { return Ok(None) };
        match zap.get_u64(vdev_zap::POOL_CHECKPOINT_SM).await? {
            Some(id) => self.objset().object(ObjectId(id)).await.map(Some),
            None => Ok(None),
        }
    }

    /// The ZAP of a top-level vdev's own fields.
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
    /// Its own map lacks the changes of that txg, which are in the log.
    pub fn lacks(&self, txg: Txg) -> bool {
        self.unflushed.is_some_and(|since| txg >= since)
    }
}

impl LogSpacemaps {
    /// The txgs that have a map here, in order.
    pub fn txgs(&self) -> impl Iterator<Item = Txg> + '_ {
        self.maps.keys().copied()
    }

    /// The changes on one vdev by metaslab, in order.
    pub fn by_metaslab(&self, vdev: &VdevConfig) -> Logged<'_> {
        let mut logged: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for change in self.changes.get(&VdevId(vdev.id)).into_iter().flatten() {
            logged.entry(change.1.offset_bytes >> vdev.metaslab_shift.min(63)).or_default().push(change);
        }
        logged
    }
}

impl Metaslab {
    /// Bytes allocated.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated.total_bytes()
    }

    /// One whose own map can't be read: what may be in use counts as in use.
    fn full(place: MetaslabPlace, logged: &Logged<'_>) -> Metaslab {
        let mut allocated = Ranges::default();
        allocated.insert(place.start_bytes, place.size_bytes);
        let mut metaslab = Metaslab { place, allocated, own_map_bytes: 0, overlaps: Vec::new() };
        metaslab.apply_logged(logged);
        // What the log allocates was free as the lost map had it: no contradiction.
        metaslab.overlaps.clear();
        metaslab
    }

    /// What the log has of it and its own map has not.
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

/// Where a metaslab begins and how long it is: on a dRAID from the first group after its border, so that no
/// group lies on two, and in whole groups (`vdev_draid_metaslab_init`).
pub fn metaslab_extent(vdev: &VdevConfig, index: u64) -> (u64, u64) {
    let (border, size) = (index << vdev.metaslab_shift, 1 << vdev.metaslab_shift);
    let Some(draid) = vdev.draid else { return (border, size) };
    let group_sectors = draid.data.saturating_add(vdev.parity as u64).max(1);
    let group_bytes = group_sectors.checked_shl(vdev.ashift).unwrap_or(u64::MAX).max(1);
    let start = border.checked_next_multiple_of(group_bytes).unwrap_or(border);
    (start, size.saturating_sub(start - border) / group_bytes * group_bytes)
}

/// Metaslabs of a vdev on which nothing was ever allocated.
pub fn empty_metaslabs(vdev: &VdevConfig) -> Vec<NewMetaslab> {
    let metaslab = |index| {
        let (start_bytes, size_bytes) = metaslab_extent(vdev, index);
        NewMetaslab { index, start_bytes, size_bytes, allocated: Ranges::default() }
    };
    (0..vdev.asize_bytes >> vdev.metaslab_shift).map(metaslab).collect()
}

/// Bytes of a vdev's first metaslabs.
pub(crate) fn metaslabs_bytes(vdev: &VdevConfig, count: u64) -> u64 {
    match vdev.draid {
        None => count << vdev.metaslab_shift,
        Some(_) => (0..count.min(MAX_METASLABS)).map(|index| metaslab_extent(vdev, index).1).sum(),
    }
}

impl SpaceMapHead {
    /// The head of a map whose units are `1 << shift` bytes.
    ///
    /// # Errors
    /// It is cut, or claims a longer map than there is room for.
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

    /// Bytes allocated when it was last written.
    pub fn allocated_bytes(&self) -> u64 {
        self.net_bytes.max(0).unsigned_abs()
    }
}

/// The txgs that a dirty time log lists: a space map that counts txgs.
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

/// Reads the changes of a space map whose units are `1 << shift` bytes, from its start to the end that its
/// head notes.
///
/// # Errors
/// A block can't be read, or its changes make no sense; those before it have been handed on.
pub async fn read_space_map(object: &Object, shift: u32, mut each: impl FnMut(SpaceMapEntry)) -> Result<()> {
    /// Bytes of map read at once.
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
