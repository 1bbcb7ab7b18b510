//! Adds vdevs to a pool: `zpool add`.
//!
//! ```text
//!   root -> a, b               root -> a, b, NEW              blocks go there from the next txg on
//! ```
//!
//! Source: OpenZFS `spa.c` (`spa_vdev_add`).

use cenote_boxed::boxed;
use cenote_dataset::spacemaps::empty_metaslabs;
use cenote_engine::{Engine, SyncContext};
use cenote_format::label::VdevKind;
use cenote_format::units::VdevId;
use cenote_object::{DatasetError, Result};
use cenote_pool::create::{NewTops, NewVdev, plan_vdevs};

use crate::pool::auxiliary::add_distributed_spares;
use crate::pool::create::make_vdev_zaps;
use crate::pool::take_tree::{refuse_member, refuse_removal, take_tree};

/// Adds top-level vdevs. Their devices' contents are lost. Allocation there starts when this returns: the
/// pool on disk has them then.
///
/// # Errors
/// A device is too small or fails; a vdev is being removed; RAID-Z in a pool with removed vdevs.
#[boxed]
pub async fn add_vdevs(engine: &Engine, vdevs: Vec<NewVdev>, ashift: Option<u32>) -> Result<()> {
    let add = |engine: Engine| async move {
        let added = engine
            .run_on_pool(move |context| {
                Box::pin(async move { add_vdevs_sync(context, &vdevs, ashift).await })
            })
            .await?;
        let vdevs = engine.pool().tree().vdevs();
        for vdev in added.into_iter().filter_map(|id| vdevs.top(id)) {
            engine.allocator().add_vdev(vdev, empty_metaslabs(vdev));
        }
        Ok(())
    };
    engine.to_end(add).await
}

/// Returns the new vdevs' numbers.
async fn add_vdevs_sync(
    context: &mut SyncContext,
    vdevs: &[NewVdev],
    ashift: Option<u32>,
) -> Result<Vec<VdevId>> {
    refuse_removal(context)?;
    for new in vdevs.iter().flat_map(|vdev| &vdev.devices) {
        refuse_member(context, &new.path, None)?;
    }
    let mut config = context.config().clone();
    let has_removed = config.vdev_tree.children.iter().any(|top| top.kind == VdevKind::Indirect);
    if has_removed && vdevs.iter().any(|vdev| vdev.parity > 0) {
        let why = "a pool with removed vdevs does not support adding raidz or dRAID vdevs";
        return Err(DatasetError::unsuitable(&config.name, why));
    }
    let first = config.vdev_tree.children.len() as u64;
    let runtime = context.runtime().clone();
    let at = (first, context.txg());
    let NewTops { configs, devices } = plan_vdevs(&runtime, &config.name, vdevs, ashift, at)?;
    config.vdev_children = Some(first + configs.len() as u64);
    config.vdev_tree.children.extend(configs.iter().cloned());
    take_tree(context, config, devices, None).await?;
    make_vdev_zaps(context).await?;
    context.flush_space_log().await;
    add_distributed_spares(context, &configs).await?;
    Ok(configs.iter().map(|top| VdevId(top.id)).collect())
}
