//! A slice of a removal: copies the vdev's next ranges and extends the mapping.
//!
//! ```text
//!   in use     |#####|  |##|            |#########...     gaps up to 32 KiB are copied as well
//!   copied     [-----------]            [----][----]      each as long as there is contiguous free space
//! ```
//!
//! Idea: space for the copies is allocated in the open txg, which is held until they are written. A task of
//! the same txg extends the mapping, so both are on disk, or neither. Parts unused by then, gaps included,
//! are freed and count as obsolete.
//!
//! Source: OpenZFS `vdev_removal.c` (`spa_vdev_copy_impl`, `spa_vdev_copy_segment`, `vdev_mapping_sync`).

use std::collections::VecDeque;
use std::time::Duration;

use cenote_dataset::spacemaps::metaslab_extent;
use cenote_engine::{Engine, Hold, SyncContext};
use cenote_format::blkptr::Dva;
use cenote_format::bytes::Endian;
use cenote_format::indirect::{IndirectBirth, IndirectBirthsPhys, IndirectMappingEntry, IndirectMappingPhys};
use cenote_format::label::{VdevClass, VdevConfig};
use cenote_format::units::{Asize, ObjectId, Psize, Txg, VdevId};
use cenote_format::words::{Phys, Words};
use cenote_object::{DatasetError, Result};
use cenote_pool::PoolError;
use cenote_pool::alloc::{AllocClass, AllocRequest};
use futures::StreamExt;

use super::{removing_top, set_state, state};

/// `vdev_removal_max_span`: free gaps up to this are copied with the ranges around them.
pub const MAX_SPAN_BYTES: u64 = 32 << 10;
/// Maximum length of a slice, which delays its txg.
const SLICE: Duration = Duration::from_millis(500);
/// Maximum number of longest ranges in a slice (`zfs_remove_max_copy_bytes`).
const SLICE_SEGMENTS: u64 = 4;
/// Ranges and bytes copied between looks at the clock.
const BATCH_ENTRIES: usize = 256;
const BATCH_BYTES: u64 = 16 << 20;
/// Bytes per read and write.
const COPY_BYTES: u64 = 1 << 20;
/// Reads and writes in flight.
const AT_ONCE: usize = 8;

/// The outcome of a slice.
pub(super) enum Slice {
    Copied,
    /// The vdev's removal has ended or been canceled.
    Gone,
    /// Everything is copied.
    NothingLeft,
    /// A copy failed.
    Failed(DatasetError),
}

/// Copies for a while, within the held txg.
pub(super) async fn slice(engine: Engine, hold: Hold, vdev: VdevId) -> Result<Slice> {
    let top = engine.pool().tree().vdevs().top(vdev).filter(|top| top.removing).cloned();
    let Some(top) = top else { return Ok(Slice::Gone) };
    let mut copying = Copying::of(&engine, top, hold.txg());
    if let Err(error) = copying.run().await {
        copying.give_back();
        return Ok(Slice::Failed(error));
    }
    let entries = copying.entries;
    if entries.is_empty() {
        return Ok(Slice::NothingLeft);
    }
    engine.run_in(hold, move |context| Box::pin(async move { note(context, vdev, entries).await })).await?;
    Ok(Slice::Copied)
}

struct Copying<'a> {
    engine: &'a Engine,
    top: VdevConfig,
    txg: Txg,
    /// Used ranges in the current metaslab.
    segments: VecDeque<(u64, u64)>,
    /// Where to look for more.
    from: u64,
    /// Upper bound of a range that may still find room.
    most_bytes: u64,
    entries: Vec<IndirectMappingEntry>,
    /// Number of entries copied.
    copied: usize,
}

