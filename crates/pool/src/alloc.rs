//! Allocation: the space of a pool in memory, and where the next block goes.
//!
//! ```text
//!   Allocator --class--> groups in a circle --turn--> metaslabs by weight --best--> free ranges --fit--> address
//!                          (vdevs)
//! ```
//!
//! Idea: a block belongs to a *class* (data, metadata on special vdevs, intent log...); a class has a *group* of metaslabs
//! on each of its top-level vdevs. Groups take turns; in a group the metaslab with the largest free ranges is used up
//! first; in it blocks lie one after the other. All metaslabs are loaded: memory is about 100 bytes for each free range.
//!
//! A group (txg) goes through here so:
//!
//! ```text
//!   open, syncing   allocate, claim, unallocate
//!   each sync pass  free; take_changes -> into space maps, which takes blocks: pass again, until nothing changes
//!   synced          finish: what was freed two groups ago can be allocated again
//! ```
//!
//! Locking: one lock for each metaslab group, one for each class's turn, never two groups' at once. Any thread may call
//! at any time, but `take_changes` and `finish` of one txg come from whoever syncs it, in this order.
//!
//! Nothing here reads or writes a disk: the engine loads space maps into [`NewMetaslab`]s and writes
//! [`MetaslabChanges`] into space maps. Nor is anything kept back (slop): that is the engine's too.
//!
//! Source: OpenZFS `metaslab.c`, `metaslab_impl.h` (theory comments), `vdev.c` (`vdev_metaslab_init`), `spa_misc.c`
//! (`spa_preferred_class`).

mod class;
mod footprint;
mod free_space;
mod group;
mod histogram;
mod metaslab;
mod moved;
mod space;

use crate::config::{VdevClass, VdevConfig};
use crate::ranges::Ranges;
use cenote_format::blkptr::Dva;
use cenote_format::dnode::ObjectType;
use cenote_format::indirect::IndirectMapping;
use cenote_format::units::{Asize, Psize, Txg, VdevId};
use class::Class;
use group::Group;
use moved::Moved;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use class::AllocClass;
pub use histogram::SizeHistogram;
pub use metaslab::TXG_DEFER_SIZE;
pub use space::Space;

/// `zfs_embedded_slog_min_ms`: a vdev must have more metaslabs than this to set one aside for intent logs.
const EMBEDDED_SLOG_MIN_MS: u64 = 64;
/// Of special vdevs, what is for metadata alone: `zfs_special_class_metadata_reserve_pct`.
const SPECIAL_RESERVE_PERCENT: u64 = 25;

/// The space of a pool.
#[derive(Debug, Default)]
pub struct Allocator {
    vdevs: RwLock<Vdevs>,
    /// The group that a checkpoint keeps, 0 if there is none.
    checkpoint_txg: AtomicU64,
}

#[derive(Debug, Default)]
struct Vdevs {
    groups: BTreeMap<VdevId, Vec<Arc<Group>>>,
    /// Of vdevs that were or are being removed: where their blocks are.
    moved: BTreeMap<VdevId, Moved>,
    classes: [Class; AllocClass::ALL.len()],
}

/// A metaslab and what is allocated on it, all in bytes from the start of its vdev.
#[derive(Debug, Clone)]
pub struct NewMetaslab {
    /// Its number within the vdev.
    pub index: u64,
    /// Where it begins.
    pub start_bytes: u64,
    /// How long it is; on a dRAID, in whole groups.
    pub size_bytes: u64,
    /// What its space map says.
    pub allocated: Ranges,
}

/// What is to be allocated.
#[derive(Debug, Clone, Copy)]
pub struct AllocRequest<'a> {
    /// What for. If the class is full or has no vdevs, another serves.
    pub class: AllocClass,
    /// Size of the block, compressed.
    pub psize: Psize,
    /// How many copies, 1 to 3, each on a vdev of its own where possible.
    pub copies: usize,
    /// The group in which it is born.
    pub txg: Txg,
    /// The vdev to begin with: pieces of a gang block lie near its header.
    pub near: Option<VdevId>,
    /// Vdevs that won't do: writing there just failed.
    pub avoid: &'a [VdevId],
    /// Copies of the block that there are already: the new ones keep away from them.
    pub beside: &'a [Dva],
}

impl AllocRequest<'_> {
    /// A block of which nothing exists yet, anywhere.
    pub fn new(class: AllocClass, psize: Psize, copies: usize, txg: Txg) -> AllocRequest<'static> {
        AllocRequest { class, psize, copies, txg, near: None, avoid: &[], beside: &[] }
    }
}

