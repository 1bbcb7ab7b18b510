//! Metaslab group: the metaslabs of one top-level vdev that serve one class.
//!
//! Idea: the best metaslab is the one with the largest free ranges. It becomes *active* and receives all
//! blocks until its largest free ranges have shrunk to a quarter of their size at activation
//! (`zfs_metaslab_switch_threshold`). Copies of a block that must share a vdev each have their own active
//! metaslab.
//!
//! Invariants: `by_weight` holds every metaslab under its weight when last ranked. That is never less than
//! its current weight, because every free ranks it again.
//!
//! Locking: one mutex per group guards all its metaslabs. Methods take it once per operation or metaslab.
//! Only the footprint's lock may be taken under it, for one read. `allocates` and `size_bytes` are relaxed
//! atomics: a stale value may admit one more block, or use the size before the vdev grew.
//!
//! Source: OpenZFS `metaslab.c` (`metaslab_group_alloc_normal`, `find_valid_metaslab`,
//! `metaslab_segment_may_passivate`).

use super::footprint::Footprint;
use super::kept::Held;
use super::metaslab::{Metaslab, Needed, Unfreeable, Weight};
use super::unit::{Span, Unit};
use super::{AllocClass, AllocError, MetaslabChanges, NewMetaslab, Space};
use crate::config::VdevConfig;
use crate::ranges::Ranges;
use cenote_format::blkptr::{Dva, SPA_DVAS_PER_BP};
use cenote_format::units::{Asize, PhysicalBirth, Psize, SPA_MINBLOCKSIZE, Txg, VdevId};
use parking_lot::{Mutex, RwLock};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The most copies of a block, `SPA_DVAS_PER_BP`.
pub(super) const MAX_COPIES: usize = 3;
/// `zfs_metaslab_switch_threshold`, in halvings of the largest free ranges.
const SWITCH_THRESHOLD: u32 = 2;
/// Distance of copies on one vdev: an eighth of it, `ditto_same_vdev_distance_shift`.
const DITTO_DISTANCE_SHIFT: u32 = 3;
/// Space is plentiful if more than this fraction is free.
const PLENTY_SHIFT: u32 = 3;
/// Bytes per data disk and turn, `metaslab_aliquot`.
const ALIQUOT_BYTES: u64 = 1 << 20;

const _: () = assert!(MAX_COPIES == SPA_DVAS_PER_BP);

/// Distance between copies on one vdev, in order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    Far,
    OtherMetaslab,
    Anywhere,
}

impl Spread {
    pub(super) const ALL: [Spread; 3] = [Spread::Far, Spread::OtherMetaslab, Spread::Anywhere];
}

#[derive(Debug)]
pub(super) struct MetaslabGroup {
    pub(super) vdev: VdevId,
    pub(super) class: AllocClass,
    /// Replaced when the vdev is expanded; its unit stays.
    footprint: RwLock<Footprint>,
    size_bytes: AtomicU64,
    allocates: AtomicBool,
    slabs: Mutex<Slabs>,
}

#[derive(Debug)]
struct Slabs {
    /// By offset.
    all: Vec<Metaslab>,
    /// Best first, then by offset: (weight, index into `all`).
    by_weight: BTreeSet<(Reverse<Weight>, usize)>,
    ranked: Vec<Weight>,
    active: [Option<Active>; MAX_COPIES],
    free_bytes: u64,
    /// No free range is this long; 0 if unknown.
    too_long_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Active {
    metaslab: usize,
    weight: Weight,
}

impl MetaslabGroup {
    pub(super) fn new(config: &VdevConfig, class: AllocClass, metaslabs: &[NewMetaslab]) -> MetaslabGroup {
        let footprint = Footprint::new(config);
        let slabs = metaslabs.iter().map(|new| Metaslab::new(new, footprint.unit())).collect();
        MetaslabGroup {
            vdev: VdevId(config.id),
            class,
            footprint: footprint.into(),
            size_bytes: metaslabs.iter().map(|metaslab| metaslab.size_bytes).sum::<u64>().into(),
            allocates: AtomicBool::new(true),
            slabs: Mutex::new(Slabs::new(slabs)),
        }
    }

