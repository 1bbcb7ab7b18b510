//! `zpool scrub`, `zpool resilver`: every block verified and repaired, and devices brought what they lack.
//!
//! In the daemon scans run in the background. Alone, a command scans until it is done; what it leaves when it
//! is interrupted, the next one goes on with, and so does OpenZFS at import.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_scrub`, `zpool_do_resilver`), including the wording.

use cenote_control::refusal::cannot;
use cenote_engine::Engine;
use cenote_format::dsl::names::pool as names;
use cenote_format::units::Txg;
use cenote_tasks::{cancel_scrub, pause_scrub, run_rebuild, run_scan, start_error_scrub, start_scrub};
use clap::Args;

use super::wait::LOOK_INTERVAL;
use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::render::counted;
use crate::session::{Progress, Session};

/// `zpool scrub`
#[derive(Debug, Args)]
#[command(after_help = "Every copy and parity column of every block is read and verified; what is wrong is \
        written again. The daemon does it in the background, gently while others work: `cenote zpool status` \
        shows how far it is. Without a daemon the command ends when all is done. If it is interrupted, the \
        same command goes on where it was, and so does OpenZFS.\n\n\
        With -e only the blocks that `cenote zpool status -v` names are read. What is whole again, or gone, \
        is no error any more. Paused, `zpool scrub -e` goes on. Needs the feature head_errlog.\n\n\
        Exit status: 3 if blocks could not be repaired (without a daemon, or with -w).\n\n\
        Example: cenote zpool scrub tank")]
pub struct Scrub {
    /// Pause; `zpool scrub` goes on
    #[arg(short = 'p', conflicts_with_all = ["stop", "wait"])]
    pub pause: bool,
    /// Stop for good
    #[arg(short = 's', conflicts_with = "wait")]
    pub stop: bool,
    /// Wait until it is done
    #[arg(short = 'w')]
    pub wait: bool,
    /// Only what was born after the last complete scrub
    #[arg(short = 'C', conflicts_with_all = ["pause", "stop", "errors"])]
    pub since_last: bool,
    /// Only the blocks in the error log: what is mended leaves it
    #[arg(short = 'e', conflicts_with_all = ["pause", "stop"])]
    pub errors: bool,
    /// Pools
    #[arg(required = true)]
    pub pools: Vec<String>,
}

/// `zpool resilver`
#[derive(Debug, Args)]
#[command(
    after_help = "Devices that were away while others wrote, or that joined a mirror, lack blocks, and the \
        pool knows which. They are put together from the other devices, verified, and written: in the daemon \
        in the background, otherwise before the command ends. With nothing to bring, nothing is written.\n\n\
        Example: cenote zpool resilver tank"
)]
pub struct Resilver {
    /// Pools
    #[arg(required = true)]
    pub pools: Vec<String>,
}

impl Scrub {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let work = async |engine: &Engine, pool: &String| match () {
            () if self.pause => {
                let paused = pause_scrub(engine).await;
                paused.map_err(cannot(format!("pause scrubbing {pool}")))?;
                Ok(Outcome::Done)
            }
            () if self.stop => {
                let ended = cancel_scrub(engine).await;
                ended.map_err(cannot(format!("cancel scrubbing {pool}")))?;
                Ok(Outcome::Done)
            }
            () => {
                // Without a daemon nobody goes on with a scrub but this.
                let is_ours = session.pools().is_none() && self.is_running(engine).await?;
                if !is_ours {
                    let started = match self.errors {
                        true => start_error_scrub(engine).await.map(drop),
                        false => start_scrub(engine, self.after(engine).await?).await,
                    };
                    started.map_err(cannot(format!("scrub {pool}")))?;
                }
                scan(session, engine, self.wait).await
            }
        };
        session.change_each(&self.pools, |pool| pool.as_str(), work).await
    }

    /// Whether such a scrub is in progress, and not paused.
    async fn is_running(&self, engine: &Engine) -> Result<bool, CliError> {
        let mos = engine.mos().await?;
        if self.errors {
            let scrub = mos.error_scrub_status().await?;
            return Ok(scrub.is_some_and(|scrub| scrub.is_running() && !scrub.is_paused()));
        }
        let scan = mos.scan_status().await?;
        Ok(scan.is_some_and(|scan| scan.is_scrub() && scan.is_running() && !scan.is_paused()))
    }

    /// The txg after which what is to be verified was born.
    async fn after(&self, engine: &Engine) -> Result<Txg, CliError> {
        let last = match self.since_last {
            true => engine.mos().await?.directory_u64(names::LAST_SCRUBBED_TXG).await?,
            false => None,
        };
        Ok(Txg(last.unwrap_or(0)))
    }
}

impl Resilver {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let work = async |engine: &Engine, _: &String| {
            engine.order_scan();
            scan(session, engine, false).await
        };
        session.change_each(&self.pools, |pool| pool.as_str(), work).await
    }
}

/// Rebuilds, then scans until nothing is left to scan; tells which devices could not be brought what they
/// lack, and what could not be repaired. In the daemon the pool does that by itself, and only those who
/// `wait` see it.
pub async fn scan(session: &Session, engine: &Engine, wait: bool) -> Result<Outcome, CliError> {
    if session.pools().is_some() && !wait {
        return Ok(Outcome::Done);
    }
    let progress = Progress::bytes(0, false);
    let shown = |now: cenote_tasks::ScanProgress| {
        progress.total(now.total_bytes);
        progress.set(now.done_bytes);
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
    progress.finish();
    let done = done?;
    let mut outcome = Outcome::Done;
    let health = engine.pool().status();
    let mut names = Vec::new();
    health.root.walk(&mut |vdev| names.extend(done.incomplete.contains(&vdev.guid).then_some(&vdev.name)));
    for name in names {
        say!("{name} could not be brought all that it lacks: see `cenote zpool status`");
        outcome = Outcome::Failed;
    }
    if done.errors > 0 {
        let blocks = counted(done.errors, "block");
        say!("{blocks} could not be repaired: `cenote verify` says which files they are of");
        outcome = outcome.and(Outcome::Damaged);
    }
    Ok(outcome)
}

/// Whether a scan is in progress, but `zfs_scan_suspend_progress` keeps it from going on.
async fn stands_still(engine: &Engine) -> Result<bool, CliError> {
    if !engine.scan_settings().is_suspended() {
        return Ok(false);
    }
    let scan = engine.mos().await?.scan_status().await?;
    Ok(scan.is_some_and(|scan| scan.is_running() && !scan.is_paused()))
}
