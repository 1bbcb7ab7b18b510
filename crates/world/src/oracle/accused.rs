//! Which disks may have errors: those in trouble, and no others. Within the budget, no pool is suspended.

use std::collections::BTreeMap;

use super::Violation;
use crate::machine::daemon::Daemon;
use crate::machine::faults::Ledger;

/// Checks the error counts of all disks of an open pool, and that it goes on.
///
/// # Errors
/// An honest disk has errors; the pool is suspended.
pub fn check(daemon: &Daemon, pool: &str, ledger: &Ledger) -> Result<(), Violation> {
    let Some(open) = daemon.pools.get(pool) else { return Ok(()) };
    let view = open.engine.pool();
    if let Some(suspended) = view.suspension().suspended() {
        return Err(Violation(format!("the pool is suspended: {}; {ledger:?}", suspended.why)));
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