/// What a block holds, as far as that decides where it goes.
#[derive(Debug, Clone, Copy)]
pub struct BlockUse {
    /// Type of the object (`dn_storage_type` if it has one).
    pub object_type: ObjectType,
    /// Level above the data.
    pub level: u8,
    /// Size of the block, compressed.
    pub psize: Psize,
    /// Data blocks up to this size may go to special vdevs: property `special_small_blocks`; 0: none.
    pub special_small_blocks: u64,
}

/// What became of a metaslab in a sync pass: `allocated` first, then `freed`, for a range may be in both.
#[derive(Debug, Clone)]
pub struct MetaslabChanges {
    /// Its vdev.
    pub vdev: VdevId,
    /// Its number within the vdev.
    pub index: u64,
    /// Where it begins on the vdev: its own space map counts from there.
    pub start_bytes: u64,
    /// Allocated since the last time, in bytes from the start of the vdev.
    pub allocated: Ranges,
    /// Freed since the last time.
    pub freed: Ranges,
    /// Freed since the last time and kept for a checkpoint: it stays allocated.
    pub checkpointed: Ranges,
    /// Bytes allocated now (`smp_alloc`).
    pub allocated_bytes: u64,
    /// Its free ranges now, those included that wait to be allocatable (`smp_histogram`).
    pub free_ranges: SizeHistogram,
}

/// Why an allocator won't.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// No free range is long enough, or there are not as many as copies: make smaller pieces (a gang block), or free.
    #[error(
        "no space for {copies} times {psize} bytes ({}): the largest free range has {largest_bytes} bytes",
        class.name()
    )]
    NoSpace {
        /// The class asked for; others that may serve have been tried.
        class: AllocClass,
        /// The block's size, compressed.
        psize: Psize,
        /// How many copies.
        copies: usize,
        /// The largest free range of all vdevs that may serve, raw: with parity.
        largest_bytes: u64,
    },
    /// Not an address of this pool, or no whole block can lie there: whoever holds it is damaged.
    #[error("no block can lie at {}:{:x}, {} bytes long", dva.vdev, dva.offset_bytes, dva.asize)]
    BadAddress {
        /// The address.
        dva: Dva,
    },
    /// It is to be freed and is not allocated, in part at least: space maps and block pointers contradict.
    #[error("freed twice, or never allocated: {}:{:x}, {} bytes", dva.vdev, dva.offset_bytes, dva.asize)]
    NotAllocated {
        /// The address.
        dva: Dva,
    },
    /// It is to be claimed and is not free.
    #[error("claimed and not free: {}:{:x}, {} bytes", dva.vdev, dva.offset_bytes, dva.asize)]
    NotFree {
        /// The address.
        dva: Dva,
    },
}

/// A vdev for data that has many metaslabs sets one aside for intent logs: at import, the one with the least in its own map
/// (`vdev_metaslab_init`).
pub fn has_embedded_log(vdev: &VdevConfig) -> bool {
    let metaslabs = vdev.asize_bytes.checked_shr(vdev.metaslab_shift).unwrap_or(0);
    vdev.class == VdevClass::Normal && metaslabs > EMBEDDED_SLOG_MIN_MS
}

impl Allocator {
    /// Of no vdevs yet.
    pub fn new() -> Allocator {
        Allocator::default()
    }

    /// Adds a top-level vdev with all its metaslabs. Blocks go there at once, unless it is set not to allocate.
    pub fn add_vdev(&self, config: &VdevConfig, mut metaslabs: Vec<NewMetaslab>) {
        let main = match config.class {
            VdevClass::Normal => AllocClass::Normal,
            VdevClass::Log => AllocClass::Log,
            VdevClass::Special => AllocClass::Special,
            VdevClass::Dedup => AllocClass::Dedup,
        };
        let used = |new: &NewMetaslab| new.allocated.total_bytes();
        let emptiest = (0..metaslabs.len()).min_by_key(|&index| used(&metaslabs[index]));
        let for_log = emptiest.filter(|_| has_embedded_log(config)).map(|index| metaslabs.remove(index));
        let allocates = config.kind.holds_data() && !config.non_allocating && !config.removing;

        let mut vdevs = self.vdevs.write();
        let by_class = [(main, metaslabs), (AllocClass::EmbeddedLog, for_log.into_iter().collect())];
        for (class, metaslabs) in by_class.into_iter().filter(|(_, metaslabs)| !metaslabs.is_empty()) {
            let group = Arc::new(Group::new(config, class, &metaslabs));
            group.set_allocates(allocates);
            vdevs.groups.entry(group.vdev).or_default().push(group.clone());
            vdevs.classes[class as usize].groups.push(group);
        }
    }

