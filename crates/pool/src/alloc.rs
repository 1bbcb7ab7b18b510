//! Allocation: the space of a pool in memory, and the placement of new blocks.
//!
//! ```text
//!   Allocator --class--> metaslab groups, in turn --> metaslabs, by weight --> free ranges, by fit --> DVA
//!                        (one per vdev)
//! ```
//!
//! Idea: a block belongs to a *class* (data, metadata on special vdevs, intent log...). A class has a
//! *metaslab group* on each of its top-level vdevs. Groups take turns. A group uses up the metaslab with the
//! largest free ranges first, which places blocks one after the other. All metaslabs are loaded: about 100
//! bytes per free range.
//!
//! ```text
//!   open, syncing   allocate, claim, unallocate
//!   each sync pass  free; take_changes -> space maps, which need blocks: next pass, until nothing changes
//!   synced          finish: space freed two txgs ago becomes allocatable
//! ```
//!
//! Locking: any thread may call any method, but only the task that syncs a txg calls `take_changes`, then
//! `finish`. Order: the list of vdevs (for reading, except while a vdev is added), a class's rotor, one
//! metaslab group; never two groups or two classes. Between calls every byte of a metaslab is in exactly one
//! state (see `metaslab`).
//!
//! This module does no I/O: the engine loads space maps into [`NewMetaslab`]s and writes [`MetaslabChanges`]
//! to space maps. The engine also manages reserved space (slop).
//!
//! Source: OpenZFS `metaslab.c`, `metaslab_impl.h` (theory comments), `vdev.c` (`vdev_metaslab_init`),
//! `spa_misc.c` (`spa_preferred_class`).

mod class;
mod footprint;
mod free_space;
mod group;
mod histogram;
mod kept;
mod metaslab;
mod moved;
mod space;
mod unit;

use crate::config::{VdevClass, VdevConfig};
use crate::ranges::Ranges;
use cenote_format::blkptr::Dva;
use cenote_format::dnode::ObjectType;
use cenote_format::indirect::{IndirectMapping, IndirectMappingEntry};
use cenote_format::units::{Asize, PhysicalBirth, Psize, Txg, VdevId};
use class::Class;
use group::MetaslabGroup;
use moved::Moved;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use unit::Span;

pub use class::AllocClass;
pub use histogram::SizeHistogram;
pub(crate) use kept::Keeper;
pub use kept::{KeptSpace, TXG_DEFER_SIZE};
use metaslab::{Metaslab, Needed};
pub use space::Space;

/// `zfs_embedded_slog_min_ms`: vdevs with more metaslabs set one aside.
const EMBEDDED_SLOG_MIN_MS: u64 = 64;

/// The space of a pool.
#[derive(Debug, Default)]
pub struct Allocator {
    vdevs: RwLock<Vdevs>,
    /// The checkpoint's txg, 0 if none.
    checkpoint_txg: AtomicU64,
    /// Tracks the txgs that readers hold.
    keeper: Arc<Keeper>,
    /// Automatic trim is on.
    trims: AtomicBool,
}

#[derive(Debug, Default)]
struct Vdevs {
    groups: BTreeMap<VdevId, Vec<Arc<MetaslabGroup>>>,
    moved: BTreeMap<VdevId, Moved>,
    classes: [Class; AllocClass::ALL.len()],
}

/// A metaslab, in bytes from the start of the vdev.
#[derive(Debug, Clone)]
pub struct NewMetaslab {
    /// Index within the vdev.
    pub index: u64,
    /// Start offset.
    pub start_bytes: u64,
    /// Size; on a dRAID, in whole redundancy groups.
    pub size_bytes: u64,
    /// Allocated ranges, from the space map.
    pub allocated: Ranges,
}

