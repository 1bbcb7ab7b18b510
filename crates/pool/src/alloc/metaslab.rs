//! Metaslab: a slice of a vdev that allocates from its own free space.
//!
//! Idea: every byte is in exactly one of these sets, or allocated on disk:
//!
//! ```text
//!    free --allocate, claim--> allocating[txg] --take_changes--> (allocated: in no set)
//!     ^                                                              |
//!     |                                                            free
//!  deferred <--finish-- freed <--take_changes-- freeing <------------+
//! ```
//!
//! Initialize and trim may borrow free space while they work on it. With automatic trim, `untrimmed` records
//! recently freed space not allocated since (`ms_trim`).
//!
//! Freed space stays unavailable for two more txgs: the pool can be rewound by that many.
//!
//! A block goes to the first long enough range after a cursor for blocks of its alignment (dynamic fit,
//! `metaslab_df_alloc`), so blocks written together lie together. When space is short or fragmented, it goes
//! to the smallest such range.
//!
//! Source: OpenZFS `metaslab_impl.h` (states), `metaslab.c` (`metaslab_df_alloc`, `metaslab_sync`,
//! `metaslab_sync_done`).

use super::free_space::FreeSpace;
use super::histogram::SizeHistogram;
use super::kept::{Held, TXG_DEFER_SIZE};
use super::unit::{Span, Unit};
use super::{NewMetaslab, Space};
use crate::ranges::Ranges;
use cenote_format::units::Txg;
use std::ops::Range;

/// `TXG_SIZE`.
const TXG_SIZE: usize = 4;

const MOST_DEFERRED: usize = 8;

const _: () = assert!(TXG_SIZE.is_power_of_two() && TXG_DEFER_SIZE < MOST_DEFERRED);

/// `metaslab_df_alloc_threshold`: best fit if the largest free range is shorter.
const DF_ALLOC_THRESHOLD_BYTES: u64 = 128 << 10;
/// `metaslab_df_free_pct`: best fit if less is free.
const DF_FREE_PERCENT: u64 = 4;

/// The order of the largest free ranges, then their number (`metaslab_segment_weight`); 0 if full.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Weight {
    order: u32,
    count: u64,
}

impl Weight {
    fn of(free: &FreeSpace) -> Weight {
        let order = free.largest_bytes().checked_ilog2().unwrap_or(0);
        Weight { order, count: free.histogram().0[order as usize] }
    }

    /// Whether a free range may be this long.
    pub(super) fn allows(self, len_bytes: u64) -> bool {
        self.count > 0 && len_bytes >> self.order <= 1
    }

    /// Halvings of the largest free ranges since `earlier`.
    pub(super) fn halvings_since(self, earlier: Weight) -> u32 {
        earlier.order.saturating_sub(self.order)
    }
}

/// All offsets are in bytes from the start of the vdev.
#[derive(Debug)]
pub(super) struct Metaslab {
    pub(super) index: u64,
    pub(super) start_bytes: u64,
    pub(super) size_bytes: u64,
    unit: Unit,
    free: FreeSpace,
    allocating: [Ranges; TXG_SIZE],
    /// Indexed by [`Needed`].
    freeing: [Ranges; READERS],
    /// Freed, but kept allocated for a checkpoint.
    checkpointing: Ranges,
    freed: [Ranges; READERS],
    deferred: Vec<Deferred>,
    /// Free, but in use by initialize or trim.
    borrowed: Ranges,
    /// The untrimmed part of free and borrowed space.
    untrimmed: Ranges,
    /// Per power of two in a size: the last such block's end.
    cursors: [u64; 64],
}

/// Readers of a freed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needed {
    Latest,
    Readers,
    Checkpoint,
}

const READERS: usize = 2;

#[derive(Debug)]
struct Deferred {
    needed: Needed,
    /// Txgs whose trees contain the ranges, up to the one before the free.
    trees: Range<u64>,
    ranges: Ranges,
}