    /// Whether blocks may go to a vdev: not if it is offline or being emptied. Freeing there is always possible.
    pub fn set_allocates(&self, vdev: VdevId, allocates: bool) {
        let vdevs = self.vdevs.read();
        vdevs.groups.get(&vdev).into_iter().flatten().for_each(|group| group.set_allocates(allocates));
    }

    /// Places for all copies of a block.
    ///
    /// # Errors
    /// [`AllocError::NoSpace`].
    pub fn allocate(&self, request: &AllocRequest<'_>) -> Result<Vec<Dva>, AllocError> {
        let vdevs = self.vdevs.read();
        let classes = || request.class.and_fallbacks().iter().map(|&class| &vdevs.classes[class as usize]);
        classes().find_map(|class| class.allocate(request)).ok_or_else(|| AllocError::NoSpace {
            class: request.class,
            psize: request.psize,
            copies: request.copies,
            largest_bytes: classes().map(Class::largest_bytes).max().unwrap_or(0),
        })
    }

    /// The class that a block should be asked for (`spa_preferred_class`). Intent logs ask for [`AllocClass::Log`].
    pub fn preferred_class(&self, block: &BlockUse) -> AllocClass {
        let vdevs = self.vdevs.read();
        let special = &vdevs.classes[AllocClass::Special as usize];
        let metadata = match special.groups.is_empty() {
            true => AllocClass::Normal,
            false => AllocClass::Special,
        };
        let is_file =
            [ObjectType::PLAIN_FILE_CONTENTS, ObjectType::UINT64_OTHER].contains(&block.object_type);
        if block.object_type == ObjectType::DDT_ZAP {
            let dedup = &vdevs.classes[AllocClass::Dedup as usize];
            return if dedup.groups.is_empty() { metadata } else { AllocClass::Dedup };
        }
        if block.level > 0 || block.object_type.is_metadata() {
            return metadata;
        }
        let small = is_file && block.psize.0 <= block.special_small_blocks;
        if small && special.used_percent() < 100 - SPECIAL_RESERVE_PERCENT {
            metadata
        } else {
            AllocClass::Normal
        }
    }

    /// Undoes an allocation of a group that has not been synced: its write failed, or it is not needed.
    ///
    /// # Errors
    /// It was not allocated.
    pub fn unallocate(&self, dva: &Dva, txg: Txg) -> Result<(), AllocError> {
        self.at(dva, |group| group.unallocate(dva, txg))
    }

    /// Frees a block that was born in the group `birth`, in the group that is syncing. It can be allocated again two groups later, unless a
    /// checkpoint has it. Of a vdev that was removed, what is freed is where its blocks are now.
    ///
    /// # Errors
    /// It was not allocated.
    pub fn free(&self, dva: &Dva, birth: Txg) -> Result<(), AllocError> {
        let checkpoint = self.checkpoint_txg.load(Ordering::Relaxed);
        let kept = checkpoint != 0 && birth.0 <= checkpoint;
        self.vdevs.read().free(dva, kept)
    }

    /// Frees a range that was kept for a checkpoint.
    ///
    /// # Errors
    /// It was not allocated.
    pub fn free_range(&self, vdev: VdevId, offset_bytes: u64, len_bytes: u64) -> Result<(), AllocError> {
        self.vdevs.read().free(&Dva { vdev, offset_bytes, asize: Asize(len_bytes), gang: false }, false)
    }

    /// From now on keeps what was born up to this group, as a checkpoint has it; `Txg(0)`: keeps nothing any more.
    pub fn keep_for_checkpoint(&self, txg: Txg) {
        self.checkpoint_txg.store(txg.0, Ordering::Relaxed);
    }

    /// A vdev's blocks are where `mapping` says: all of one that was removed; of one that is being removed, those that were copied, which are
    /// on the vdev as well.
    pub fn set_moved(&self, vdev: VdevId, mapping: IndirectMapping) {
        self.vdevs.write().moved.insert(vdev, Moved::new(mapping));
    }

    /// The end of what was copied off a vdev; 0: nothing was.
    pub fn moved_up_to(&self, vdev: VdevId) -> u64 {
        self.vdevs.read().moved.get(&vdev).map_or(0, Moved::end_bytes)
    }

    /// Nobody needs the mapping of a range of a removed vdev any more, though its blocks are in use where they are now.
    pub fn note_obsolete(&self, dva: &Dva) {
        self.vdevs.read().moved.get(&dva.vdev).inspect(|moved| moved.note_obsolete(dva));
    }

    /// What was freed of removed vdevs since the last call: parts of their mappings that nobody needs any more.
    pub fn take_obsolete(&self) -> Vec<(VdevId, Ranges)> {
        let vdevs = self.vdevs.read();
        let taken = vdevs.moved.iter().map(|(vdev, moved)| (*vdev, moved.take_obsolete()));
        taken.filter(|(_, ranges)| !ranges.is_empty()).collect()
    }