/// A request for space.
#[derive(Debug, Clone, Copy)]
pub struct AllocRequest<'a> {
    /// Preferred class, with fallbacks.
    pub class: AllocClass,
    /// Compressed size.
    pub psize: Psize,
    /// 1 to 3, each on its own vdev where possible.
    pub copies: usize,
    /// Birth txg.
    pub txg: Txg,
    /// Vdev to try first: near a gang block's header.
    pub near: Option<VdevId>,
    /// Vdevs to avoid after a failed write.
    pub avoid: &'a [VdevId],
    /// Existing copies; new ones keep their distance.
    pub beside: &'a [Dva],
}

impl AllocRequest<'_> {
    /// A request for the first copies of a block.
    pub fn new(class: AllocClass, psize: Psize, copies: usize, txg: Txg) -> AllocRequest<'static> {
        AllocRequest { class, psize, copies, txg, near: None, avoid: &[], beside: &[] }
    }
}

/// The properties of a block that determine its class.
#[derive(Debug, Clone, Copy)]
pub struct BlockUse {
    /// Object type (`dn_storage_type` if set).
    pub object_type: ObjectType,
    /// Level above the data.
    pub level: u8,
    /// Compressed size.
    pub psize: Psize,
    /// Limit for data blocks on special vdevs, `special_small_blocks`; 0 for none.
    pub special_small_blocks: u64,
}

impl BlockUse {
    /// The class that suits the block in a pool with or without special and dedup vdevs. Small blocks of data
    /// leave the reserve of special vdevs to metadata (`zfs_special_class_metadata_reserve_pct`).
    pub fn class(
        &self,
        has_special: bool,
        has_dedup: bool,
        special_used_percent: impl FnOnce() -> u64,
        reserve_percent: u64,
    ) -> AllocClass {
        let metadata = if has_special { AllocClass::Special } else { AllocClass::Normal };
        if self.object_type == ObjectType::DDT_ZAP {
            return if has_dedup { AllocClass::Dedup } else { metadata };
        }
        if self.level > 0 || self.object_type.is_metadata() {
            return metadata;
        }
        let small = self.psize.0 <= self.special_small_blocks;
        if small && special_used_percent() < 100 - reserve_percent.min(100) {
            metadata
        } else {
            AllocClass::Normal
        }
    }
}

/// A metaslab's changes in a sync pass. Apply `allocated` first: a range may be in both.
#[derive(Debug, Clone)]
pub struct MetaslabChanges {
    /// Vdev.
    pub vdev: VdevId,
    /// Index within the vdev.
    pub index: u64,
    /// Start offset on the vdev, and of the space map.
    pub start_bytes: u64,
    /// In bytes from the start of the vdev.
    pub allocated: Ranges,
    /// Freed since the last call.
    pub freed: Ranges,
    /// Freed, but kept for a checkpoint.
    pub checkpointed: Ranges,
    /// Bytes allocated (`smp_alloc`).
    pub allocated_bytes: u64,
    /// Free and deferred ranges (`smp_histogram`).
    pub free_ranges: SizeHistogram,
}

/// Why the allocator refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// Use smaller pieces (a gang block), or free space.
    #[error(
        "no space for {copies} times {psize} bytes ({}): the largest free range has {largest_bytes} bytes",
        class.name()
    )]
    NoSpace {
        /// The requested class; fallbacks were tried.
        class: AllocClass,
        /// Compressed size.
        psize: Psize,
        /// Number of copies.
        copies: usize,
        /// Largest free range of all vdevs tried, including parity.
        largest_bytes: u64,
    },
    /// The address is impossible: the block pointer is damaged.
    #[error("not a possible block: {}:{:x}, {} bytes", dva.vdev, dva.offset_bytes, dva.asize)]
    BadAddress {
        /// The address.
        dva: Dva,
    },
    /// Not fully allocated: space maps and block pointers contradict each other.
    #[error("freed twice, or never allocated: {}:{:x}, {} bytes", dva.vdev, dva.offset_bytes, dva.asize)]
    NotAllocated {
        /// The address.
        dva: Dva,
    },
    /// Allocated in another txg than the syncing one; space maps would record only the free. Nothing was
    /// freed.
    #[error("belongs to a later txg: {}:{:x}, {} bytes", dva.vdev, dva.offset_bytes, dva.asize)]
    OtherTxg {
        /// The address.
        dva: Dva,
    },
    /// The claimed range is not free.
    #[error("claimed and not free: {}:{:x}, {} bytes", dva.vdev, dva.offset_bytes, dva.asize)]
    NotFree {
        /// The address.
        dva: Dva,
    },
}

