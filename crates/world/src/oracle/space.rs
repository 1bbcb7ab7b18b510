//! The second path: all blocks and all space, read and counted by the tool that ships for it.
//!
//! `verify` walks the pool from its root and compares with the space maps. It shares the readers with the
//! engine, but none of the code that allocates and frees.

use cenote_control::inspect::verify::Verify;

use super::Violation;
use crate::machine::daemon::Daemon;

/// Checks that all blocks are intact, and that allocated space equals theirs.
///
/// # Errors
/// Damage, leaks, or blocks in free space.
pub async fn check(daemon: &Daemon, pool: &str) -> Result<(), Violation> {
    let request = Verify { pool: pool.into(), metadata: false, no_space: false, most_findings: 5 };
    let (answered, said) = daemon.run(request).await;
    let report = answered.map_err(|error| Violation(format!("verify fails: {error} {said}")))?.answer;
    match report.findings.is_empty() && report.more_findings == 0 && report.complete {
        true => Ok(()),
        false => {
            let findings: Vec<String> = report.findings.iter().map(|finding| finding.to_string()).collect();
            Err(Violation(format!("verify finds: {}; complete: {}", findings.join("; "), report.complete)))
        }
    }
}