    /// Allocates the very place of a block that was written before the pool was opened: of an intent log.
    ///
    /// # Errors
    /// It is not free.
    pub fn claim(&self, dva: &Dva, txg: Txg) -> Result<(), AllocError> {
        self.at(dva, |group| group.claim(dva, txg))
    }

    /// Takes a range behind a block, long enough for `psize` bytes, if it is free and no block has to go elsewhere for that; for as long as
    /// it takes to make it ready for blocks to come. Then it is to be [unallocated](Allocator::unallocate).
    pub fn claim_behind(&self, dva: &Dva, psize: Psize, txg: Txg) -> Option<Dva> {
        let vdevs = self.vdevs.read();
        vdevs.groups.get(&dva.vdev)?.iter().find_map(|group| group.claim_behind(dva, psize, txg))
    }

    /// What the group changed since the last call, by vdev and metaslab.
    pub fn take_changes(&self, txg: Txg) -> Vec<MetaslabChanges> {
        let mut changes = Vec::new();
        self.each_group(|group| group.take_changes(txg, &mut changes));
        changes.sort_by_key(|change| (change.vdev, change.index));
        changes
    }

    /// The group is on disk and all its changes were taken: what was freed two groups ago can be allocated again.
    pub fn finish(&self, txg: Txg) {
        self.each_group(|group| group.finish(txg));
    }

    /// What was freed in groups that are on disk can be allocated at once: for a pool that is nearly full, at the price
    /// that it can't be rewound safely.
    pub fn release_deferred(&self) {
        self.each_group(Group::release);
    }

    /// What the space map of a metaslab has to say once all changes taken so far are in it: to write it anew, shorter.
    pub fn allocated(&self, vdev: VdevId, metaslab: u64) -> Option<Ranges> {
        let vdevs = self.vdevs.read();
        vdevs.groups.get(&vdev)?.iter().find_map(|group| group.allocated(metaslab))
    }

    /// Whether any vdev is of a class.
    pub fn has_class(&self, class: AllocClass) -> bool {
        !self.vdevs.read().classes[class as usize].groups.is_empty()
    }

    /// Space of a class. That of [`AllocClass::Normal`] tells how fragmented the pool is.
    pub fn class_space(&self, class: AllocClass) -> Space {
        let vdevs = self.vdevs.read();
        let groups = vdevs.classes[class as usize].groups.iter();
        Space::of_vdevs(
            groups.map(|group| Space::of_metaslabs(group.spaces().into_iter().map(|(_, space)| space))),
        )
    }

    /// Space of a vdev.
    pub fn vdev_space(&self, vdev: VdevId) -> Option<Space> {
        let metaslabs = self.metaslab_spaces(vdev);
        (!metaslabs.is_empty()).then(|| Space::of_metaslabs(metaslabs.into_iter().map(|(_, space)| space)))
    }

    /// Space of each metaslab of a vdev, by its number.
    pub fn metaslab_spaces(&self, vdev: VdevId) -> Vec<(u64, Space)> {
        let vdevs = self.vdevs.read();
        let groups = vdevs.groups.get(&vdev).into_iter().flatten();
        let mut spaces: Vec<_> = groups.flat_map(|group| group.spaces()).collect();
        spaces.sort_by_key(|(index, _)| *index);
        spaces
    }

    fn each_group(&self, mut act: impl FnMut(&Group)) {
        self.vdevs.read().groups.values().flatten().for_each(|group| act(group));
    }

    /// Does something at an address, in the group whose it is.
    fn at(&self, dva: &Dva, act: impl Fn(&Group) -> Result<(), AllocError>) -> Result<(), AllocError> {
        self.vdevs.read().at(dva, act)
    }
}

impl Vdevs {
    fn at(&self, dva: &Dva, act: impl Fn(&Group) -> Result<(), AllocError>) -> Result<(), AllocError> {
        let not_here = AllocError::BadAddress { dva: *dva };
        let groups = self.groups.get(&dva.vdev).into_iter().flatten();
        groups
            .map(|group| act(group))
            .find(|done| *done != Err(not_here.clone()))
            .unwrap_or(Err(not_here.clone()))
    }

    fn free(&self, dva: &Dva, kept: bool) -> Result<(), AllocError> {
        let Some(moved) = self.moved.get(&dva.vdev) else {
            return self.at(dva, |group| group.free(dva, kept));
        };
        if self.groups.contains_key(&dva.vdev) {
            self.at(dva, |group| group.free(dva, kept))?;
        }
        for copy in moved.free(dva)? {
            self.free(&copy, kept)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
