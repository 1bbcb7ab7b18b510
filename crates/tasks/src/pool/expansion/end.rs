//! Ends an expansion: blocks are as wide as the vdev from a few txgs later.
//!
//! Source: OpenZFS `vdev_raidz.c` (`raidz_reflow_complete_sync`).

use std::collections::BTreeMap;

use cenote_engine::{Engine, SyncContext};
use cenote_format::dsl::names::vdev_zap;
use cenote_format::scan::DSS_FINISHED;
use cenote_format::units::{Guid, TXG_CONCURRENT_STATES, Txg, VdevId};
use cenote_object::{Result, ZapEdit};

use super::set_reflowed;
use crate::pool::expand::expand;
use crate::pool::scan::state::begin_scrub;
use crate::pool::take_tree::take_tree;

/// Ends a fully copied expansion, once the uberblock on disk says so.
pub(super) async fn finish(engine: Engine, vdev: VdevId) -> Result<()> {
    let task = engine.run_on_pool(move |context| Box::pin(async move { finish_sync(context, vdev).await }));
    let leaf = task.await?;
    engine.background().scans.order();
    // The vdev has grown by a disk.
    expand(&engine, leaf).await
}

/// Returns one of the vdev's leaves.
async fn finish_sync(context: &mut SyncContext, vdev: VdevId) -> Result<Option<Guid>> {
    let mut config = context.config().clone();
    let of_vdev = |id: u64| VdevId(id) == vdev;
    let top = config.vdev_tree.children.iter_mut().find(|top| of_vdev(top.id) && top.raidz_expanding);
    let Some(top) = top else { return Ok(None) };
    top.raidz_expanding = false;
    // Blocks of txgs in flight may already have their addresses.
    top.raidz_expand_txgs.push(Txg(context.txg().0 + TXG_CONCURRENT_STATES));
    let top = top.clone();
    take_tree(context, config, BTreeMap::new(), None).await?;
    set_reflowed(context, 0);
    context.allocator().reshape_vdev(&top);
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, top.top_zap);
    fields.update(vdev_zap::RAIDZ_EXPAND_STATE, DSS_FINISHED).await?;
    fields.update(vdev_zap::RAIDZ_EXPAND_END_TIME, context.now_s()).await?;
    let (pool, width) = (context.config().name.clone(), top.children.len());
    let event = format!("{pool} vdev {vdev} new width {width}");
    context.log_event("raidz vdev expansion completed", &event).await?;
    if context.scan_settings().scrubs_after_expansion() {
        begin_scrub(context).await?;
    }
    Ok(top.leaves().next().map(|leaf| leaf.guid))
}
