//! Leaves that lack data: they were away, or failed to take writes.
//!
//! A table records by txg the writes that each leaf lacks (`vdev/missed`). It starts from the leaves' DTLs
//! and goes into them again.
//!
//! Source: OpenZFS `vdev_dtl_contains`, `vdev_resilver_needed`, `vdev_dtl_need_resilver`.

use crate::config::VdevClass;
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::vdev::leaf::Leaf;
use cenote_device::{DeviceError, Fence, Op};
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_format::units::{Guid, TXG_INITIAL, Txg, VdevId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Leaves that lack data.
#[derive(Clone, Copy)]
pub struct Lacking<'a>(&'a Pool);

impl Pool {
    /// Leaves that lack data.
    pub fn lacking(&self) -> Lacking<'_> {
        Lacking(self)
    }
}

impl<'a> Lacking<'a> {
    /// Leaves in use that lack data, with its first and last txg; all txgs for old labels without a record.
    pub fn behind(&self) -> BTreeMap<Guid, (Txg, Txg)> {
        let vdevs = self.0.tree().vdevs();
        let in_use = vdevs.leaves().iter().filter(|leaf| !leaf.is_out_of_use());
        let span = |guid: Guid| {
            let txgs = self.of_leaf(guid);
            Some((guid, (txgs.first()?.0, txgs.last()?.1)))
        };
        let all = (TXG_INITIAL, self.0.uberblock().txg);
        let lacks = |leaf: &Arc<Leaf>| span(leaf.guid).or(leaf.is_stale().then_some((leaf.guid, all)));
        in_use.filter_map(lacks).chain(vdevs.distributed_spares().filter_map(span)).collect()
    }

    /// Whether a leaf in use may lack a block. A returning leaf is resilvered later.
    pub fn may_lack(&self, bp: &Blkptr) -> bool {
        if bp.kind() != BlkptrKind::Normal {
            return false;
        }
        let (vdevs, birth) = (self.0.tree().vdevs(), bp.physical_birth());
        vdevs.leaves().iter().any(|leaf| !leaf.is_out_of_use() && vdevs.lacks(leaf, birth))
            || vdevs.distributed_spares().any(|spare| self.0.tree().missed().has(spare, birth))
    }

    /// Txgs that a leaf lacks in part, first and last: from its DTL and later failed writes.
    pub fn of_leaf(&self, leaf: Guid) -> Vec<(Txg, Txg)> {
        self.0.tree().missed().of_leaf(leaf)
    }

    /// Notes that a device, by its name, failed to make writes of some txgs (first, last) held back, but
    /// reported as done.
    ///
    /// # Errors
    /// [`PoolError::Unavailable`]: a vdev may then lack part of them.
    pub fn note_not_made(&self, device: &str, txgs: (Txg, Txg), error: &DeviceError) -> Result<()> {
        let (vdevs, missed) = (self.0.tree().vdevs(), self.0.tree().missed());
        for leaf in vdevs.leaves().iter().filter(|leaf| leaf.device.describe() == device) {
            leaf.count_write_error();
            missed.note_all(leaf.guid, txgs);
        }
        let has_all = |leaf: &Arc<Leaf>| !leaf.is_out_of_use() && !missed.has_any(leaf.guid, txgs);
        for (id, top) in (0..).map(VdevId).zip(vdevs.all_tops()) {
            let lost = top.slots().iter().filter(|slot| !slot.leaves.iter().any(has_all)).count();
            // The txg has the records of logs, too.
            if lost > top.config.parity && top.config.class != VdevClass::Log {
                let (pool, why) = (self.0.name().into(), error.to_string().into());
                return Err(PoolError::Unavailable { pool, vdev: id, why });
            }
        }
        Ok(())
    }

    /// [`Lacking::of_leaf`] of all leaves, for their DTLs.
    pub fn all(&self) -> BTreeMap<Guid, Vec<(Txg, Txg)>> {
        self.0.tree().missed().all()
    }

    /// The DTLs' contents when the pool was opened.
    pub fn at_opening(&self) -> &'a BTreeMap<Guid, Vec<(Txg, Txg)>> {
        self.0.tree().noted()
    }

    /// Leaves that lack data or the newest uberblock, and those of `before` that have taken none since the
    /// pool was opened.
    pub fn guids(&self, before: &BTreeSet<Guid>) -> BTreeSet<Guid> {
        let (vdevs, labelled) = (self.0.tree().vdevs(), self.0.beats().labelled());
        let has_label = |leaf: &&Guid| labelled.get(leaf).is_some_and(|has_it| *has_it);
        let unlabelled = labelled.iter().filter(|(_, has_it)| !**has_it).map(|(leaf, _)| *leaf);
        let stale = vdevs.leaves().iter().filter(|leaf| leaf.is_stale()).map(|leaf| leaf.guid);
        let old = before.iter().filter(|leaf| !has_label(leaf)).copied();
        self.0.tree().missed().all().into_keys().chain(unlabelled).chain(stale).chain(old).collect()
    }

    /// Waits until the pool's witness, if it has one, knows all leaves that lack data. Nothing may count as
    /// durable before: another machine could find only those leaves, and go on from their older state.
    ///
    /// # Errors
    /// The pool is lost to another machine.
    pub async fn witnessed(&self) -> Result<()> {
        let found = self.0.tree().found();
        let Some(tenure) = found.fence.as_ref().and_then(Fence::tenure) else { return Ok(()) };
        let lacking = self.guids(&BTreeSet::new()).into_iter().map(|guid| guid.0).collect();
        let agreed = tenure.agree(lacking).await;
        agreed.map_err(|why| DeviceError::Fenced { path: self.0.name().into(), op: Op::Flush, why }.into())
    }

    /// Leaves formerly away, out of use or resilvering. Verification does not blame them.
    pub fn lagging(&self) -> Vec<Guid> {
        let vdevs = self.0.tree().vdevs();
        vdevs.leaves().iter().filter(|leaf| vdevs.is_lagging(leaf)).map(|leaf| leaf.guid).collect()
    }
}
