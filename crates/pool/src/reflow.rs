//! Copies the data of a RAID-Z being expanded, as text flows into wider lines.
//!
//! ```text
//!   child   0  1  2             0  1  2  3
//!           0  1  2             0  1  2  3        each sector moves to its number's place in wider rows,
//!           3  4  5     -->     4  5  6  7        independently of blocks and parity
//!           6  7  8             8  9 10 11
//! ```
//!
//! Idea: sectors are copied in the vdev's order, each time up to the point where a copy would overwrite a
//! sector still read at its old place ([`reachable`]). At the beginning that leaves no room. So the first
//! rows are written to the scratch area, then to their place, and the uberblock selects which of the two is
//! read.
//!
//! There are no checksums: sectors are copied blindly. So all children must be present and complete, or the
//! expansion waits. If a child fails to take a copy, it must be assumed to lack everything, because the birth
//! of the copied data is unknown.
//!
//! Locking: one task at a time expands. It has exclusive access to the range being copied (`vdev/reflow`).
//!
//! Source: OpenZFS `vdev_raidz.c` (`raidz_reflow_impl`, `raidz_reflow_scratch_sync`,
//! `vdev_raidz_reflow_copy_scratch`).

use crate::config::VdevConfig;
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::vdev::leaf::Leaf;
use crate::vdev::missed::Missed;
use crate::vdev::queue::IoClass;
use crate::vdev::raidz::Raidz;
use crate::vdev::reflow::{Reflowed, Scratch};
use crate::vdev::unflushed::{FlushMark, Stake};
use crate::vdev::{Layout, VdevTree};
use bytes::{Bytes, BytesMut};
use cenote_boxed::boxed;
use cenote_format::label::{VDEV_BOOT_OFFSET, VDEV_BOOT_SIZE};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{TXG_CONCURRENT_STATES, TXG_INITIAL, Txg, VdevId};
use futures::future::{join_all, try_join_all};
use std::ops::Range;
use std::sync::Arc;

/// Bytes copied at once per child, to or from the scratch area.
const STEP_BYTES: u64 = 512 << 10;

/// End of the last metaslab, in bytes of the vdev.
pub fn reflow_end(top: &VdevConfig) -> u64 {
    top.asize_bytes.checked_shr(top.metaslab_shift).unwrap_or(0) << top.metaslab_shift
}

/// The end up to which a vdev of `children`, with the new one, may be copied once sectors before
/// `synced_bytes` are read at their new place: no copy may overwrite a sector still read at its old place.
pub fn reachable(synced_bytes: u64, children: usize, ashift: u32) -> u64 {
    let (synced, old) = (synced_bytes >> ashift, children as u64 - 1);
    (synced + synced / old).saturating_sub(old) << ashift
}

struct Expanding<'a> {
    raidz: &'a Raidz,
    leaves: Vec<Arc<Leaf>>,
    vdevs: &'a VdevTree,
    missed: &'a Arc<Missed>,
    since: FlushMark,
    /// The last txg that may first record these copies.
    txg: Txg,
}

#[derive(Clone, Copy)]
enum Target {
    Place,
    Scratch,
}

/// The expansion of a RAID-Z, if one runs.
#[derive(Clone, Copy)]
pub struct Expansion<'a>(&'a Pool);

impl Pool {
    /// The expansion of a RAID-Z.
    pub fn expansion(&self) -> Expansion<'_> {
        Expansion(self)
    }
}