impl Copying<'_> {
    fn of(engine: &Engine, top: VdevConfig, txg: Txg) -> Copying<'_> {
        let from = engine.allocator().moved_up_to(VdevId(top.id));
        let sector = 1 << top.ashift;
        let most_bytes = engine.background().settings().removal_segment_bytes().next_multiple_of(sector);
        let (segments, entries) = Default::default();
        Copying { engine, top, txg, segments, from, most_bytes, entries, copied: 0 }
    }

    async fn run(&mut self) -> Result<()> {
        let (began, most) = (self.engine.runtime().now(), self.most_bytes * SLICE_SEGMENTS);
        let mut bytes = 0;
        while bytes < most && self.engine.runtime().now().since(began) < SLICE {
            let mut in_batch = 0;
            while in_batch < BATCH_BYTES.min(most - bytes) && self.entries.len() - self.copied < BATCH_ENTRIES
            {
                let Some(len) = self.take_next()? else { break };
                in_batch += len;
            }
            if in_batch == 0 {
                return Ok(());
            }
            self.copy_batch().await?;
            bytes += in_batch;
        }
        Ok(())
    }

    /// Allocates space for the next range; returns its length.
    fn take_next(&mut self) -> Result<Option<u64>> {
        self.find_segments();
        let Some(&(start, _)) = self.segments.front() else { return Ok(None) };
        loop {
            let (end, whole) = piece(&self.segments, self.most_bytes);
            let Some(dst) = self.allocate(end - start)? else {
                // Space is fragmented: use shorter ranges for the rest of the slice.
                let sector = 1 << self.top.ashift;
                if end - start <= sector {
                    return Err(DatasetError::unsuitable(self.engine.pool().name(), "out of space"));
                }
                self.most_bytes = ((end - start) / 2).next_multiple_of(sector);
                continue;
            };
            self.entries.push(IndirectMappingEntry { src_offset_bytes: start, dst });
            self.segments.drain(..whole);
            self.segments.front_mut().filter(|next| next.0 < end).into_iter().for_each(|next| next.0 = end);
            return Ok(Some(end - start));
        }
    }

    /// Finds the next metaslab in use.
    fn find_segments(&mut self) {
        while self.segments.is_empty() && self.from < self.top.asize_bytes {
            let Some(index) = self.from.checked_shr(self.top.metaslab_shift) else { return };
            let (start, len) = metaslab_extent(&self.top, index);
            let end = start + len;
            if len == 0 || end <= self.from {
                return;
            }
            let in_use = self.engine.allocator().in_use(VdevId(self.top.id), self.from, end);
            self.segments = in_use.iter().collect();
            self.from = end;
        }
    }

    /// `None`: no free range of that length.
    fn allocate(&self, len: u64) -> Result<Option<Dva>> {
        let class = match self.top.class {
            VdevClass::Special => AllocClass::Special,
            VdevClass::Dedup => AllocClass::Dedup,
            VdevClass::Normal | VdevClass::Log => AllocClass::Normal,
        };
        let request = AllocRequest::new(class, Psize(len), 1, self.txg);
        let Some(dst) =
            self.engine.allocator().allocate(&request).ok().and_then(|dvas| dvas.first().copied())
        else {
            return Ok(None);
        };
        if dst.asize != Asize(len) {
            drop(self.engine.allocator().unallocate(&dst, self.txg));
            return Err(DatasetError::unsuitable(
                self.engine.pool().name(),
                "sectors are of different sizes",
            ));
        }
        Ok(Some(dst))
    }

    async fn copy_batch(&mut self) -> Result<()> {
        let (pool, from, txg) = (self.engine.pool(), VdevId(self.top.id), self.txg);
        let parts: Vec<(u64, Dva)> = self.entries[self.copied..].iter().flat_map(parts).collect();
        let step = |(start, to): (u64, Dva)| {
            let pool = pool.clone();
            async move { pool.by_range().copy_off((from, start), &to, txg).await }
        };
        let mut done = std::pin::pin!(self.engine.runtime().map_bounded(AT_ONCE, parts, step));
        let mut failed: Option<PoolError> = None;
        // All parts must end before their space is freed.
        while let Some(one) = done.next().await {
            failed = failed.or(one.err());
        }
        self.copied = self.entries.len();
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn give_back(&self) {
        for entry in &self.entries {
            let undone = self.engine.allocator().unallocate(&entry.dst, self.txg);
            debug_assert!(undone.is_ok(), "{undone:?}: it was allocated for this copy");
        }
    }
}

/// The end of the next range to copy as a whole, and the number of complete segments in it. It ends at a
/// segment's end if possible.
fn piece(segments: &VecDeque<(u64, u64)>, most: u64) -> (u64, usize) {
    let Some(&(start, first_end)) = segments.front() else { return (0, 0) };
    if first_end - start > most {
        return (start + most, 0);
    }
    let (mut end, mut whole) = (first_end, 1);
    for &(next_start, next_end) in segments.iter().skip(1) {
        if next_start - end > MAX_SPAN_BYTES || next_end - start > most {
            break;
        }
        (end, whole) = (next_end, whole + 1);
    }
    (end, whole)
}

/// Parts copied at once.
fn parts(entry: &IndirectMappingEntry) -> impl Iterator<Item = (u64, Dva)> + '_ {
    (0..entry.len_bytes()).step_by(COPY_BYTES as usize).map(|at| {
        let len = COPY_BYTES.min(entry.len_bytes() - at);
        (entry.src_offset_bytes + at, part(entry, at, len))
    })
}

/// The destination of a part.
fn part(entry: &IndirectMappingEntry, at: u64, len: u64) -> Dva {
    Dva { offset_bytes: entry.dst.offset_bytes + at, asize: Asize(len), ..entry.dst }
}

