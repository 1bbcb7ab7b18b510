//! Devices whose labels say that they are not their leaves' go out of use.
//!
//! Idea: a file that was cut off, or written over, reads and writes without an error, and holds nothing. It
//! goes out of use as one that is not there, so that it is read no more and may be replaced, by what is at
//! the same path, too. One whose path is gone was removed, and is looked for. If others don't make up for a
//! device, or only some labels are damaged, its labels are written again: what it is, the pool knows.
//!
//! Source: OpenZFS `vdev.c` (`vdev_validate`); `dsl_scan` and `zpool reopen` reopen all devices, and so
//! validate them.

use cenote_boxed::boxed;
use cenote_engine::{Engine, SyncContext};
use cenote_format::units::Guid;
use cenote_object::Result;
use cenote_pool::{Identity, VdevConfig};

use crate::pool::leaves::{Away, take_out};

/// Checks the labels of a leaf, or of all.
///
/// # Errors
/// A txg could not be written.
#[boxed]
pub async fn validate(engine: &Engine, only: Option<Guid>) -> Result<()> {
    let (pool, mut is_damaged) = (engine.pool(), false);
    let leaves = pool.config().vdevs.iter().flat_map(VdevConfig::leaves).map(|leaf| leaf.guid).collect();
    let leaves: Vec<Guid> = only.map_or(leaves, |only| vec![only]);
    for leaf in leaves {
        match pool.identity(leaf).await {
            None | Some(Identity::Confirmed) => {}
            Some(Identity::Refuted(_)) if pool.can_spare(leaf) => {
                take_out(engine, leaf, Away::Refuted).await?;
            }
            Some(Identity::Gone) if pool.can_spare(leaf) => take_out(engine, leaf, Away::Removed).await?,
            Some(Identity::Gone) => {}
            Some(Identity::Damaged | Identity::Refuted(_)) => is_damaged = true,
        }
    }
    if !is_damaged {
        return Ok(());
    }
    let rewrite = |context: &mut SyncContext| context.config_has_changed();
    engine
        .run(move |context| {
            rewrite(context);
            Box::pin(async { Ok(()) })
        })
        .await
}
