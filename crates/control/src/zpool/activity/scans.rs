//! Runs a pool's scans and rebuilds until none is left.

use cenote_engine::Engine;
use cenote_tasks::{ScanProgress, run_rebuild, run_scan};

use super::LOOK_INTERVAL;
use crate::caller::Progress;
use crate::error::{ControlError, Outcome};
use crate::session::Session;
use crate::text::counted;

/// Rebuilds, then scans until nothing is left to scan; reports devices with missing data and unrepaired
/// blocks. In the daemon the pool does so by itself, and only a caller with `wait` sees it.
pub async fn scan(session: &Session, engine: &Engine, wait: bool) -> Result<Outcome, ControlError> {
    if session.pools().is_some() && !wait {
        return Ok(Outcome::Done);
    }
    let caller = session.caller();
    let shown = |now: ScanProgress| {
        let (done_bytes, total_bytes) = (now.done_bytes, now.total_bytes);
        caller.console.progress(Some(Progress { what: "", done_bytes, total_bytes }));
    };
    let done = loop {
        let done = match run_rebuild(engine, &shown).await {
            Ok(()) => run_scan(engine, &shown).await,
            Err(error) => Err(error),
        };
        if done.is_err() || !stands_still(engine).await? {
            break done;
        }
        session.runtime().sleep(LOOK_INTERVAL).await;
    };
    caller.console.progress(None);
    let done = done?;
    let mut outcome = Outcome::Done;
    let health = engine.pool().status();
    let mut names = Vec::new();
    health.root.walk(&mut |vdev| names.extend(done.incomplete.contains(&vdev.guid).then_some(&vdev.name)));
    for name in names {
        caller.note(format!("{name} could not be brought all that it lacks: see `cenote zpool status`"));
        outcome = Outcome::Failed;
    }
    if done.errors > 0 {
        let blocks = counted(done.errors, "block");
        caller.note(format!("{blocks} could not be repaired: `cenote verify` says which files they are of"));
        outcome = outcome.and(Outcome::Damaged);
    }
    Ok(outcome)
}

/// Whether a scan is in progress, but held up by `zfs_scan_suspend_progress`.
async fn stands_still(engine: &Engine) -> Result<bool, ControlError> {
    if !engine.background().settings().is_suspended() {
        return Ok(false);
    }
    let scan = engine.mos().await?.scan_status().await?;
    Ok(scan.is_some_and(|scan| scan.is_running() && !scan.is_paused()))
}