    pub(super) fn grow(&self, metaslabs: &[NewMetaslab]) {
        let mut slabs = self.slabs.lock();
        for new in metaslabs {
            slabs.add(Metaslab::new(new, self.unit()));
            self.size_bytes.fetch_add(new.size_bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn reshape(&self, config: &VdevConfig) {
        *self.footprint.write() = Footprint::new(config);
    }

    fn unit(&self) -> Unit {
        self.footprint.read().unit()
    }

    fn asize(&self, psize: Psize, txg: Txg) -> u64 {
        self.footprint.read().asize(psize, PhysicalBirth::in_txg(txg))
    }

    pub(super) fn allocates(&self) -> bool {
        self.allocates.load(Ordering::Relaxed)
    }

    pub(super) fn set_allocates(&self, allocates: bool) {
        self.allocates.store(allocates, Ordering::Relaxed);
    }

    /// Bytes handed out per turn if groups are equally empty.
    pub(super) fn aliquot_bytes(&self) -> u64 {
        ALIQUOT_BYTES * self.footprint.read().data_disks
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn end_bytes(&self) -> u64 {
        self.slabs.lock().all.last().map_or(0, Metaslab::end_bytes)
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.slabs.lock().free_bytes
    }

    pub(super) fn largest_bytes(&self) -> u64 {
        self.slabs.lock().all.iter().map(Metaslab::largest_bytes).max().unwrap_or(0)
    }

    pub(super) fn allocate(&self, psize: Psize, txg: Txg, spread: Spread, others: &[Dva]) -> Option<Dva> {
        let asize = self.asize(psize, txg);
        let here = || others.iter().filter(|other| other.vdev == self.vdev).map(|other| other.offset_bytes);
        let apart_bytes = self.size_bytes() >> DITTO_DISTANCE_SHIFT;
        let suits = |metaslab: &Metaslab| match spread {
            Spread::Far => here().all(|at| metaslab.distance_bytes(at).is_some_and(|d| d >= apart_bytes)),
            Spread::OtherMetaslab => here().all(|at| metaslab.distance_bytes(at).is_some()),
            Spread::Anywhere => true,
        };
        let copy = here().count().min(MAX_COPIES - 1);
        let offset_bytes = self.slabs.lock().allocate(asize, txg, copy, suits)?;
        assert!(self.unit().span(offset_bytes, asize).is_some(), "at {offset_bytes:x}");
        Some(Dva { vdev: self.vdev, offset_bytes, asize: Asize(asize), gang: false })
    }

    pub(super) fn claim(&self, dva: &Dva, txg: Txg) -> Result<(), AllocError> {
        let free = self.at(dva, |metaslab, span| metaslab.claim(span, txg))?;
        if free { Ok(()) } else { Err(AllocError::NotFree { dva: *dva }) }
    }

    pub(super) fn claim_behind(&self, dva: &Dva, psize: Psize, txg: Txg) -> Option<Dva> {
        if self.free_bytes() < self.size_bytes() >> PLENTY_SHIFT {
            return None;
        }
        let offset_bytes = dva.offset_bytes.checked_add(dva.asize.0)?;
        let behind = Dva { offset_bytes, asize: Asize(self.asize(psize, txg)), gang: false, ..*dva };
        self.claim(&behind, txg).is_ok().then_some(behind)
    }

    /// Undoes an allocation of this txg, by a free if it was already reported in `take_changes`.
    pub(super) fn unallocate(&self, dva: &Dva, txg: Txg) -> Result<(), AllocError> {
        self.free_at(dva, |metaslab, span| match metaslab.take_back(span, txg) {
            true => Ok(()),
            false => metaslab.free(span, Needed::Latest, txg),
        })
    }

    pub(super) fn free(&self, dva: &Dva, needed: Needed, txg: Txg) -> Result<(), AllocError> {
        self.free_at(dva, |metaslab, span| metaslab.free(span, needed, txg))
    }

    fn free_at(
        &self,
        dva: &Dva,
        free: impl FnOnce(&mut Metaslab, Span) -> Result<(), Unfreeable>,
    ) -> Result<(), AllocError> {
        self.at(dva, free)?.map_err(|why| match why {
            Unfreeable::NotAllocated => AllocError::NotAllocated { dva: *dva },
            Unfreeable::OtherTxg => AllocError::OtherTxg { dva: *dva },
        })
    }

    fn at<T>(&self, dva: &Dva, act: impl FnOnce(&mut Metaslab, Span) -> T) -> Result<T, AllocError> {
        // A gang address states the length of all its pieces; only the header lies there.
        let len = match dva.gang {
            true => self.asize(Psize(SPA_MINBLOCKSIZE), Txg(0)),
            false => dva.asize.0,
        };
        let mut slabs = self.slabs.lock();
        let span = self.unit().span(dva.offset_bytes, len).ok_or(AllocError::BadAddress { dva: *dva })?;
        let within = |index: &usize| slabs.all[*index].end_bytes() >= span.end();
        let index = slabs.find(span.start()).filter(within).ok_or(AllocError::BadAddress { dva: *dva })?;
        Ok(slabs.change(index, |metaslab| act(metaslab, span)))
    }

    pub(super) fn take_changes(&self, txg: Txg, changes: &mut Vec<MetaslabChanges>) {
        let mut slabs = self.slabs.lock();
        for metaslab in &mut slabs.all {
            if let Some(changed) = metaslab.take_changes(txg) {
                changes.push(MetaslabChanges {
                    vdev: self.vdev,
                    index: metaslab.index,
                    start_bytes: metaslab.start_bytes,
                    allocated: changed.allocated,
                    freed: changed.freed,
                    checkpointed: changed.checkpointed,
                    allocated_bytes: metaslab.allocated_bytes(),
                    free_ranges: metaslab.free_ranges(),
                });
            }
        }
    }

    pub(super) fn finish(&self, txg: Txg, held: &Held, trims: bool) {
        self.each(|metaslab| metaslab.finish(txg, held, trims));
    }

    pub(super) fn release(&self, held: &Held) {
        self.each(|metaslab| metaslab.release(held));
    }

    /// `None` if the metaslab belongs to another group.
    pub(super) fn borrow(
        &self,
        index: u64,
        spans: impl FnOnce(&mut Metaslab) -> Vec<Span>,
    ) -> Option<Vec<Span>> {
        let mut slabs = self.slabs.lock();
        let at = slabs.all.iter().position(|metaslab| metaslab.index == index)?;
        Some(slabs.change(at, spans))
    }

    pub(super) fn give_back(&self, index: u64, spans: &[Span]) {
        let mut slabs = self.slabs.lock();
        if let Some(at) = slabs.all.iter().position(|metaslab| metaslab.index == index) {
            slabs.change(at, |metaslab| metaslab.give_back(spans));
        }
    }

    /// Relocks for each metaslab, so that allocations can proceed in between.
    fn each(&self, mut act: impl FnMut(&mut Metaslab)) {
        let count = self.slabs.lock().all.len();
        for index in 0..count {
            self.slabs.lock().change(index, &mut act);
        }
    }

    pub(super) fn allocated(&self, index: u64) -> Option<Ranges> {
        let slabs = self.slabs.lock();
        slabs.all.iter().find(|metaslab| metaslab.index == index).map(Metaslab::allocated)
    }

    pub(super) fn add_in_use(&self, start: u64, end: u64, in_use: &mut Ranges) {
        let slabs = self.slabs.lock();
        for metaslab in slabs.all.iter().filter(|slab| slab.start_bytes < end && slab.end_bytes() > start) {
            let within = (start.max(metaslab.start_bytes), end.min(metaslab.end_bytes()));
            metaslab.in_use(within).iter().for_each(|(start, end)| _ = in_use.insert(start, end - start));
        }
    }

    pub(super) fn spaces(&self) -> Vec<(u64, Space)> {
        self.slabs.lock().all.iter().map(|metaslab| (metaslab.index, metaslab.space())).collect()
    }
}

impl Slabs {
    fn new(mut all: Vec<Metaslab>) -> Slabs {
        all.sort_by_key(|metaslab| metaslab.start_bytes);
        let ranked: Vec<Weight> = all.iter().map(Metaslab::weight).collect();
        let by_weight = ranked.iter().zip(0..).map(|(&weight, at)| (Reverse(weight), at)).collect();
        let free_bytes = all.iter().map(Metaslab::free_bytes).sum();
        Slabs { all, by_weight, ranked, active: Default::default(), free_bytes, too_long_bytes: 0 }
    }

    fn add(&mut self, metaslab: Metaslab) {
        let (weight, at) = (metaslab.weight(), self.all.len());
        debug_assert!(self.all.last().is_none_or(|last| last.end_bytes() <= metaslab.start_bytes));
        self.free_bytes += metaslab.free_bytes();
        self.too_long_bytes = 0;
        self.by_weight.insert((Reverse(weight), at));
        self.ranked.push(weight);
        self.all.push(metaslab);
    }

    fn find(&self, offset: u64) -> Option<usize> {
        let index = self.all.partition_point(|metaslab| metaslab.start_bytes <= offset).checked_sub(1)?;
        (offset < self.all[index].end_bytes()).then_some(index)
    }

    fn allocate(
        &mut self,
        len: u64,
        txg: Txg,
        copy: usize,
        suits: impl Fn(&Metaslab) -> bool,
    ) -> Option<u64> {
        let fits = |metaslab: &Metaslab| metaslab.largest_bytes() >= len && suits(metaslab);
        let active = match self.active[copy].filter(|active| fits(&self.all[active.metaslab])) {
            Some(active) => active,
            None => {
                let best = self.best(len, &suits)?;
                self.activate(copy, best)
            }
        };
        let offset = self.change(active.metaslab, |metaslab| metaslab.allocate(len, txg))?;
        if self.all[active.metaslab].weight().halvings_since(active.weight) >= SWITCH_THRESHOLD {
            self.active[copy] = None;
            self.rank(active.metaslab);
        }
        Some(offset)
    }

    /// The best suitable metaslab, preferably none active for other copies.
    fn best(&mut self, len: u64, suits: impl Fn(&Metaslab) -> bool) -> Option<usize> {
        if self.too_long_bytes != 0 && len >= self.too_long_bytes {
            return None;
        }
        let promising = self.by_weight.iter().take_while(|(Reverse(weight), _)| weight.allows(len));
        let with_room = promising.map(|&(_, at)| at).filter(|&at| self.all[at].largest_bytes() >= len);
        let mut with_room = with_room.peekable();
        if with_room.peek().is_none() {
            self.too_long_bytes = len;
            return None;
        }
        let mut suitable = with_room.filter(|&at| suits(&self.all[at])).peekable();
        let first = suitable.peek().copied();
        let active = |at: usize| self.active.iter().flatten().any(|active| active.metaslab == at);
        suitable.find(|&at| !active(at)).or(first)
    }

    fn activate(&mut self, copy: usize, metaslab: usize) -> Active {
        let active = Active { metaslab, weight: self.all[metaslab].weight() };
        if let Some(before) = self.active[copy].replace(active) {
            self.rank(before.metaslab);
        }
        active
    }

    /// Also updates the sum of free bytes.
    fn change<T>(&mut self, index: usize, act: impl FnOnce(&mut Metaslab) -> T) -> T {
        let before = self.all[index].free_bytes();
        let result = act(&mut self.all[index]);
        let after = self.all[index].free_bytes();
        self.free_bytes = self.free_bytes - before + after;
        if after > before {
            self.too_long_bytes = 0;
            self.rank(index);
        }
        result
    }

    fn rank(&mut self, index: usize) {
        let weight = self.all[index].weight();
        let before = std::mem::replace(&mut self.ranked[index], weight);
        self.by_weight.remove(&(Reverse(before), index));
        self.by_weight.insert((Reverse(weight), index));
    }
}