pub(super) struct Changes {
    pub(super) allocated: Ranges,
    pub(super) freed: Ranges,
    pub(super) checkpointed: Ranges,
}

/// Why a range cannot be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfreeable {
    NotAllocated,
    /// Allocated in a txg other than the syncing one.
    OtherTxg,
}

impl Metaslab {
    /// Partial units (in a damaged map) do not become free.
    pub(super) fn new(new: &NewMetaslab, unit: Unit) -> Metaslab {
        let end_bytes = new.start_bytes.saturating_add(new.size_bytes);
        let free = new.allocated.complement(new.start_bytes, end_bytes);
        Metaslab {
            index: new.index,
            start_bytes: new.start_bytes,
            size_bytes: new.size_bytes,
            unit,
            free: FreeSpace::new(&free, unit),
            allocating: Default::default(),
            freeing: Default::default(),
            checkpointing: Ranges::default(),
            freed: Default::default(),
            deferred: Vec::new(),
            borrowed: Ranges::default(),
            untrimmed: Ranges::default(),
            cursors: [0; 64],
        }
    }

    pub(super) fn end_bytes(&self) -> u64 {
        self.start_bytes + self.size_bytes
    }

    pub(super) fn weight(&self) -> Weight {
        Weight::of(&self.free)
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.free.ranges().total_bytes()
    }

    pub(super) fn largest_bytes(&self) -> u64 {
        self.free.largest_bytes()
    }

    /// `None` if it contains the offset.
    pub(super) fn distance_bytes(&self, offset: u64) -> Option<u64> {
        match offset {
            _ if offset < self.start_bytes => Some(self.start_bytes - offset),
            _ if offset >= self.end_bytes() => Some(offset - self.end_bytes()),
            _ => None,
        }
    }

    pub(super) fn allocate(&mut self, len: u64, txg: Txg) -> Option<u64> {
        let cursor = len.trailing_zeros() as usize;
        let short = self.largest_bytes() < DF_ALLOC_THRESHOLD_BYTES
            || self.free_bytes() / self.size_bytes.div_ceil(100).max(1) < DF_FREE_PERCENT;
        let near = if short { None } else { self.free.first_fit(self.cursors[cursor], len) };
        let offset = near.or_else(|| self.free.best_fit(len))?;
        self.cursors[cursor] = offset + len;
        self.take(self.unit.span(offset, len)?, txg);
        Some(offset)
    }

    pub(super) fn claim(&mut self, span: Span, txg: Txg) -> bool {
        let free = self.free.ranges().contains(span.start(), span.len());
        if free {
            self.take(span, txg);
        }
        free
    }

    fn take(&mut self, span: Span, txg: Txg) {
        debug_assert!(span.start() >= self.start_bytes && span.end() <= self.end_bytes(), "{span:x?}");
        self.free.remove(span);
        let (offset, len) = (span.start(), span.len());
        if !self.untrimmed.is_empty() {
            self.untrimmed.remove(offset, len);
        }
        let twice = self.allocating[slot(txg)].insert(offset, len);
        debug_assert_eq!(twice, None, "allocated twice");
    }

    /// Borrows from an offset on, at most `most_bytes` but at least one unit.
    pub(super) fn borrow(&mut self, from: u64, most_bytes: u64) -> Vec<Span> {
        let free = self.free.ranges().iter_from(from);
        let beyond = free.filter_map(|(start, end)| self.unit.within((start.max(from), end)));
        let taken = first_of(self.unit, beyond, most_bytes, |_| true);
        self.lend(&taken);
        taken
    }

    fn lend(&mut self, spans: &[Span]) {
        for span in spans {
            self.free.remove(*span);
            self.borrowed.insert(span.start(), span.len());
        }
    }

    pub(super) fn borrow_untrimmed(&mut self, most_bytes: u64) -> Vec<Span> {
        let untrimmed = self.untrimmed.iter().filter_map(|range| self.unit.within(range));
        // Part of it may be borrowed already.
        let is_there = |span: &Span| self.free.ranges().contains(span.start(), span.len());
        let taken = first_of(self.unit, untrimmed, most_bytes, is_there);
        taken.iter().for_each(|span| _ = self.untrimmed.remove(span.start(), span.len()));
        self.lend(&taken);
        taken
    }