/// Whether a vdev sets a metaslab aside for intent logs: a data vdev with many. An import takes the one with
/// the least allocated space (`vdev_metaslab_init`).
pub fn has_embedded_log(vdev: &VdevConfig) -> bool {
    let metaslabs = vdev.asize_bytes.checked_shr(vdev.metaslab_shift).unwrap_or(0);
    vdev.class == VdevClass::Normal && metaslabs > EMBEDDED_SLOG_MIN_MS
}

impl Allocator {
    /// An allocator without vdevs.
    pub fn new() -> Allocator {
        Allocator::default()
    }

    /// Adds a top-level vdev, which accepts blocks unless its configuration forbids it.
    pub fn add_vdev(&self, config: &VdevConfig, mut metaslabs: Vec<NewMetaslab>) {
        let main = AllocClass::from(config.class);
        let used = |new: &NewMetaslab| new.allocated.total_bytes();
        let emptiest = (0..metaslabs.len()).min_by_key(|&index| used(&metaslabs[index]));
        let for_log = emptiest.filter(|_| has_embedded_log(config)).map(|index| metaslabs.remove(index));
        let allocates = config.kind.holds_data() && !config.non_allocating && !config.removing;

        let mut vdevs = self.vdevs.write();
        let by_class = [(main, metaslabs), (AllocClass::EmbeddedLog, for_log.into_iter().collect())];
        for (class, metaslabs) in by_class.into_iter().filter(|(_, metaslabs)| !metaslabs.is_empty()) {
            let group = Arc::new(MetaslabGroup::new(config, class, &metaslabs));
            group.set_allocates(allocates);
            vdevs.groups.entry(group.vdev).or_default().push(group.clone());
            vdevs.classes[class as usize].groups.push(group);
        }
    }

    /// Adds those of `metaslabs` beyond the vdev's previous end, empty.
    pub fn grow_vdev(&self, vdev: VdevId, mut metaslabs: Vec<NewMetaslab>) {
        let vdevs = self.vdevs.write();
        let Some(groups) = vdevs.groups.get(&vdev) else { return };
        let end_bytes = groups.iter().map(|group| group.end_bytes()).max().unwrap_or(0);
        metaslabs.retain(|new| new.start_bytes >= end_bytes);
        let main = groups.iter().find(|group| group.class != AllocClass::EmbeddedLog);
        main.inspect(|group| group.grow(&metaslabs));
    }

    /// Takes the geometry of an expanded RAID-Z, for blocks from its txg on.
    pub fn reshape_vdev(&self, config: &VdevConfig) {
        let vdevs = self.vdevs.read();
        let groups = vdevs.groups.get(&VdevId(config.id)).into_iter().flatten();
        groups.for_each(|group| group.reshape(config));
    }

    /// Removes a vdev without allocated blocks.
    pub fn remove_vdev(&self, vdev: VdevId) {
        let mut vdevs = self.vdevs.write();
        vdevs.groups.remove(&vdev);
        vdevs.classes.iter_mut().for_each(|class| class.groups.retain(|group| group.vdev != vdev));
    }

    /// Sets whether a vdev accepts blocks: not while offline or being emptied.
    pub fn set_allocates(&self, vdev: VdevId, allocates: bool) {
        let vdevs = self.vdevs.read();
        vdevs.groups.get(&vdev).into_iter().flatten().for_each(|group| group.set_allocates(allocates));
    }

    /// Allocates addresses for all copies of a block.
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

