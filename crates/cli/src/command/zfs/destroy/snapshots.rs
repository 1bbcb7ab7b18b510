//! Snapshots by names and ranges, and what destroying them frees.

use cenote_dataset::Dataset;

use super::{Destroy, dependents};
use crate::outcome::CliError;
use crate::render::nice_bytes;
use crate::session::print;

impl Destroy {
    /// Snapshots that a list of names and ranges means, clones before them if those are to go, too.
    pub(super) async fn plan_snapshots(&self, head: &Dataset, spec: &str) -> Result<Vec<Dataset>, CliError> {
        let heads = if self.is_recursive() { head.descendants().await? } else { vec![head.clone()] };
        let (mut meant, mut reclaimed) = (Vec::new(), 0u64);
        for head in &heads {
            let all = head.snapshots().await?;
            let is_meant = meant_by(spec, &all);
            for (snapshot, _) in all.iter().zip(&is_meant).filter(|(_, meant)| **meant) {
                if !self.with_clones && !self.defer {
                    dependents::refuse(snapshot, &dependents::of(snapshot).await?, self.recursive).await?;
                }
                self.tell(snapshot)?;
                meant.push(snapshot.clone());
            }
            for run in runs(&is_meant) {
                reclaimed += all[run.start].reclaimable_through(&all[run.end - 1]).await?;
            }
        }
        if meant.is_empty() {
            let why = "could not find any snapshots to destroy; check snapshot names.";
            return Err(CliError::Refused(why.into()));
        }
        match (self.parsable, self.verbose, self.dry_run) {
            (true, ..) => print(format!("reclaim\t{reclaimed}\n"))?,
            (false, true, true) => print(format!("would reclaim {}\n", nice_bytes(reclaimed)))?,
            (false, true, false) => print(format!("will reclaim {}\n", nice_bytes(reclaimed)))?,
            (false, false, _) => {}
        }
        match self.with_clones {
            true => self.with_dependents(meant).await,
            false => Ok(meant),
        }
    }

    /// Clones and what depends on them, before the snapshots.
    async fn with_dependents(&self, snapshots: Vec<Dataset>) -> Result<Vec<Dataset>, CliError> {
        let mut plan: Vec<Dataset> = Vec::new();
        for snapshot in &snapshots {
            for dependent in dependents::of(snapshot).await? {
                if plan.iter().chain(&snapshots).all(|other| other.id() != dependent.id()) {
                    if !self.dry_run {
                        self.tell(&dependent)?;
                    }
                    plan.push(dependent);
                }
            }
        }
        plan.extend(snapshots);
        Ok(plan)
    }
}

/// Which of all snapshots of a dataset, oldest first, a list of names and ranges means; what is not there is not meant.
fn meant_by(spec: &str, all: &[Dataset]) -> Vec<bool> {
    let names: Vec<&str> = all.iter().map(|snapshot| snapshot.snapshot_name().unwrap_or_default()).collect();
    let place = |name: &str| names.iter().position(|other| *other == name);
    let mut meant = vec![false; all.len()];
    for part in spec.split(',') {
        let range = match part.split_once('%') {
            None => place(part).map(|at| at..at + 1),
            Some((first, last)) => {
                let start = if first.is_empty() { Some(0) } else { place(first) };
                let end = if last.is_empty() { Some(all.len()) } else { place(last).map(|at| at + 1) };
                start.zip(end).filter(|(start, end)| start < end).map(|(start, end)| start..end)
            }
        };
        if let Some(range) = range {
            meant[range].fill(true);
        }
    }
    meant
}

/// Runs of snapshots that follow each other.
fn runs(meant: &[bool]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in meant.iter().enumerate().filter(|(_, meant)| **meant) {
        match runs.last_mut() {
            Some(run) if run.end == at => run.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    #[test]
    fn neighbours_are_one_run() {
        assert_eq!(super::runs(&[true, true, false, true, false]), [0..2, 3..4]);
        assert_eq!(super::runs(&[false, false]), []);
    }
}