    pub(super) fn give_back(&mut self, spans: &[Span]) {
        for span in spans {
            self.borrowed.remove(span.start(), span.len());
            self.free.insert(*span);
        }
    }

    /// Undoes an unreported allocation of this txg: the range is free at once.
    pub(super) fn take_back(&mut self, span: Span, txg: Txg) -> bool {
        let allocating = &mut self.allocating[slot(txg)];
        let unheard = allocating.contains(span.start(), span.len());
        if unheard {
            allocating.remove(span.start(), span.len());
            self.free.insert(span);
        }
        unheard
    }

    /// Frees a range in the syncing txg `txg`.
    pub(super) fn free(&mut self, span: Span, needed: Needed, txg: Txg) -> Result<(), Unfreeable> {
        let (offset, len) = (span.start(), span.len());
        let is_clear = |ranges: &Ranges| ranges.is_clear(offset, len);
        if !self.unallocated().chain([&self.checkpointing]).all(is_clear) {
            return Err(Unfreeable::NotAllocated);
        }
        // This txg's space maps would free a range that only the next txg's maps allocate.
        let of_others = self.allocating.iter().zip(0..).filter(|(_, other)| *other != slot(txg));
        if !of_others.map(|(ranges, _)| ranges).all(is_clear) {
            return Err(Unfreeable::OtherTxg);
        }
        let into = match needed {
            Needed::Checkpoint => &mut self.checkpointing,
            by => &mut self.freeing[by as usize],
        };
        into.insert(offset, len);
        Ok(())
    }

    fn unallocated(&self) -> impl Iterator<Item = &Ranges> {
        std::iter::once(self.free.ranges()).chain(self.waiting())
    }

    /// Freed or borrowed ranges, not allocatable yet.
    fn waiting(&self) -> impl Iterator<Item = &Ranges> {
        self.freeing.iter().chain(self.freed())
    }

    /// Those free on disk, but not allocatable.
    fn freed(&self) -> impl Iterator<Item = &Ranges> {
        let deferred = self.deferred.iter().map(|deferred| &deferred.ranges);
        self.freed.iter().chain([&self.borrowed]).chain(deferred)
    }

    /// `None` if nothing changed.
    pub(super) fn take_changes(&mut self, txg: Txg) -> Option<Changes> {
        let allocated = std::mem::take(&mut self.allocating[slot(txg)]);
        let mut freed = Ranges::default();
        for (freeing, into) in std::mem::take(&mut self.freeing).iter().zip(&mut self.freed) {
            for (start, end) in freeing.iter() {
                let twice = into.insert(start, end - start).or(freed.insert(start, end - start));
                debug_assert_eq!(twice, None, "freed twice");
            }
        }
        let checkpointed = std::mem::take(&mut self.checkpointing);
        let is_changed = !allocated.is_empty() || !freed.is_empty() || !checkpointed.is_empty();
        is_changed.then_some(Changes { allocated, freed, checkpointed })
    }

    /// Completes a txg on disk: defers its freed space, and frees deferred space that has waited long enough
    /// and that no held state contains.
    pub(super) fn finish(&mut self, txg: Txg, held: &Held, trims: bool) {
        let is_taken = self.freeing.iter().all(Ranges::is_empty) && self.allocating[slot(txg)].is_empty();
        debug_assert!(is_taken, "changes not taken");
        self.defer(Needed::Latest, held.latest.0..txg.0);
        self.defer(Needed::Readers, 0..txg.0);
        for done in self.settled(held) {
            self.set_free(&done);
            if trims {
                done.iter().for_each(|(start, end)| _ = self.untrimmed.insert(start, end - start));
            }
        }
        if !trims && !self.untrimmed.is_empty() {
            self.untrimmed = Ranges::default();
        }
    }

