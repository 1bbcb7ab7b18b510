//! Changes a pool's guid (`zpool reguid`), so that a copy of all its devices can be imported beside it.
//!
//! Source: OpenZFS `spa.c` (`spa_change_guid`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_engine::{Engine, SpaceCheck, SyncContext};
use cenote_format::units::Guid;
use cenote_object::{DatasetError, Result};
use cenote_pool::VdevState;

use crate::pool::checkpoint::refuse_checkpoint;
use crate::pool::take_tree::take_tree;

/// Sets the pool's guid, a random one by default.
///
/// # Errors
/// A device is missing (it would keep the old guid), or there is a checkpoint.
#[boxed]
pub async fn change_guid(engine: &Engine, guid: Option<Guid>) -> Result<()> {
    engine
        .run_within(SpaceCheck::Reserved, move |context| {
            context.touch_nothing();
            Box::pin(async move { change_guid_sync(context, guid).await })
        })
        .await?;
    engine.l2arc().devices().set_pool(engine.pool().tree().guid()).await;
    Ok(())
}

async fn change_guid_sync(context: &mut SyncContext, guid: Option<Guid>) -> Result<()> {
    refuse_checkpoint(context).await?;
    if context.pool().status().state() != VdevState::Online {
        let why = "one or more devices is currently unavailable";
        return Err(DatasetError::unsuitable(context.pool().name(), why));
    }
    let mut config = context.config().clone();
    let old = config.pool_guid;
    let new = guid.unwrap_or_else(|| Guid(context.random().max(1)));
    (config.pool_guid, config.vdev_tree.guid) = (new, new);
    // Until then labels must mark the pool as in use under the guid on disk.
    context.begin_writing().await?;
    context.pool().tree().set_guid(new);
    take_tree(context, config, BTreeMap::new(), None).await?;
    context.log_event("guid change", &format!("old={old} new={new}")).await
}
