//! Which transaction groups each device misses: its "dirty time log" (DTL).
//!
//! Idea: a device that was away while others wrote lacks what was born in those txgs, until a resilver has
//! brought it. The configuration names, for each leaf, a space map whose ranges are txgs rather than bytes.
//! What can't be read is taken as empty: the pool opens without it, and what the device lacks is then found
//! by its checksums.
//!
//! Source: OpenZFS `vdev_dtl_load`, `vdev_dtl_sync` (`DTL_MISSING`).

use std::collections::BTreeMap;

use cenote_format::units::{Guid, ObjectId, Txg};
use cenote_object::Objset;
use cenote_pool::VdevConfig;

use crate::spacemaps::txg_ranges;

/// Of each leaf that misses any txgs, the first and the last of each run of them.
pub(super) async fn load(objset: &Objset) -> BTreeMap<Guid, Vec<(Txg, Txg)>> {
    let mut behind = BTreeMap::new();
    for leaf in objset.pool().config().vdevs.iter().flat_map(VdevConfig::leaves) {
        if leaf.dtl != ObjectId(0)
            && let Ok(object) = objset.object(leaf.dtl).await
            && let Ok(groups) = txg_ranges(&object).await
            && !groups.is_empty()
        {
            let runs = groups.iter().map(|(first, end)| (Txg(first), Txg(end - 1)));
            behind.insert(leaf.guid, runs.collect());
        }
    }
    behind
}
