//! Accounts of datasets, by rules that hold at each txg, however it came about.
//!
//! * A directory's use is the sum of its parts: head, snapshots, children and reservations.
//! * All that the head of a dataset that is no clone refers to is in the head's account, and nothing else.

use super::Violation;
use crate::machine::daemon::Daemon;

/// Checks the accounts of all datasets.
///
/// # Errors
/// An account is wrong, or can't be read.
pub async fn check(daemon: &Daemon, pool: &str) -> Result<(), Violation> {
    let Some(open) = daemon.pools.get(pool) else { return Ok(()) };
    let unreadable = |error: String| Violation(format!("the accounts can't be read: {error}"));
    let mos = open.engine.mos().await.map_err(|error| unreadable(error.to_string()))?;
    let datasets = mos.all_datasets().await.map_err(|error| unreadable(error.to_string()))?;
    for dataset in datasets {
        let (dir, referenced_bytes) = (dataset.dir().phys(), dataset.phys().referenced_bytes);
        let used = dir.used_breakdown;
        let parts = used.head_bytes + used.snapshots_bytes + used.children_bytes;
        let parts = parts + used.children_reservation_bytes + used.refreservation_bytes;
        let wrong = |what: &str| Err(Violation(format!("{} {what}: {dir:?}", dataset.name())));
        if parts != dir.used_bytes {
            return wrong("does not use the sum of its parts");
        }
        let origin = dataset.origin().await.map_err(|error| unreadable(error.to_string()))?;
        if origin.is_none() && used.head_bytes != referenced_bytes {
            return wrong(&format!("refers to {referenced_bytes} bytes"));
        }
    }
    Ok(())
}
