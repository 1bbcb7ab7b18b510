//! Activates hot spares for failing devices.
//!
//! Idea: the vdev tree shows both failing leaves and available spares. Each leaf faulted, removed, missing or
//! degraded by errors gets a spare, unless it has one: the dRAID's own first, then the smallest that fits. An
//! offline leaf is away on purpose. The spare leaves when its leaf is in use again and complete (`detach`).
//!
//! Source: ZED's `zfs_retire.c` (`replace_with_spare`, `spare_is_preferred`).

use cenote_engine::Engine;
use cenote_format::label::{ERR_EXCEEDED, VdevClass, VdevConfig, VdevKind};
use cenote_format::units::Guid;
use cenote_object::{DatasetError, Result};
use cenote_pool::Pool;

use crate::pool::attach::stand_in;
use crate::pool::health::Surroundings;
use crate::pool::tree::holds_copies;

/// Activates spares for failing leaves.
pub(crate) async fn step_in(engine: &Engine, surroundings: &impl Surroundings) -> Result<()> {
    let pool = engine.pool();
    for (top, leaf) in failing(&pool) {
        for spare in available(&pool, top) {
            let device = match spare.kind {
                VdevKind::DistributedSpare => None,
                _ => match surroundings.spare(engine.clone(), spare.clone()).await {
                    Some(device) => Some(device),
                    None => continue,
                },
            };
            match stand_in(engine, leaf, spare.guid, device).await {
                // Too small, perhaps: try the next.
                Err(DatasetError::Unsuitable { .. }) => {}
                stepped_in => {
                    stepped_in?;
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Leaves that need a spare, each with its top-level vdev.
fn failing(pool: &Pool) -> Vec<(Guid, Guid)> {
    let config = pool.tree().config();
    let mut failing = Vec::new();
    for top in config.vdevs.iter().filter(|top| top.class != VdevClass::Log) {
        if top.is_leaf() && fails(pool, top) {
            failing.push((top.guid, top.guid));
        }
        for parent in top.walk().filter(|vdev| !is_cared_for(pool, vdev)) {
            let leaves = parent.children.iter().filter(|child| child.is_leaf() && fails(pool, child));
            failing.extend(leaves.map(|leaf| (top.guid, leaf.guid)));
        }
    }
    failing
}

fn fails(pool: &Pool, leaf: &VdevConfig) -> bool {
    let is_distrusted = leaf.degraded && leaf.aux_state.as_deref() == Some(ERR_EXCEEDED);
    let is_gone = leaf.kind != VdevKind::DistributedSpare && pool.tree().device(leaf.guid).is_none();
    !leaf.offline && (leaf.faulted || leaf.removed || is_distrusted || is_gone)
}

/// Whether a failing child is being replaced or has a spare.
fn is_cared_for(pool: &Pool, parent: &VdevConfig) -> bool {
    let has_spare = || parent.children.iter().any(|child| child.is_spare && !fails(pool, child));
    holds_copies(&parent.kind)
        && parent.kind != VdevKind::Mirror
        && (parent.kind == VdevKind::Replacing || has_spare())
}

/// Unused spares, best first.
fn available(pool: &Pool, top: Guid) -> Vec<VdevConfig> {
    let (config, found) = (pool.tree().config(), pool.tree().found());
    let is_used = |guid| config.vdevs.iter().flat_map(VdevConfig::leaves).any(|leaf| leaf.guid == guid);
    let suits = |spare: &&VdevConfig| !is_used(spare.guid) && spare.top_guid.is_none_or(|of| of == top);
    let mut spares: Vec<VdevConfig> = config.spares.iter().filter(suits).cloned().collect();
    let size = |spare: &VdevConfig| found.device(spare.guid).map(|device| device.device.size_bytes());
    spares.sort_by_key(|spare| (spare.kind != VdevKind::DistributedSpare, size(spare)));
    spares
}
