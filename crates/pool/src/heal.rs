//! Healing: rebuilds missing or wrong data of leaves from the others and writes it.
//!
//! Idea: [`mod@crate::recover`] reads the minimum that makes up a copy, verifies it, and names each range
//! that leaves lack, with its true content. Healing writes these ranges, data and parity. If the minimum does
//! not verify, everything is read, and each wrong range rewritten. So all resilvered data is verified.
//!
//! Invariant: no other writer may touch the blocks. They are on disk, and the view keeps their space firmly
//! ([`crate::alloc::KeptSpace`]). Each write holds the view to its end, even without a waiter.
//!
//! A tree changes behind a resilver: a block cloned, or found by deduplication, gets an owner in a part
//! already visited, and may lose its others before the resilver reaches them. So adding an owner first heals
//! the block ([`Repair::bring_shared`]), and all blocks that a resilver has passed stay complete.
//!
//! Source: OpenZFS `dsl_scan.c` (resilver; `dsl_scan_ddt_entry`, which does that for deduplication, but not
//! for clones), `vdev_mirror_io_done`, `vdev_raidz_io_done`.

use crate::alloc::Allocator;
use crate::context::ReadContext;
use crate::pool::Pool;
use crate::recover::{ColumnFault, recover, recover_simply};
use crate::vdev::VdevTree;
use crate::vdev::map::BlockMap;
use crate::vdev::patience::Owed;
use crate::vdev::unflushed::Stake;
use crate::verify::VerifyItem;
use crate::verify::targets::Target;
use crate::zbookmark::Zbookmark;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{Guid, PhysicalBirth, Txg};
use futures::StreamExt;
use std::collections::BTreeSet;

const AT_ONCE: usize = 16;

/// The result of healing some blocks.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Healed {
    /// Bytes of blocks recovered, all copies.
    pub read_bytes: u64,
    /// Bytes written to leaves that lacked them.
    pub written_bytes: u64,
    /// Leaves that still lack data, because recovery or the write failed.
    pub unhealed: BTreeSet<Guid>,
    /// Copies that could not be recovered.
    pub lost_copies: u64,
}

impl Healed {
    /// Adds another result.
    pub fn add(&mut self, more: Healed) {
        self.read_bytes += more.read_bytes;
        self.written_bytes += more.written_bytes;
        self.unhealed.extend(more.unhealed);
        self.lost_copies += more.lost_copies;
    }
}

/// Repairs of a pool's blocks.
#[derive(Clone, Copy)]
pub struct Repair<'a>(pub(crate) &'a Pool);

impl Pool {
    /// Repairs of blocks.
    pub fn repair(&self) -> Repair<'_> {
        Repair(self)
    }
}

impl Repair<'_> {
    /// Heals a block that gets another owner in txg `txg`, on every leaf in use. A leaf that fails to take it
    /// misses data of that txg, so that a running resilver does not declare it complete.
    pub async fn bring_shared(&self, space: &Allocator, bp: &Blkptr, place: Zbookmark, txg: Txg) {
        if !self.0.lacking().may_lack(bp) {
            return;
        }
        let view = self.0.keeping(space.keep_freed(true));
        let healed = view.repair().heal(vec![VerifyItem { bp: *bp, place }]).await;
        healed.unhealed.into_iter().for_each(|leaf| self.0.tree().missed().note(leaf, txg));
    }

    /// Heals blocks on every leaf in use; [`Pool::flush`] makes that durable. This view must have kept their
    /// space since before the pointers were read.
    pub async fn heal(&self, blocks: Vec<VerifyItem>) -> Healed {
        let (mut targets, _) = self.0.targets(&blocks).await;
        targets.sort_unstable_by_key(|target| (target.dva.vdev, target.dva.offset_bytes));
        let step = |target: Target| {
            let pool = self.0.clone();
            async move { pool.heal(&target).await }
        };
        let mut healed = Healed::default();
        let mut done = std::pin::pin!(self.0.runtime().map_bounded(AT_ONCE, targets, step));
        while let Some(one) = done.next().await {
            healed.add(one);
        }
        healed
    }
}

impl Pool {
    async fn heal(&self, target: &Target) -> Healed {
        let (vdevs, birth) = (self.tree().vdevs(), target.bp.physical_birth());
        let mut healed = Healed::default();
        let inside = vdevs.enter(&target.dva, target.psize, birth).await;
        let (Ok(map), Ok(check)) = (vdevs.map(&target.dva, target.psize, birth), target.check(self.salt()))
        else {
            healed.lost_copies = 1;
            return healed;
        };
        let lacking = lacking(&vdevs, &map, birth);
        if lacking.is_empty() {
            return healed;
        }
        healed.read_bytes = target.psize as u64;
        let ctx = ReadContext::new(target.place);
        let simply = recover_simply(self, &vdevs, &map, target.psize, &check, Vec::new()).await;
        let recovered = match simply {
            Some(recovered) => Ok(recovered),
            None => recover(self, &vdevs, &map, target.psize, &check, &ctx).await,
        };
        let Ok(recovered) = recovered else {
            (healed.unhealed, healed.lost_copies) = (lacking, 1);
            // If no other copy can be read either, that is noted.
            drop(self.read_copies(&target.bp, target.psize, &check, &ctx).await);
            return healed;
        };
        healed.add(self.write_truth(recovered.faults, birth, inside).await);
        healed
    }

    /// Writes wrong ranges of a block born in `birth`. Runs to its end, holding this view's space and
    /// `inside`.
    pub(crate) async fn write_truth(
        &self,
        faults: Vec<ColumnFault>,
        birth: PhysicalBirth,
        inside: impl Send + 'static,
    ) -> Healed {
        let (class, view) = (self.writes(), self.clone());
        let stake = Stake::repair(birth, Txg(self.uberblock().txg.0 + 1));
        let owed: Vec<Owed> = faults.iter().map(|fault| fault.leaf.owe()).collect();
        let writing = async move {
            let _kept = (view, inside, owed);
            let mut healed = Healed::default();
            for ColumnFault { leaf, offset_bytes, truth, also_at, .. } in faults {
                let bytes = truth.len() as u64;
                for (leaf, offset_bytes) in also_at.into_iter().filter(|(leaf, _)| !leaf.is_out_of_use()) {
                    // Failures show in the counters.
                    leaf.write(class, stake, offset_bytes, truth.clone()).await.ok();
                }
                match leaf.is_out_of_use() || leaf.write(class, stake, offset_bytes, truth).await.is_err() {
                    true => healed.unhealed.extend(leaf.names()),
                    false => healed.written_bytes += bytes,
                }
            }
            healed
        };
        self.runtime().to_end(writing).await
    }
}

/// Leaves that may lack a block.
fn lacking(vdevs: &VdevTree, map: &BlockMap, birth: PhysicalBirth) -> BTreeSet<Guid> {
    let columns = map.rows.iter().flat_map(|row| row.columns.iter().map(move |column| (row, column)));
    let leaves = columns.flat_map(|(row, column)| vdevs.leaves_of(row, column, birth));
    leaves.filter(|leaf| vdevs.lacks(leaf, birth)).flat_map(|leaf| leaf.names().collect::<Vec<_>>()).collect()
}
