//! Takes devices out of use whose labels belong to another leaf or pool.
//!
//! Idea: a truncated or overwritten file reads and writes without error, but holds none of the data. It
//! counts as missing: not read, and replaceable, even by a device at the same path. A device whose path is
//! gone counts as removed and is looked for. If the pool needs the device, or only some labels are damaged,
//! its labels are rewritten: the pool knows their contents.
//!
//! Source: OpenZFS `vdev.c` (`vdev_validate`); `dsl_scan` and `zpool reopen` reopen all devices, and so
//! validate them.

use cenote_boxed::boxed;
use cenote_engine::{Engine, SyncContext};
use cenote_format::units::Guid;
use cenote_object::Result;
use cenote_pool::{Identity, VdevConfig};

use crate::pool::leaves::{Away, take_out};

/// Checks the labels of one leaf, or of all.
///
/// # Errors
/// A txg could not be written.
#[boxed]
pub async fn validate(engine: &Engine, only: Option<Guid>) -> Result<()> {
    let (pool, mut is_damaged) = (engine.pool(), false);
    let leaves =
        pool.tree().config().vdevs.iter().flat_map(VdevConfig::leaves).map(|leaf| leaf.guid).collect();
    let leaves: Vec<Guid> = only.map_or(leaves, |only| vec![only]);
    for leaf in leaves {
        match pool.devices().identity(leaf).await {
            None | Some(Identity::Confirmed) => {}
            Some(Identity::Refuted(_)) if pool.tree().vdevs().can_spare(leaf) => {
                take_out(engine, leaf, Away::Refuted).await?;
            }
            Some(Identity::Gone) if pool.tree().vdevs().can_spare(leaf) => {
                take_out(engine, leaf, Away::Removed).await?
            }
            Some(Identity::Gone) => {}
            Some(Identity::Damaged | Identity::Refuted(_)) => is_damaged = true,
        }
    }
    if !is_damaged {
        return Ok(());
    }
    let rewrite = |context: &mut SyncContext| context.config_has_changed();
    engine
        .run_on_pool(move |context| {
            rewrite(context);
            Box::pin(async { Ok(()) })
        })
        .await
}
