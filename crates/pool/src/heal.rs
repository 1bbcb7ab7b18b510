//! Healing: what leaves lack of blocks, or hold wrongly, is put together from the others and written to them.
//!
//! Idea: [`mod@crate::recover`] reads as little of a copy as makes the block, verifies that, and names each
//! range that leaves lack, with what should be there. Writing that is all: data and parity, in any kind of
//! vdev. If what was read is not the block, everything that is there is read, and whatever differs from the
//! true block is written again. So what a resilver brings has been verified. A leaf that is being evacuated
//! is read first.
//!
//! Nobody else may write to the blocks meanwhile: they are on disk, and the view that they are healed through
//! keeps their space, firmly ([`crate::alloc::KeptSpace`]). Each write has that view until it is done, even
//! if nobody waits.
//!
//! A resilver walks over trees, and a tree changes behind it: a block that is cloned, or found by
//! deduplication, gets an owner where the resilver has been, and may lose all others before it gets there.
//! So whoever gives a block an owner brings it to the leaves first ([`Pool::bring_shared`]). Then all that a
//! resilver has passed is complete, whatever is shared, moved, or kept by a checkpoint meanwhile.
//!
//! Source: OpenZFS `dsl_scan.c` (resilver; `dsl_scan_ddt_entry`, which does that for deduplication, but not
//! for clones), `vdev_mirror_io_done`, `vdev_raidz_io_done`.

use crate::alloc::Allocator;
use crate::context::ReadContext;
use crate::pool::Pool;
use crate::recover::{ColumnFault, recover, recover_simply};
use crate::vdev::VdevTree;
use crate::vdev::leaf::Leaf;
use crate::vdev::map::BlockMap;
use crate::vdev::patience::Owed;
use crate::vdev::unflushed::Stake;
use crate::verify::VerifyItem;
use crate::verify::targets::Target;
use crate::zbookmark::Zbookmark;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_format::units::{Guid, PhysicalBirth, TXG_INITIAL, Txg};
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Copies that are healed at once.
const AT_ONCE: usize = 16;

/// What came of healing some blocks.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Healed {
    /// Bytes of blocks, all copies, that were put together.
    pub read_bytes: u64,
    /// Bytes that were written to leaves that lacked them.
    pub written_bytes: u64,
    /// Leaves that lack something still: it could not be put together, or not be written.
    pub unhealed: BTreeSet<Guid>,
    /// Copies that could not be put together.
    pub lost_copies: u64,
}

impl Healed {
    /// The sum of both.
    pub fn add(&mut self, more: Healed) {
        self.read_bytes += more.read_bytes;
        self.written_bytes += more.written_bytes;
        self.unhealed.extend(more.unhealed);
        self.lost_copies += more.lost_copies;
    }
}

impl Pool {
    /// Leaves in use that lack something, and the first and last txg of it. One whose labels are old lacks
    /// anything if nothing says what.
    pub fn behind(&self) -> BTreeMap<Guid, (Txg, Txg)> {
        let vdevs = self.vdevs();
        let in_use = vdevs.leaves().iter().filter(|leaf| !leaf.is_out_of_use());
        let span = |guid: Guid| {
            let txgs = self.missing_txgs(guid);
            Some((guid, (txgs.first()?.0, txgs.last()?.1)))
        };
        let all = (TXG_INITIAL, self.uberblock().txg);
        let lacks = |leaf: &Arc<Leaf>| span(leaf.guid).or(leaf.is_stale().then_some((leaf.guid, all)));
        in_use.filter_map(lacks).chain(vdevs.distributed_spares().filter_map(span)).collect()
    }

    /// Whether a leaf in use may lack a block. One that is away is brought what it lacks when it is back.
    pub fn may_lack(&self, bp: &Blkptr) -> bool {
        if bp.kind() != BlkptrKind::Normal {
            return false;
        }
        let (vdevs, birth) = (self.vdevs(), bp.physical_birth());
        vdevs.leaves().iter().any(|leaf| !leaf.is_out_of_use() && vdevs.lacks(leaf, birth))
            || vdevs.distributed_spares().any(|spare| self.missed_here().has(spare, birth))
    }

    /// Brings a block on disk, which gets one more owner in txg `txg`, to every leaf that is in use and may
    /// lack it. A leaf that does not take it misses something of that txg: so no resilver that is under way
    /// makes it complete.
    pub async fn bring_shared(&self, space: &Allocator, bp: &Blkptr, place: Zbookmark, txg: Txg) {
        if !self.may_lack(bp) {
            return;
        }
        let view = self.keeping(space.keep_freed(true));
        let healed = view.heal_many(vec![VerifyItem { bp: *bp, place }]).await;
        healed.unhealed.into_iter().for_each(|leaf| self.missed_here().note(leaf, txg));
    }

    /// Brings these blocks to every leaf that is in use and may lack them; [`Pool::flush`] makes that
    /// durable. This view keeps their space since before the pointers were read.
    pub async fn heal_many(&self, blocks: Vec<VerifyItem>) -> Healed {
        let (mut targets, _) = self.targets(&blocks).await;
        targets.sort_unstable_by_key(|target| (target.dva.vdev, target.dva.offset_bytes));
        let step = |target: Target| {
            let pool = self.clone();
            async move { pool.heal(&target).await }
        };
        let mut healed = Healed::default();
        let mut done = std::pin::pin!(self.runtime().map_bounded(AT_ONCE, targets, step));
        while let Some(one) = done.next().await {
            healed.add(one);
        }
        healed
    }

    async fn heal(&self, target: &Target) -> Healed {
        let (vdevs, birth) = (self.vdevs(), target.bp.physical_birth());
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

    /// Writes what should be where it is not, of a block born in `birth`: once begun, to its end, with the
    /// space that this view keeps and with what it is `inside` of.
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
                    // What fails shows in the counters.
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

/// Leaves of a block that may lack it.
fn lacking(vdevs: &VdevTree, map: &BlockMap, birth: PhysicalBirth) -> BTreeSet<Guid> {
    let columns = map.rows.iter().flat_map(|row| row.columns.iter().map(move |column| (row, column)));
    let leaves = columns.flat_map(|(row, column)| vdevs.leaves_of(row, column, birth));
    leaves.filter(|leaf| vdevs.lacks(leaf, birth)).flat_map(|leaf| leaf.names().collect::<Vec<_>>()).collect()
}