    /// The class for a block (`spa_preferred_class`); intent logs request [`AllocClass::Log`].
    pub fn preferred_class(&self, block: &BlockUse, reserve_percent: u64) -> AllocClass {
        let vdevs = self.vdevs.read();
        let class = |class: AllocClass| &vdevs.classes[class as usize];
        let has = |of: AllocClass| !class(of).groups.is_empty();
        let used_percent = || class(AllocClass::Special).used_percent();
        block.class(has(AllocClass::Special), has(AllocClass::Dedup), used_percent, reserve_percent)
    }

    /// Undoes an allocation of an unsynced txg.
    ///
    /// # Errors
    /// It was not allocated.
    pub fn unallocate(&self, dva: &Dva, txg: Txg) -> Result<(), AllocError> {
        self.at(dva, |group| group.unallocate(dva, txg))
    }

    /// Frees a block in the syncing txg `txg`; allocatable two txgs later, unless a checkpoint or a reader
    /// needs it. On a removed vdev, frees the current copies.
    ///
    /// # Errors
    /// It was not allocated, or not in this txg or an earlier one.
    pub fn free(&self, dva: &Dva, birth: PhysicalBirth, txg: Txg) -> Result<(), AllocError> {
        let checkpoint = self.checkpoint_txg.load(Ordering::Relaxed);
        let needed = match checkpoint != 0 && birth.0 <= checkpoint {
            true => Needed::Checkpoint,
            false => self.needed(birth),
        };
        self.vdevs.read().free(dva, needed, txg)
    }

    /// Frees a range kept for a checkpoint.
    ///
    /// # Errors
    /// It was not allocated.
    pub fn free_range(
        &self,
        vdev: VdevId,
        offset_bytes: u64,
        len_bytes: u64,
        txg: Txg,
    ) -> Result<(), AllocError> {
        let dva = Dva { vdev, offset_bytes, asize: Asize(len_bytes), gang: false };
        self.vdevs.read().free(&dva, self.needed(PhysicalBirth::UNKNOWN), txg)
    }

    fn needed(&self, birth: PhysicalBirth) -> Needed {
        if self.keeper.holds_since(birth) { Needed::Readers } else { Needed::Latest }
    }

    /// Keeps blocks born up to this txg, for a checkpoint; `Txg(0)` keeps none.
    pub fn keep_for_checkpoint(&self, txg: Txg) {
        self.checkpoint_txg.store(txg.0, Ordering::Relaxed);
    }

    /// Sets the mapping of a vdev removed, or of the copied part of one being removed.
    pub fn set_moved(&self, vdev: VdevId, mapping: IndirectMapping) {
        self.vdevs.write().moved.insert(vdev, Moved::new(mapping));
    }

    /// Replaces a removed vdev's mapping by a condensed one.
    pub fn condense_moved(&self, vdev: VdevId, mapping: IndirectMapping) {
        self.vdevs.write().moved.get_mut(&vdev).into_iter().for_each(|moved| moved.condense(mapping.clone()));
    }

    /// Extends the mapping of a vdev being removed.
    ///
    /// # Errors
    /// The entries do not follow the existing ones.
    pub fn extend_moved(
        &self,
        vdev: VdevId,
        more: &[IndirectMappingEntry],
    ) -> Result<(), cenote_format::FormatError> {
        let mut vdevs = self.vdevs.write();
        vdevs.moved.entry(vdev).or_insert_with(|| Moved::new(IndirectMapping::default())).extend(more)
    }

    /// Cancels the removal of a vdev.
    pub fn forget_moved(&self, vdev: VdevId) {
        self.vdevs.write().moved.remove(&vdev);
    }

    /// End of the copied part of a vdev, or 0.
    pub fn moved_up_to(&self, vdev: VdevId) -> u64 {
        self.vdevs.read().moved.get(&vdev).map_or(0, Moved::end_bytes)
    }

    /// The mapping of a vdev that was or is being removed.
    pub fn mapping(&self, vdev: VdevId) -> Option<IndirectMapping> {
        self.vdevs.read().moved.get(&vdev).map(|moved| moved.mapping().clone())
    }