impl Expansion<'_> {
    /// Progress of the expansion; meaningless if none runs.
    pub fn progress(&self) -> Reflowed {
        self.0.tree().reflow().at()
    }

    /// That progress as encoded in the next txg's uberblock.
    pub fn uberblock_info(&self) -> u64 {
        match self.progress() {
            at if at.scratch_is_valid => Uberblock::reflow_info(Scratch::Valid as u64, at.synced_bytes),
            at if at.synced_bytes == 0 => 0,
            at => reflow_info(at.synced_bytes),
        }
    }

    /// Begins an expansion: nothing has been copied.
    pub fn begin(&self) {
        self.0.tree().reflow().restart();
    }

    /// Why a vdev can't be copied now; `None` if it can.
    pub fn waits_for(&self, vdev: VdevId) -> Option<String> {
        Expanding::of(self.0, &self.0.tree().vdevs(), vdev).err()
    }

    /// Copies the first rows by way of the scratch area. Afterwards the last txg's uberblocks record this,
    /// and the next txg's must, too ([`Expansion::uberblock_info`]). No txg may be synced meanwhile.
    ///
    /// Memory: a few MiB for each child.
    ///
    /// # Errors
    /// A child is missing, incomplete or failing. Nothing is lost; the caller may retry.
    #[boxed]
    pub async fn copy_by_scratch(&self, vdev: VdevId, last: &Uberblock, txg: Txg) -> Result<()> {
        let failed = |why: String| self.failed(vdev, why);
        let vdevs = self.0.tree().vdevs();
        let expanding = Expanding::of(self.0, &vdevs, vdev).map_err(failed)?;
        let each_bytes = VDEV_BOOT_SIZE >> expanding.raidz.ashift << expanding.raidz.ashift;
        let all_bytes = each_bytes * expanding.leaves.len() as u64;
        let alone = self.0.tree().reflow().alone(0..all_bytes).await;
        let step_bytes =
            STEP_BYTES.next_multiple_of(1 << expanding.raidz.ashift) * expanding.leaves.len() as u64;
        for from in (0..all_bytes).step_by(step_bytes as usize) {
            let range = from..(from + step_bytes).min(all_bytes);
            expanding.copy(range, Target::Scratch).await.map_err(failed)?;
        }
        expanding.flush().await.map_err(failed)?;
        expanding.check().map_err(failed)?;
        // From here on the first rows are read in the scratch area after a power cut.
        let valid = self.write_progress(last, Scratch::Valid, all_bytes).await?;
        alone.set(Reflowed::of(&valid));
        drop(alone);
        self.leave_scratch(vdev, &valid, Scratch::Synced, txg).await
    }

    /// Copies a valid scratch area to its final place, as an import must after a power cut. Returns whether
    /// there was one.
    ///
    /// # Errors
    /// Too many children are missing or failing.
    #[boxed]
    pub async fn settle_scratch(&self, last: &Uberblock, txg: Txg) -> Result<bool> {
        let expanding =
            (0..).zip(self.0.tree().vdevs().tops()).find(|(_, top)| top.raidz_expanding).map(|(id, _)| id);
        match expanding {
            Some(id) if self.progress().scratch_is_valid => {
                self.leave_scratch(VdevId(id), last, Scratch::SyncedOnImport, txg).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn leave_scratch(&self, vdev: VdevId, last: &Uberblock, state: Scratch, txg: Txg) -> Result<()> {
        let failed = |why: String| self.failed(vdev, why);
        let vdevs = self.0.tree().vdevs();
        let top = vdevs.layout_of(vdev).ok_or_else(|| failed("the pool has no such vdev".into()))?;
        let all_bytes = self.progress().synced_bytes;
        let each_bytes = (all_bytes / top.slots().len().max(1) as u64).min(VDEV_BOOT_SIZE);
        let alone = self.0.tree().reflow().alone(0..all_bytes).await;
        let mut lost = 0;
        let settled = join_all(top.slots().iter().map(|slot| {
            let leaf = slot.leaves.iter().find(|leaf| !leaf.is_out_of_use());
            async move { settle(leaf?, each_bytes, (txg, self.0.tree().missed())).await.ok() }
        }));
        for (slot, settled) in top.slots().iter().zip(settled.await) {
            let lacks = |leaf| self.0.tree().missed().note_all(leaf, (TXG_INITIAL, txg));
            slot.absent.iter().copied().for_each(lacks);
            let has_it = |leaf: &&Arc<Leaf>| settled.is_some() && !leaf.is_out_of_use();
            let first = slot.leaves.iter().find(has_it).map(|leaf| leaf.guid);
            let others = slot.leaves.iter().map(|leaf| leaf.guid).filter(|leaf| first != Some(*leaf));
            others.for_each(lacks);
            lost += usize::from(settled.is_none());
        }
        if lost > top.config.parity {
            return Err(failed("too many of its devices are missing or fail".into()));
        }
        let settled = self.write_progress(last, state, all_bytes).await?;
        alone.set(Reflowed::of(&settled));
        Ok(())
    }

    /// Copies `ranges`, in order and within `all`, the rest of which is unused. `all` begins at the last
    /// copy's end and stays within [`reachable`].
    ///
    /// Memory: the ranges.
    ///
    /// # Errors
    /// A child is missing, incomplete or failing: then nothing is recorded as copied.
    #[boxed]
    pub async fn copy(&self, vdev: VdevId, all: Range<u64>, ranges: Vec<Range<u64>>) -> Result<()> {
        let failed = |why: String| self.failed(vdev, why);
        let vdevs = self.0.tree().vdevs();
        let expanding = Expanding::of(self.0, &vdevs, vdev).map_err(failed)?;
        let alone = self.0.tree().reflow().alone(all.clone()).await;
        let copies = ranges.into_iter().map(|range| expanding.copy(range, Target::Place));
        // All end before other I/O enters the range.
        join_all(copies).await.into_iter().collect::<Result<(), String>>().map_err(failed)?;
        expanding.check().map_err(failed)?;
        alone.set(Reflowed { next_bytes: all.end, ..self.progress() });
        Ok(())
    }

    /// The uberblock on disk records the copies: from now on they are read at their new place.
    #[boxed]
    pub async fn note_synced(&self, upto_bytes: u64) {
        let at = self.progress();
        let alone = self.0.tree().reflow().alone(at.synced_bytes..upto_bytes).await;
        alone.set(Reflowed { synced_bytes: upto_bytes, ..at });
    }

    /// Copies that the uberblock on disk does not record will be repeated.
    #[boxed]
    pub async fn forget_unsynced(&self) {
        let at = self.progress();
        if at.next_bytes > at.synced_bytes {
            let alone = self.0.tree().reflow().alone(at.synced_bytes..at.next_bytes).await;
            alone.set(Reflowed { next_bytes: at.synced_bytes, ..at });
        }
    }

    /// Readers prefer the newer of two uberblocks. A heartbeat of its predecessor may be under way.
    async fn write_progress(&self, last: &Uberblock, state: Scratch, upto_bytes: u64) -> Result<Uberblock> {
        let raidz_reflow_info = Uberblock::reflow_info(state as u64, upto_bytes);
        let now_s = self.0.runtime().unix_time_ns() / 1_000_000_000;
        let timestamp_s = last.timestamp_s.max(now_s) + 1;
        let newer = Uberblock { timestamp_s, raidz_reflow_info, ..*last };
        self.0.labels().write_uberblock(&newer).await?;
        Ok(newer)
    }

    fn failed(&self, vdev: VdevId, why: String) -> PoolError {
        PoolError::Unavailable { pool: self.0.name().into(), vdev, why: why.into() }
    }
}

/// An uberblock's encoding of this progress.
pub fn reflow_info(upto_bytes: u64) -> u64 {
    Uberblock::reflow_info(Scratch::SyncedReflow as u64, upto_bytes)
}

/// Copies from a child's scratch area to its place.
async fn settle(
    leaf: &Leaf,
    each_bytes: u64,
    (txg, missed): (Txg, &Arc<Missed>),
) -> Result<(), cenote_device::DeviceError> {
    let mark = missed.mark();
    for at in (0..each_bytes).step_by(STEP_BYTES as usize) {
        let len = STEP_BYTES.min(each_bytes - at);
        let bytes = leaf.read(IoClass::Removal, VDEV_BOOT_OFFSET + at, len as usize).await?;
        leaf.write(IoClass::Removal, Stake::copied(txg), VDEV_BOOT_OFFSET + VDEV_BOOT_SIZE + at, bytes)
            .await?;
    }
    leaf.flush_since(mark, missed).await
}

impl<'a> Expanding<'a> {
    fn of(pool: &'a Pool, vdevs: &'a VdevTree, vdev: VdevId) -> Result<Expanding<'a>, String> {
        let top = vdevs.layout_of(vdev);
        let Some(Layout::Raidz(raidz, slots)) = top.map(|top| &top.layout) else {
            return Err("it is no RAID-Z".into());
        };
        if raidz.reflow.is_none() {
            return Err("it is not being expanded".into());
        }
        let mut leaves = Vec::with_capacity(slots.len());
        for slot in slots {
            match &slot.leaves[..] {
                [leaf] if slot.absent.is_empty() => leaves.push(leaf.clone()),
                [] => return Err("a device is missing".into()),
                _ => return Err("a device is being replaced".into()),
            }
        }
        let (missed, txg) = (pool.tree().missed(), Txg(pool.uberblock().txg.0 + TXG_CONCURRENT_STATES));
        let expanding = Expanding { raidz, leaves, vdevs, missed, since: missed.mark(), txg };
        expanding.check()?;
        Ok(expanding)
    }

    fn check(&self) -> Result<(), String> {
        match self.leaves.iter().find(|leaf| leaf.is_out_of_use() || self.vdevs.is_lagging(leaf)) {
            None => Ok(()),
            Some(leaf) => {
                Err(format!("{} is not in use, or lacks data: it must be resilvered", leaf.device.describe()))
            }
        }
    }

    async fn flush(&self) -> Result<(), String> {
        let flushes = self.leaves.iter().map(|leaf| leaf.flush_since(self.since, self.missed));
        try_join_all(flushes).await.map_err(|error| error.to_string())?;
        Ok(())
    }

    async fn copy(&self, range: Range<u64>, target: Target) -> Result<(), String> {
        let sectors = range.start >> self.raidz.ashift..range.end >> self.raidz.ashift;
        let children = self.leaves.len();
        let read = |child: usize| {
            let rows = rows_of(&sectors, child, children - 1);
            let len = ((rows.end - rows.start) << self.raidz.ashift) as usize;
            async move {
                let at = self.raidz.on_leaf(rows.start);
                let bytes = match len {
                    0 => Ok(Bytes::new()),
                    _ => self.leaves[child].read(IoClass::Removal, at, len).await,
                };
                Ok::<_, String>((rows.start, bytes.map_err(|error| error.to_string())?))
            }
        };
        let old: Vec<(u64, Bytes)> = try_join_all((0..children - 1).map(read)).await?;
        // A child may have become incomplete while being read.
        self.check()?;
        let write = |child: usize| {
            let rows = rows_of(&sectors, child, children);
            let mut column = BytesMut::with_capacity(((rows.end - rows.start) << self.raidz.ashift) as usize);
            for row in rows.clone() {
                column.extend_from_slice(self.sector(&old, row * children as u64 + child as u64));
            }
            let at = match target {
                Target::Place => self.raidz.on_leaf(rows.start),
                Target::Scratch => self.raidz.on_leaf(rows.start) - VDEV_BOOT_SIZE,
            };
            async move {
                if column.is_empty() {
                    return Ok(());
                }
                let stake = Stake::copied(self.txg);
                self.leaves[child].write(IoClass::Removal, stake, at, column.freeze()).await
            }
        };
        let written = join_all((0..children).map(write)).await;
        let failed = written.into_iter().find_map(Result::err);
        failed.map_or(Ok(()), |error| Err(error.to_string()))
    }

    /// A sector, from the data read of the old children.
    fn sector<'b>(&self, old: &'b [(u64, Bytes)], sector: u64) -> &'b [u8] {
        let (child, row) = ((sector % old.len() as u64) as usize, sector / old.len() as u64);
        let (first, bytes) = &old[child];
        let at = ((row - first) << self.raidz.ashift) as usize;
        &bytes[at..at + (1 << self.raidz.ashift)]
    }
}

