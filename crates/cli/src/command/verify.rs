//! `cenote verify`: reads every copy and parity column, names what is damaged, and checks space accounting.

mod damage;
mod report;

use cenote_inspect::verify::{Stop, VerifyOptions, VerifyReport, verify};
use clap::Args;

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Progress, Session, interrupted, print, print_json};

/// `cenote verify`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote verify tank\n\n\
    Exit status: 0 all is well, 3 blocks are damaged, devices are missing or out of date, or the allocated \
    space differs from the space maps.")]
pub struct Verify {
    /// Check only metadata
    #[arg(long)]
    pub metadata: bool,
    /// Don't compare the tree with the space maps
    #[arg(long)]
    pub no_space: bool,
    /// List each damaged block with its location on the devices, not only each file
    #[arg(short, long)]
    pub verbose: bool,
    /// Show at most this many findings (all are counted)
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub most: usize,
    /// Show progress even if standard error is not a terminal
    #[arg(long)]
    pub progress: bool,
    /// Pool
    pub pool: String,
}

impl Verify {
    /// Runs the command. Ctrl-C ends it with a report of what was checked so far.
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
        Ok(outcome(&report).printed(match session.json() {
            true => print_json(&report),
            false => print(report::text(&report, self.verbose)),
        }))
    }
}

/// Runs `work` to its end; an interrupt asks it to stop early.
async fn stop_on_interrupt<T>(work: impl Future<Output = T>, stop: impl Fn()) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = interrupted() => stop(),
        }
    }
}

/// Lost redundancy counts as damage: the next failure loses data. So does space that differs from the space
/// maps, though a leak only wastes it: that is no state that a pool should be in.
fn outcome(report: &VerifyReport) -> Outcome {
    match () {
        () if !report.findings.is_empty() || report.more_findings > 0 => Outcome::Damaged,
        () if report.lost_blocks + report.repairable_blocks > 0 => Outcome::Damaged,
        () if !report.complete => Outcome::Failed,
        () => Outcome::Done,
    }
}
