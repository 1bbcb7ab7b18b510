//! Devices that leave a mirror, replacing or spare vdev: `zpool detach`, and replaced ones.
//!
//! ```text
//!   mirror    -> a, b       b leaves: a                     at the top, it takes over the mirror's guid
//!   replacing -> a, b       a leaves: replaced by b         b leaves: replacement canceled
//!   spare     -> a, s       s leaves: available again       a leaves: s is no longer a spare
//!   spare     -> replacing -> a, b; s                       when b is complete, a and s leave
//! ```
//!
//! Idea: the tree and the DTLs alone tell which leaves can go, whichever engine ended the resilver, and even
//! if power failed before the old device left.
//!
//! Source: OpenZFS `spa.c` (`spa_vdev_detach`, `spa_vdev_resilver_done`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_engine::{Engine, SyncContext};
use cenote_format::label::{VdevConfig, VdevKind};
use cenote_format::units::Guid;
use cenote_object::{DatasetError, Result};
use cenote_pool::label::{clear_labels, init_device};
use cenote_pool::{FoundDevice, Pool};

use crate::pool::auxiliary::{remove_spare, spare_label};
use crate::pool::checkpoint::refuse_checkpoint;
use crate::pool::expand::autoexpand;
use crate::pool::take_tree::{drop_leaf, path_of, refuse_removal, take_tree};
use crate::pool::tree::{holds_copies, number, parent_mut, parent_of, take_out_parent};

/// Detaches a device from a mirror, replacing or spare vdev. Its labels, if present, are cleared, or it
/// becomes an available spare.
///
/// # Errors
/// It is in no such vdev, or other devices lack some of its data.
#[boxed]
pub async fn detach(engine: &Engine, leaf: Guid) -> Result<()> {
    leave(engine, leaf, None).await?;
    // It may have kept other devices from leaving.
    let_go(engine).await?;
    // It may have been the smallest.
    autoexpand(engine).await
}

/// Detaches replaced devices and unneeded spares.
#[boxed]
pub(crate) async fn let_replaced_go(engine: &Engine) -> Result<()> {
    if let_go(engine).await? { autoexpand(engine).await } else { Ok(()) }
}

/// Returns whether any device left.
async fn let_go(engine: &Engine) -> Result<bool> {
    let mut has_left = false;
    while let Some(done) = done(&engine.pool()) {
        for (leaf, parent) in done {
            match leave(engine, leaf, Some(parent)).await {
                // Impossible with a checkpoint or during a removal.
                Err(DatasetError::Unsuitable { .. }) => return Ok(has_left),
                left => left?,
            }
            has_left = true;
        }
    }
    Ok(has_left)
}

/// Leaves that can go together, each with its parent.
fn done(pool: &Pool) -> Option<Vec<(Guid, Guid)>> {
    let config = pool.tree().config();
    config.vdevs.iter().find_map(|top| done_below(pool, top, None))
}

fn done_below(pool: &Pool, vdev: &VdevConfig, above: Option<&VdevConfig>) -> Option<Vec<(Guid, Guid)>> {
    if let Some(done) = vdev.children.iter().find_map(|child| done_below(pool, child, Some(vdev))) {
        return Some(done);
    }
    let [first, .., last] = &vdev.children[..] else { return None };
    let takes_over = |new: &VdevConfig, old: &VdevConfig| {
        old.is_leaf()
            && new.is_leaf()
            && pool.tree().vdevs().is_whole(new.guid)
            && pool.tree().vdevs().can_spare(old.guid)
    };
    match vdev.kind {
        VdevKind::Replacing if takes_over(last, first) => {
            let spare = above.filter(|above| above.kind == VdevKind::Spare && vdev.id == 0);
            let spare =
                spare.filter(|above| above.children.len() == 2).map(|above| (above, &above.children[1]));
            let spare =
                spare.filter(|(_, spare)| spare.is_leaf()).map(|(above, spare)| (spare.guid, above.guid));
            Some([(first.guid, vdev.guid)].into_iter().chain(spare).collect())
        }
        VdevKind::Spare if last.unspare && takes_over(last, first) => Some(vec![(first.guid, vdev.guid)]),
        VdevKind::Spare if first.unspare && takes_over(first, last) => Some(vec![(last.guid, vdev.guid)]),
        // Of several spares for one disk, only the last is needed.
        VdevKind::Spare if vdev.children.len() > 2 => {
            let second = &vdev.children[1];
            let is_superfluous = second.is_spare && last.is_spare && takes_over(last, second);
            is_superfluous.then(|| vec![(second.guid, vdev.guid)])
        }
        _ => None,
    }
}

