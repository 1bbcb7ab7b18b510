//! Which disks may have errors: those in trouble, and no others. Within the budget, no pool is suspended.

use std::collections::BTreeMap;

use cenote_pool::{PoolConfig, VdevConfig, VdevKind};

use super::Violation;
use crate::machine::daemon::Daemon;
use crate::machine::faults::{Bay, disk_at};

/// Checks the error counts of all disks of an open pool, and that it goes on.
///
/// # Errors
/// An honest disk has errors; the pool is suspended.
pub fn check(daemon: &Daemon, pool: &str, bay: &Bay) -> Result<(), Violation> {
    let Some(open) = daemon.pools.get(pool) else { return Ok(()) };
    let view = open.engine.pool();
    note_rebuilt(&view.tree().config(), bay);
    let ledger = bay.ledger();
    if let Some(suspended) = view.suspension().suspended() {
        let mut vdevs = String::new();
        view.status().root.walk(&mut |vdev| vdevs += &format!("{} {}, ", vdev.name, vdev.state));
        return Err(Violation(format!("the pool is suspended: {}; {vdevs}{ledger:?}", suspended.why)));
    }
    let config = view.tree().config();
    let leaves = config.vdevs.iter().flat_map(|top| top.leaves());
    let paths: BTreeMap<_, _> = leaves.filter_map(|leaf| Some((leaf.guid, leaf.path.clone()?))).collect();
    for (leaf, errors) in view.counters().errors() {
        let Some(path) = paths.get(&leaf) else { continue };
        let (may_fail, may_lie) = ledger.may_have(path);
        if errors.checksum > 0 && !may_lie {
            return Err(Violation(format!("{path} never lied: {errors:?}; {ledger:?}")));
        }
        if errors.read + errors.write > 0 && !may_fail {
            return Err(Violation(format!("{path} never failed: {errors:?}; {ledger:?}")));
        }
    }
    Ok(())
}

/// Notes the disks of dRAIDs whose distributed spares are in use.
fn note_rebuilt(config: &PoolConfig, bay: &Bay) {
    let has_spare = |top: &&VdevConfig| top.leaves().any(|leaf| leaf.kind == VdevKind::DistributedSpare);
    let leaves = config.vdevs.iter().filter(has_spare).flat_map(|top| top.leaves());
    let disks: Vec<usize> = leaves.filter_map(|leaf| disk_at(leaf.path.as_deref()?)).collect();
    bay.note(|ledger| ledger.rebuilt.extend(disks));
}