    /// Merges sets if there are many, because every free searches all.
    fn defer(&mut self, needed: Needed, trees: Range<u64>) {
        let ranges = std::mem::take(&mut self.freed[needed as usize]);
        if ranges.is_empty() {
            return;
        }
        let is_long = self.deferred.len() >= MOST_DEFERRED;
        match self.deferred.iter_mut().rfind(|last| is_long && last.needed == needed) {
            Some(last) => {
                last.trees.end = trees.end;
                ranges.iter().for_each(|(start, end)| _ = last.ranges.insert(start, end - start));
            }
            None => self.deferred.push(Deferred { needed, trees, ranges }),
        }
    }

    pub(super) fn release(&mut self, held: &Held) {
        self.settled(held).iter().for_each(|ranges| self.set_free(ranges));
    }

    /// Deferred space that has waited long enough and is in no held state.
    fn settled(&mut self, held: &Held) -> Vec<Ranges> {
        let is_done =
            |waits: &mut Deferred| waits.trees.end <= held.settled.0 && !held.has_any_of(&waits.trees);
        self.deferred.extract_if(.., is_done).map(|done| done.ranges).collect()
    }

    fn set_free(&mut self, ranges: &Ranges) {
        for range in ranges.iter() {
            let span = self.unit.within(range);
            debug_assert_eq!(
                span.map(|span| (span.start(), span.end())),
                Some(range),
                "whole units were freed"
            );
            span.into_iter().for_each(|span| self.free.insert(span));
        }
    }

    /// The content of the space map, as far as changes were taken.
    pub(super) fn allocated(&self) -> Ranges {
        let mut free = self.free.ranges().clone();
        let unheard = self.allocating.iter();
        for (start, end) in unheard.chain(self.freed()).flat_map(Ranges::iter) {
            free.insert(start, end - start);
        }
        free.complement(self.start_bytes, self.end_bytes())
    }

    /// The used parts of a range, including changes not yet taken.
    pub(super) fn in_use(&self, (start, end): (u64, u64)) -> Ranges {
        let mut free = Ranges::default();
        for (s, e) in self.unallocated().flat_map(|set| set.iter_from(start).take_while(|one| one.0 < end)) {
            free.insert(s, e - s);
        }
        free.complement(start, end)
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        let heard = [self.free.ranges()].into_iter().chain(self.freed()).chain(&self.allocating);
        self.size_bytes - heard.map(Ranges::total_bytes).sum::<u64>()
    }

    /// Free and deferred ranges, by size.
    pub(super) fn free_ranges(&self) -> SizeHistogram {
        let mut all = *self.free.histogram();
        self.waiting().for_each(|ranges| all.merge(&ranges.iter().collect()));
        all
    }

    pub(super) fn space(&self) -> Space {
        let free_ranges = self.free_ranges();
        // Unused space is one piece, however small the metaslab is.
        let empty = self.free_bytes() == self.size_bytes;
        let fragmentation_percent = if empty { 0 } else { free_ranges.fragmentation_percent() };
        Space {
            size_bytes: self.size_bytes,
            allocated_bytes: self.size_bytes - self.free_bytes(),
            deferred_bytes: self.waiting().map(Ranges::total_bytes).sum(),
            largest_bytes: self.largest_bytes(),
            fragmentation_percent,
            free_ranges,
        }
    }
}

/// The first wanted spans, at most `most_bytes` but at least one unit.
fn first_of(
    unit: Unit,
    spans: impl Iterator<Item = Span>,
    most_bytes: u64,
    is_wanted: impl Fn(&Span) -> bool,
) -> Vec<Span> {
    let (mut taken, mut left) = (Vec::new(), most_bytes.max(1));
    for span in spans {
        if left == 0 {
            break;
        }
        let first = unit.first(span, left);
        if is_wanted(&first) {
            left = left.saturating_sub(first.len());
            taken.push(first);
        }
    }
    taken
}

fn slot(txg: Txg) -> usize {
    txg.0 as usize % TXG_SIZE
}