/// The rows with sectors of a range on a child.
fn rows_of(sectors: &Range<u64>, child: usize, children: usize) -> Range<u64> {
    let first = |sector: u64| sector.saturating_sub(child as u64).div_ceil(children as u64);
    first(sectors.start)..first(sectors.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_children_have_each_sector_once() {
        for (children, sectors) in [(3, 0..1), (3, 2..3), (4, 5..29), (5, 13..14), (7, 3..100)] {
            let of = |child: usize| {
                rows_of(&sectors, child, children).map(move |row| row * children as u64 + child as u64)
            };
            let mut all: Vec<u64> = (0..children).flat_map(of).collect();
            all.sort_unstable();
            assert_eq!(all, sectors.collect::<Vec<_>>(), "{children}");
        }
    }

    #[test]
    fn what_is_copied_lies_where_nobody_reads_any_more() {
        for children in [3u64, 4, 5, 9, 200] {
            for synced in [children * children * 2, 1000, 12_345, 1 << 20].map(|at| at.max(children * 900)) {
                let end = reachable(synced << 12, children as usize, 12) >> 12;
                assert!(end > synced, "{children}: it goes on");
                // The target of the last sector that may be copied, and the sector still read there.
                let (row, child) = ((end - 1) / children, (end - 1) % children);
                let there = row * (children - 1) + child;
                // A row of a block that began before is still read as a whole.
                assert!(child == children - 1 || there + (children - 1) <= synced, "{children} at {synced}");
            }
        }
    }
}
