//! `verify`: reads every copy and parity column, lists damage, and checks space accounting.
//!
//! Ctrl-C ends it with a report so far.

use cenote_inspect::verify::{Stop, VerifyOptions, verify};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::caller::Progress;
use crate::error::{ControlError, Outcome};
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

pub use cenote_inspect::verify::{
    BadBlock, BadPiece, Counts, Extent, FaultKind, Finding, Owner, Part, Severity, VerifyReport,
};

const MOST_FINDINGS: u64 = 1_000_000;

/// Read and check every copy and parity column of every block, and check space accounting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verify {
    /// Name or guid.
    pub pool: String,
    /// Metadata only.
    #[serde(default)]
    pub metadata: bool,
    /// Skip the comparison with the space maps.
    #[serde(default)]
    pub no_space: bool,
    /// Findings reported, a million at most; all are counted.
    #[serde(default = "usual_findings")]
    pub most_findings: u64,
}

fn usual_findings() -> u64 {
    1000
}

impl Verb for Verify {
    const NAME: &'static str = "verify";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = VerifyReport;

    /// # Errors
    /// The pool can't be opened. Damage is an outcome, not an error.
    async fn carry_out(self, session: &Session) -> Result<Answered<VerifyReport>, ControlError> {
        let mos = session.open_pool(&self.pool).await?;
        let (stop, caller) = (Stop::default(), session.caller());
        let options = VerifyOptions {
            data: !self.metadata,
            space: !self.no_space,
            max_findings: self.most_findings.min(MOST_FINDINGS) as usize,
            stop: stop.clone(),
            ..VerifyOptions::default()
        };
        let verification = verify(&mos, options, |now| {
            let what = match now.damaged_blocks {
                0 => String::new(),
                count => format!("{count} damaged blocks,"),
            };
            let (done_bytes, total_bytes) = (now.done_bytes, now.total_bytes);
            caller.console.progress(Some(Progress { what: &what, done_bytes, total_bytes }));
        });
        let stopped_early = async {
            let mut verification = std::pin::pin!(verification);
            tokio::select! {
                biased;
                () = caller.interrupted() => stop.stop(),
                report = &mut verification => return report,
            }
            verification.await
        };
        let report = caller.whole(stopped_early).await;
        caller.console.progress(None);
        let report = report?;
        Ok(Answered { outcome: outcome(&report), answer: report })
    }
}

/// Lost redundancy counts as damage: the next failure loses data. So do space map differences, although a
/// leak only wastes space: a healthy pool has none.
fn outcome(report: &VerifyReport) -> Outcome {
    match () {
        () if !report.findings.is_empty() || report.more_findings > 0 => Outcome::Damaged,
        () if report.lost_blocks + report.repairable_blocks > 0 => Outcome::Damaged,
        () if !report.complete => Outcome::Failed,
        () => Outcome::Done,
    }
}