    /// The used parts of a range, as of the syncing txg.
    pub fn in_use(&self, vdev: VdevId, start: u64, end: u64) -> Ranges {
        let vdevs = self.vdevs.read();
        let mut in_use = Ranges::default();
        for group in vdevs.groups.get(&vdev).into_iter().flatten() {
            group.add_in_use(start, end, &mut in_use);
        }
        in_use
    }

    /// Marks a mapping as obsolete, though the block at its new address is used.
    pub fn note_obsolete(&self, dva: &Dva) {
        self.vdevs.read().moved.get(&dva.vdev).inspect(|moved| moved.note_obsolete(dva));
    }

    /// Takes the newly obsolete ranges of removed vdevs.
    pub fn take_obsolete(&self) -> Vec<(VdevId, Ranges)> {
        let vdevs = self.vdevs.read();
        let taken = vdevs.moved.iter().map(|(vdev, moved)| (*vdev, moved.take_obsolete()));
        taken.filter(|(_, ranges)| !ranges.is_empty()).collect()
    }

    /// Allocates the address of an intent-log block written before the pool was opened.
    ///
    /// # Errors
    /// It is not free.
    pub fn claim(&self, dva: &Dva, txg: Txg) -> Result<(), AllocError> {
        self.at(dva, |group| group.claim(dva, txg))
    }

    /// Takes free space after a block for `psize` bytes, if space is plentiful, to prepare it for later
    /// blocks. The caller must [unallocate](Allocator::unallocate) it.
    pub fn claim_behind(&self, dva: &Dva, psize: Psize, txg: Txg) -> Option<Dva> {
        let vdevs = self.vdevs.read();
        vdevs.groups.get(&dva.vdev)?.iter().find_map(|group| group.claim_behind(dva, psize, txg))
    }

    /// Takes the txg's changes since the last call, by vdev and metaslab.
    pub fn take_changes(&self, txg: Txg) -> Vec<MetaslabChanges> {
        let mut changes = Vec::new();
        self.each_group(|group| group.take_changes(txg, &mut changes));
        changes.sort_by_key(|change| (change.vdev, change.index));
        changes
    }

    /// Completes a txg on disk: space freed two txgs ago becomes allocatable, unless a reader or a checkpoint
    /// keeps it.
    pub fn finish(&self, txg: Txg) {
        let (held, trims) = (self.keeper.finish(txg), self.trims());
        self.each_group(|group| group.finish(txg, &held, trims));
    }

