//! The second path: all blocks and all space, read and counted by the tool that ships for it.
//!
//! `verify` compares the pool's tree with the space maps. It shares the readers with the engine, but no code
//! that allocates and frees.
//!
//! Copies on guilty disks may be wrong or missing. Nothing may be lost, and all space must add up.

use cenote_control::inspect::verify::{Finding, Verify};

use super::Violation;
use crate::machine::daemon::Daemon;
use crate::machine::faults::Ledger;

/// Findings in a report: guilty disks have many.
const MOST_FINDINGS: u64 = 100_000;
/// Findings in a message.
const SHOWN: usize = 5;

/// Checks that all blocks are intact, and that allocated space equals theirs. The ledger is read at the end.
///
/// # Errors
/// Damage of honest disks, leaks, or blocks in free space.
pub async fn check(daemon: &Daemon, pool: &str, ledger: impl FnOnce() -> Ledger) -> Result<(), Violation> {
    let request =
        Verify { pool: pool.into(), metadata: false, no_space: false, most_findings: MOST_FINDINGS };
    let (answered, said) = daemon.run(request).await;
    let report = answered.map_err(|error| Violation(format!("verify fails: {error} {said}")))?.answer;
    let ledger = ledger();
    let wrong: Vec<&Finding> =
        report.findings.iter().filter(|finding| !is_of_guilty(finding, &ledger)).collect();
    if wrong.is_empty() && report.more_findings == 0 && report.complete {
        return Ok(());
    }
    let findings: Vec<String> = wrong.iter().take(SHOWN).map(|finding| finding.to_string()).collect();
    let (count, complete) = (wrong.len(), report.complete);
    let findings = findings.join("; ");
    Err(Violation(format!("verify finds {count}: {findings}; complete: {complete}; {ledger:?}")))
}

/// Whether only guilty disks are concerned.
fn is_of_guilty(finding: &Finding, ledger: &Ledger) -> bool {
    // A rebuilt disk may have what a guilty one had.
    let may_be_wrong =
        |path: &str| ledger.is_guilty(path) || (!ledger.guilty.is_empty() && ledger.is_rebuilt(path));
    match finding {
        Finding::Block(block) => {
            !block.lost && block.pieces.iter().all(|piece| piece.device.as_deref().is_some_and(may_be_wrong))
        }
        Finding::Redundancy(weak) => weak.devices.iter().all(|unsound| ledger.may_lack(&unsound.device)),
        _ => false,
    }
}