/// Adds copied ranges to the mapping.
async fn note(context: &mut SyncContext, vdev: VdevId, entries: Vec<IndirectMappingEntry>) -> Result<()> {
    let top = removing_top(context, vdev);
    let txg = context.txg();
    let (mut kept, mut obsolete, mut copied_bytes) = (Vec::new(), Vec::new(), 0);
    for entry in entries {
        let (start, end) = (entry.src_offset_bytes, entry.src_end_bytes());
        // The removal was canceled, or the block freed meanwhile.
        let mut in_use = context.allocator().in_use(vdev, start, end);
        if top.is_none() {
            in_use = Default::default();
        }
        let mut unused_bytes = 0;
        for (from, to) in in_use.complement(start, end).iter() {
            let unused = part(&entry, from - start, to - from);
            let undone = context.allocator().unallocate(&unused, txg);
            undone.map_err(|error| context.damaged(&error.to_string()))?;
            unused_bytes += to - from;
        }
        if !in_use.is_empty() {
            copied_bytes += in_use.total_bytes();
            kept.push(entry);
            obsolete.push(unused_bytes as u32);
        }
    }
    let Some(top) = top.filter(|_| !kept.is_empty()) else { return Ok(()) };
    append_entries(context, top.indirect_object, &kept, &obsolete).await?;
    let extended = context.allocator().extend_moved(vdev, &kept);
    extended.map_err(|error| context.edit().view().format(top.indirect_object, error))?;
    append_birth(context, top.indirect_births, vdev).await?;
    let mut state = state(context).await?;
    state.copied_bytes = state.copied_bytes.saturating_add(copied_bytes);
    set_state(context, &state).await
}

pub(super) async fn append_entries(
    context: &SyncContext,
    mapping: ObjectId,
    entries: &[IndirectMappingEntry],
    obsolete: &[u32],
) -> Result<()> {
    let edit = context.edit();
    let dnode = edit.view().dnode(mapping).await?;
    let phys = IndirectMappingPhys::decode(dnode.bonus(), dnode.endian());
    let mut phys = phys.map_err(|error| edit.view().format(mapping, error))?;
    let mut words = Vec::with_capacity(entries.len() * IndirectMappingEntry::COUNT);
    entries.iter().for_each(|entry| entry.put(&mut words));
    edit.write_words(mapping, phys.num_entries * IndirectMappingEntry::COUNT as u64, &words).await?;
    if phys.counts_object.0 != 0 {
        let counts: Vec<u8> = obsolete.iter().flat_map(|bytes| bytes.to_ne_bytes()).collect();
        edit.write(phys.counts_object, phys.num_entries * 4, counts.into()).await?;
    }
    phys.num_entries += entries.len() as u64;
    phys.bytes_mapped += entries.iter().map(IndirectMappingEntry::len_bytes).sum::<u64>();
    phys.max_offset_bytes = entries.last().map_or(phys.max_offset_bytes, IndirectMappingEntry::src_end_bytes);
    edit.set_bonus_words(mapping, &phys.to_words()).await
}

/// Records this txg as the birth of the mapping's new part.
async fn append_birth(context: &SyncContext, births: ObjectId, vdev: VdevId) -> Result<()> {
    let edit = context.edit();
    let dnode = edit.view().dnode(births).await?;
    let phys = IndirectBirthsPhys::decode(dnode.bonus(), dnode.endian());
    let mut phys = phys.map_err(|error| edit.view().format(births, error))?;
    let birth =
        IndirectBirth { offset_bytes: context.allocator().moved_up_to(vdev), phys_birth: context.txg() };
    edit.write_words(births, phys.count * IndirectBirth::COUNT as u64, &birth.to_words()).await?;
    phys.count += 1;
    edit.set_bonus(births, dnode.bonus_type, phys.encode(Endian::NATIVE).into()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    #[test]
    fn ranges_are_copied_with_small_gaps_and_end_with_what_is_in_use() {
        let segments =
            |list: &[(u64, u64)]| list.iter().map(|(s, e)| (s * K, e * K)).collect::<VecDeque<_>>();
        let found = |list: &[(u64, u64)], most: u64| {
            let (end, whole) = piece(&segments(list), most * K);
            (end / K, whole)
        };
        assert_eq!(found(&[(4, 8), (40, 44), (77, 80)], 1024), (44, 2), "33 KiB are too far");
        assert_eq!(found(&[(4, 8), (12, 16), (20, 64)], 32), (16, 2), "no end in the middle of a segment");
        assert_eq!(found(&[(4, 64), (68, 72)], 32), (36, 0), "but of the first, if it is too long");
    }

    #[test]
    fn long_ranges_are_copied_in_parts() {
        let dst = Dva { vdev: VdevId(1), offset_bytes: 0, asize: Asize(COPY_BYTES + 512), gang: false };
        let entry = IndirectMappingEntry { src_offset_bytes: 4096, dst };
        let all: Vec<_> = parts(&entry).map(|(from, to)| (from, to.offset_bytes, to.asize.0)).collect();
        assert_eq!(all, [(4096, 0, COPY_BYTES), (4096 + COPY_BYTES, COPY_BYTES, 512)]);
    }
}