    /// Keeps the last synced tree from reuse, so it can be walked while the pool changes. Unless firm, the
    /// keep is revoked when space runs short. Firm keeps are for callers that write to found blocks, for
    /// seconds.
    pub fn keep_freed(&self, is_firm: bool) -> KeptSpace {
        self.keeper.keep(is_firm)
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    /// Whether a reader holds a txg before this one.
    pub fn is_kept_before(&self, txg: Txg) -> bool {
        self.keeper.holds_before(txg)
    }

    /// Space is short: releases readers' space with the next txg.
    pub fn give_up_kept(&self) {
        self.keeper.give_up();
    }

    /// Borrows free units of a metaslab from an offset on, at most `most_bytes` but at least one unit.
    pub fn borrow_free(
        self: &Arc<Self>,
        vdev: VdevId,
        metaslab: u64,
        from: u64,
        most_bytes: u64,
    ) -> BorrowedSpace {
        self.borrow(vdev, metaslab, |metaslab| metaslab.borrow(from, most_bytes))
    }

    /// Borrows untrimmed ranges ([`Allocator::set_trims`]), and marks them as trimmed.
    pub fn borrow_untrimmed(self: &Arc<Self>, vdev: VdevId, metaslab: u64, most_bytes: u64) -> BorrowedSpace {
        self.borrow(vdev, metaslab, |metaslab| metaslab.borrow_untrimmed(most_bytes))
    }

    fn borrow(
        self: &Arc<Self>,
        vdev: VdevId,
        index: u64,
        spans: impl Fn(&mut Metaslab) -> Vec<Span>,
    ) -> BorrowedSpace {
        let vdevs = self.vdevs.read();
        let mut groups = vdevs.groups.get(&vdev).into_iter().flatten();
        let spans = groups.find_map(|group| group.borrow(index, &spans)).unwrap_or_default();
        let ranges = spans.iter().map(|span| (span.start(), span.end())).collect();
        BorrowedSpace(Arc::new(Borrowed { allocator: self.clone(), vdev, metaslab: index, spans, ranges }))
    }

    /// Sets whether freed space is to be trimmed. Turning it off forgets untrimmed ranges.
    pub fn set_trims(&self, trims: bool) {
        self.trims.store(trims, Ordering::Release);
    }

    /// Whether newly freed space is to be trimmed.
    pub fn trims(&self) -> bool {
        self.trims.load(Ordering::Acquire)
    }

    /// Makes all freed space allocatable at once. The pool can no longer be rewound safely.
    pub fn release_deferred(&self) {
        let held = self.keeper.held();
        self.each_group(|group| group.release(&held));
    }

    /// The minimal content of a metaslab's space map, for condensing it.
    pub fn allocated(&self, vdev: VdevId, metaslab: u64) -> Option<Ranges> {
        let vdevs = self.vdevs.read();
        vdevs.groups.get(&vdev)?.iter().find_map(|group| group.allocated(metaslab))
    }

    /// Whether any vdev belongs to a class.
    pub fn has_class(&self, class: AllocClass) -> bool {
        !self.vdevs.read().classes[class as usize].groups.is_empty()
    }

    /// Space of a class; [`AllocClass::Normal`] gives the pool's fragmentation.
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

    /// Space of each metaslab of a vdev, by index.
    pub fn metaslab_spaces(&self, vdev: VdevId) -> Vec<(u64, Space)> {
        let vdevs = self.vdevs.read();
        let groups = vdevs.groups.get(&vdev).into_iter().flatten();
        let mut spaces: Vec<_> = groups.flat_map(|group| group.spaces()).collect();
        spaces.sort_by_key(|(index, _)| *index);
        spaces
    }

    fn each_group(&self, mut act: impl FnMut(&MetaslabGroup)) {
        self.vdevs.read().groups.values().flatten().for_each(|group| act(group));
    }

    fn at(
        &self,
        dva: &Dva,
        act: impl Fn(&MetaslabGroup) -> Result<(), AllocError>,
    ) -> Result<(), AllocError> {
        self.vdevs.read().at(dva, act)
    }
}

/// Free space not allocatable until the last clone is dropped. Each operation holds a clone, because the
/// device may outlast the waiter.
#[derive(Clone)]
pub struct BorrowedSpace(Arc<Borrowed>);

struct Borrowed {
    allocator: Arc<Allocator>,
    vdev: VdevId,
    metaslab: u64,
    spans: Vec<Span>,
    ranges: Vec<(u64, u64)>,
}

impl BorrowedSpace {
    /// Start and end of each range on the vdev, in order.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0.ranges
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let vdevs = self.allocator.vdevs.read();
        let groups = vdevs.groups.get(&self.vdev).into_iter().flatten();
        groups.for_each(|group| group.give_back(self.metaslab, &self.spans));
    }
}

impl Vdevs {
    fn at(
        &self,
        dva: &Dva,
        act: impl Fn(&MetaslabGroup) -> Result<(), AllocError>,
    ) -> Result<(), AllocError> {
        let not_here = AllocError::BadAddress { dva: *dva };
        let groups = self.groups.get(&dva.vdev).into_iter().flatten();
        groups
            .map(|group| act(group))
            .find(|done| *done != Err(not_here.clone()))
            .unwrap_or(Err(not_here.clone()))
    }

    fn free(&self, dva: &Dva, needed: Needed, txg: Txg) -> Result<(), AllocError> {
        let Some(moved) = self.moved.get(&dva.vdev) else {
            return self.at(dva, |group| group.free(dva, needed, txg));
        };
        if self.groups.contains_key(&dva.vdev) {
            self.at(dva, |group| group.free(dva, needed, txg))?;
        }
        for copy in moved.free(dva)? {
            self.free(&copy, needed, txg)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