/// Detaches a leaf, if `parent` is its vdev.
async fn leave(engine: &Engine, leaf: Guid, parent: Option<Guid>) -> Result<()> {
    let leave = move |engine: Engine| async move {
        let left = engine
            .run_on_pool(move |context| Box::pin(async move { leave_sync(context, leaf, parent).await }));
        let Left { leaf, device } = left.await?;
        // Perhaps nothing is left to rebuild.
        engine.background().rebuilds.order();
        let Some(device) = device else { return Ok(()) };
        if leaf.is_spare {
            engine.pool().tree().keep_beside(leaf.guid, device.clone());
            init_device(&*device.device, &spare_label(&leaf)).await?;
        } else {
            clear_labels(&*device.device).await?;
        }
        Ok(())
    };
    engine.to_end(leave).await
}

/// A device that has left.
struct Left {
    leaf: VdevConfig,
    /// `None` if the device is missing.
    device: Option<FoundDevice>,
}

async fn leave_sync(context: &mut SyncContext, guid: Guid, from: Option<Guid>) -> Result<Left> {
    refuse_checkpoint(context).await?;
    refuse_removal(context)?;
    let mut config = context.config().clone();
    let pool = context.pool().clone();
    let refused = |why: &str| DatasetError::unsuitable(pool.name(), why);
    let above = parent_of(&config.vdev_tree, guid).ok_or_else(|| refused("no such device in pool"))?;
    if from.is_some_and(|from| from != above.guid) {
        return Err(refused("it is in another vdev by now"));
    }
    let (above, is_top) = (above.guid, config.vdev_tree.children.iter().any(|top| top.guid == above.guid));
    let parent = parent_mut(&mut config.vdev_tree, guid).ok_or_else(|| refused("no such device in pool"))?;
    let is_leaf = parent.children.iter().any(|child| child.guid == guid && child.is_leaf());
    if !holds_copies(&parent.kind) || parent.children.len() < 2 || !is_leaf {
        return Err(refused("only applicable to mirror and replacing vdevs"));
    }
    if !pool.tree().vdevs().can_spare(guid) {
        return Err(refused("no valid replicas"));
    }
    let (device, path) = (pool.tree().device(guid), path_of(context, guid));
    let (leaf, stays) = take_child(parent, guid).ok_or_else(|| refused("no such device in pool"))?;
    // Cancels an evacuation's read order.
    parent.children.iter().for_each(|child| pool.devices().set_read_first(child.guid, false));
    let mut renamed = BTreeMap::new();
    if parent.children.len() == 1 {
        if is_top {
            let only = parent.children[0].guid;
            renamed.extend(pool.tree().device(only).map(|device| (above, device)));
        }
        take_out_parent(parent, is_top);
    }
    drop_leaf(context, &leaf).await?;
    if let Some(spare) = stays {
        remove_spare(context, spare).await?;
    }
    take_tree(context, config, renamed, None).await?;
    context.log_event("detach", &format!("vdev={path}")).await?;
    Ok(Left { leaf, device })
}

/// Removes a child; returns it, and the spare that replaces it for good.
fn take_child(parent: &mut VdevConfig, guid: Guid) -> Option<(VdevConfig, Option<Guid>)> {
    let at = parent.children.iter().position(|child| child.guid == guid)?;
    let gone = parent.children.remove(at);
    number(&mut parent.children);
    let mut stays = None;
    if parent.kind == VdevKind::Replacing && at > 0 {
        // Undoes the renaming of a device replaced at the same path.
        let old = gone.path.as_ref().map(|path| format!("{path}/old"));
        let named = parent.children.iter_mut().find(|child| old.is_some() && child.path == old);
        named.into_iter().for_each(|child| child.path.clone_from(&gone.path));
    }
    let is_alone = parent.children.len() == 1;
    if parent.kind == VdevKind::Spare
        && at == 0
        && let Some(last) = parent.children.last_mut()
        && last.is_spare
        && last.kind != VdevKind::DistributedSpare
    {
        (last.is_spare, last.unspare) = (false, !is_alone);
        stays = Some(last.guid);
    }
    if is_alone && parent.kind == VdevKind::Spare {
        parent.children[0].unspare = false;
    }
    Some((gone, stays))
}
