//! `cenote replicate`: makes and keeps copies of datasets, here or on other machines.
//!
//! Idea: both sides are asked and told by commands of `zfs`: the caller's own program here, Cenote or OpenZFS
//! through ssh elsewhere. So a side may be a daemon, a pool on disks, or a kernel. The plan is a value, made
//! from two lists. The client's program carries the streams, and so can count, limit and resume them. The
//! table of verbs has no row: no daemon starts commands for its clients.
//!
//! ```text
//!   zfs list -> plan <- zfs list         source            this program            target
//!                |                       zfs send --pipe--> count, limit --pipe--> zfs receive
//!                `-> streams             (or ssh HOST)                            (or ssh HOST)
//! ```
//!
//! A dataset is received after the one above it. Datasets of one level go in parallel.

mod one;
mod place;
pub mod plan;
pub mod report;
mod transfer;

use std::ffi::OsString;
use std::sync::Arc;

use futures::StreamExt;

use self::one::Copying;
use self::place::{Place, Side};
use self::plan::{COLUMNS, Listed, Wishes, parse};
use self::report::Report;
use self::transfer::{Failed, Meter, output};
use crate::error::{ControlError, Outcome};
use crate::progress::telling;
use crate::session::Session;
use crate::verb::Answered;

/// A replication.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replicate {
    /// The dataset to copy: `POOL/DATASET` or `[USER@]HOST:POOL/DATASET`.
    pub source: String,
    /// The copy.
    pub target: String,
    /// Include all descendants.
    pub recursive: bool,
    /// Datasets to send at a time.
    pub jobs: usize,
    /// Send encrypted blocks as they are on disk.
    pub raw: bool,
    /// Send properties.
    pub props: bool,
    /// The snapshots to send.
    pub wishes: Wishes,
    /// Bookmark the snapshot sent.
    pub bookmark: bool,
    /// Hold the snapshot sent on both sides, under this tag.
    pub hold: Option<String>,
    /// Most bytes a second.
    pub rate: Option<u64>,
    /// Discard the part that an interrupted run has received.
    pub no_resume: bool,
    /// Compare both sides afterwards.
    pub verify: bool,
    /// Only plan.
    pub dry_run: bool,
    /// The command that reaches other machines.
    pub ssh: Vec<String>,
    /// The command of this machine, with its options about pools.
    pub own: Vec<OsString>,
}

impl Replicate {
    /// Brings all copies up to date. A dataset that fails is reported, and does not stop the rest.
    ///
    /// # Errors
    /// A side can't be asked; an interrupt.
    pub async fn run(&self, session: &Session) -> Result<Answered<Vec<Report>>, ControlError> {
        let (source, target) = (self.side(&self.source)?, self.side(&self.target)?);
        if source.place == target.place {
            return Err(ControlError::Usage("SRC and DST are the same dataset".into()));
        }
        let (shown, meter) = (source.place.to_string(), Arc::new(Meter::new(self.rate)));
        let copying = Copying { options: self, session, source, target, meter: meter.clone() };
        let now = || (shown.clone(), meter.done_bytes(), meter.total_bytes());
        let work = telling(session, self.copy_all(&copying), now);
        let left = || "run the same command again to go on".to_owned();
        let done = session.caller().unless_interrupted(work, left).await;
        // Ends the transfers of an interrupted run. Another interrupt ends the wait for them.
        meter.stop();
        if done.is_err() {
            tokio::select! {
                () = meter.ended(session.runtime()) => {}
                () = session.caller().interrupted() => {}
            }
        }
        let (answer, outcome) = done?;
        Ok(Answered { answer, outcome })
    }

    fn side(&self, typed: &str) -> Result<Side, ControlError> {
        match self.ssh.is_empty() || self.own.is_empty() {
            true => Err(ControlError::Usage("name the command that reaches other machines".into())),
            false => Ok(Side::new(Place::parse(typed)?, self.ssh.clone(), self.own.clone())),
        }
    }

    /// Copies level by level. A dataset is left out if the one above it has failed.
    async fn copy_all(&self, copying: &Copying<'_>) -> Result<(Vec<Report>, Outcome), ControlError> {
        let sources = self.listed(&copying.source, copying.session).await?;
        let failed_at =
            |side: &Side, failed: Failed| ControlError::Refused(format!("{}: {}", side.place, failed.text));
        let sources = sources.map_err(|failed| failed_at(&copying.source, failed))?;
        let copies = match self.listed(&copying.target, copying.session).await? {
            Ok(copies) => copies,
            Err(failed) if failed.text.contains("does not exist") => Vec::new(),
            Err(failed) => return Err(failed_at(&copying.target, failed)),
        };
        let copies = &copies;
        let (mut reports, mut outcome, mut failed): (Vec<Report>, _, Vec<String>) =
            (Vec::new(), Outcome::Done, Vec::new());
        for level in levels(sources) {
            let is_below = |source: &Listed, above: &String| source.name.starts_with(&format!("{above}/"));
            let is_ready = |source: &Listed| !failed.iter().any(|above| is_below(source, above));
            let (ready, waiting): (Vec<Listed>, Vec<Listed>) = level.into_iter().partition(is_ready);
            failed.extend(waiting.into_iter().map(|source| source.name));
            let work = ready.into_iter().map(|source| async move {
                let name = copying.copy_name(&source.name);
                let copy = copies.iter().find(|copy| copy.name == name).cloned();
                (source.name.clone(), copying.bring(source, copy, name).await)
            });
            let work: Vec<_> = work.collect();
            let mut done = futures::stream::iter(work).buffer_unordered(self.jobs.max(1));
            while let Some((name, brought)) = done.next().await {
                match brought {
                    Ok(report) => {
                        outcome = outcome.and(report.outcome());
                        reports.push(report);
                    }
                    Err(error) => {
                        outcome = outcome.and(copying.session.caller().tell(&name, &error));
                        failed.push(name);
                    }
                }
            }
        }
        reports.sort_by(|one, other| one.source.cmp(&other.source));
        Ok((reports, outcome))
    }

    /// The datasets of a side with their snapshots.
    async fn listed(
        &self,
        side: &Side,
        session: &Session,
    ) -> Result<Result<Vec<Listed>, Failed>, ControlError> {
        let dataset = side.place.dataset.as_str();
        let types = "filesystem,volume,snapshot,bookmark";
        let mut words = vec!["list", "-H", "-p", "-t", types, "-o", COLUMNS];
        words.extend_from_slice(if self.recursive { &["-r"] } else { &["-d", "1"] });
        words.push(dataset);
        let command = side.command(&words);
        let listed = match session.runtime().blocking(move || output(command)).await {
            Ok(listed) => listed,
            Err(failed) => return Ok(Err(failed)),
        };
        let mut all = parse(&listed).map_err(ControlError::Refused)?;
        all.retain(|listed| self.recursive || listed.name == dataset);
        Ok(Ok(all))
    }
}

/// Datasets by their depth, the highest first.
fn levels(sources: Vec<Listed>) -> Vec<Vec<Listed>> {
    let depth = |listed: &Listed| listed.name.matches('/').count();
    let first = sources.iter().map(depth).min().unwrap_or(0);
    let mut levels: Vec<Vec<Listed>> = Vec::new();
    for source in sources {
        let level = depth(&source) - first;
        levels.resize_with(levels.len().max(level + 1), Vec::new);
        levels[level].push(source);
    }
    levels
}
