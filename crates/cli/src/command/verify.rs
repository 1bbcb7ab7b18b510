//! `cenote verify`: reads every copy and parity column, names what is damaged, and checks space.

mod report;

use cenote_inspect::verify::{Finding, Severity, Stop, VerifyOptions, VerifyReport, verify};
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::{Progress, Session, interrupted, print, print_json};

/// `cenote verify`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote verify tank")]
pub struct Verify {
    /// Only metadata
    #[arg(long)]
    pub metadata: bool,
    /// Don't compare the tree with the space maps
    #[arg(long)]
    pub no_space: bool,
    /// Show at most this many findings (all are counted)
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub most: usize,
    /// Progress even if standard error is no terminal
    #[arg(long)]
    pub progress: bool,
    /// Pool
    pub pool: String,
}

impl Verify {
    /// Runs the command. Ctrl-C ends it with a report of what was checked until then.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let mos = session.open_pool(&self.pool).await?;
        let stop = Stop::default();
        let options = VerifyOptions {
            data: !self.metadata,
            space: !self.no_space,
            max_findings: self.most,
            stop: stop.clone(),
            ..VerifyOptions::default()
        };
        let progress = Progress::bytes(0, self.progress);
        let verification = verify(&mos, options, |now| {
            progress.total(now.total_bytes);
            progress.set(now.done_bytes);
            if now.damaged_blocks > 0 {
                progress.message(format!("{} damaged blocks,", now.damaged_blocks));
            }
        });
        let report = stop_on_interrupt(verification, || stop.stop()).await?;
        progress.finish();
        if session.json() {
            print_json(&report)?
        } else {
            print(report::text(&report))?
        }
        Ok(outcome(&report))
    }
}

/// Runs `work` to its end; an interrupt asks it to end early.
async fn stop_on_interrupt<T>(work: impl Future<Output = T>, stop: impl Fn()) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = interrupted() => stop(),
        }
    }
}

/// Leaks alone are no damage to data: they waste space.
fn outcome(report: &VerifyReport) -> Outcome {
    let worst = report.findings.iter().map(Finding::severity).max();
    match worst {
        Some(severity) if severity > Severity::Notice => Outcome::Damaged,
        _ if report.lost_blocks + report.repairable_blocks > 0 => Outcome::Damaged,
        _ if !report.complete => Outcome::Failed,
        _ => Outcome::Done,
    }
}
