//! Dirty time log (DTL): the txgs that each device missed.
//!
//! Idea: a device absent during writes lacks the blocks born in those txgs, until a resilver. The
//! configuration names a space map over txgs for each leaf.
//!
//! If the log is unreadable, or the device contradicts it, the device counts as lacking everything
//! ([`FoundDevice::may_lack`](cenote_pool::FoundDevice::may_lack)).
//!
//! Source: OpenZFS `vdev_dtl_load`, `vdev_dtl_sync` (`DTL_MISSING`).

use std::collections::BTreeMap;

use cenote_format::units::{Guid, ObjectId, TXG_INITIAL, Txg};
use cenote_object::{Objset, Result};
use cenote_pool::VdevConfig;

use crate::spacemaps::{SpaceMapHead, txg_ranges};

/// First and last txg of each run.
type Runs = Vec<(Txg, Txg)>;

#[derive(Default)]
pub(super) struct DirtyTimes {
    /// Nonempty logs by leaf.
    pub(super) noted: BTreeMap<Guid, Runs>,
    /// Txgs that a leaf may lack.
    pub(super) behind: BTreeMap<Guid, Runs>,
    /// Leaves with logs that cannot even be emptied.
    pub(super) lost: Vec<Guid>,
}

pub(super) async fn load(objset: &Objset) -> DirtyTimes {
    let (pool, mut times) = (objset.pool(), DirtyTimes::default());
    let newest = pool.uberblock().txg;
    for leaf in pool.tree().config().vdevs.iter().flat_map(VdevConfig::leaves) {
        let log = log_of(objset, leaf.dtl).await;
        let behind = match &log {
            Ok(runs) => match pool.tree().device(leaf.guid) {
                Some(device) => device.may_lack(runs, newest),
                None => runs.clone(),
            },
            Err(_) => vec![(TXG_INITIAL, newest)],
        };
        match log {
            Ok(runs) if runs.is_empty() => {}
            Ok(runs) => _ = times.noted.insert(leaf.guid, runs),
            Err(_) if can_be_emptied(objset, leaf.dtl).await => {}
            Err(_) => times.lost.push(leaf.guid),
        }
        if !behind.is_empty() {
            times.behind.insert(leaf.guid, behind);
        }
    }
    times
}

async fn log_of(objset: &Objset, log: ObjectId) -> Result<Runs> {
    if log == ObjectId(0) {
        return Ok(Runs::new());
    }
    let groups = txg_ranges(&objset.object(log).await?).await?;
    Ok(groups.iter().map(|(first, end)| (Txg(first), Txg(end - 1))).collect())
}

/// Whether a log can be rewritten without further reads: all its block pointers are in memory.
async fn can_be_emptied(objset: &Objset, log: ObjectId) -> bool {
    let object = objset.object(log).await;
    object.is_ok_and(|object| object.dnode().levels == 1 && SpaceMapHead::of(&object, 0).is_ok())
}
