//! Snapshots selected by names and ranges, and the space that destroying them frees.

use std::collections::{HashMap, HashSet};

use cenote_dataset::Dataset;
use cenote_format::units::DatasetId;

use super::report::Report;
use super::{Destroy, dependents};
use crate::outcome::CliError;

impl Destroy {
    /// The snapshots that a list of names and ranges selects, preceded by their clones if those go too.
    pub(super) async fn plan_snapshots(
        &self,
        head: &Dataset,
        spec: &str,
        report: &mut Report,
    ) -> Result<Vec<Dataset>, CliError> {
        let heads = if self.is_recursive() { head.descendants().await? } else { vec![head.clone()] };
        let (mut meant, mut reclaimed) = (Vec::new(), 0u64);
        let is_told = self.parsable || self.verbose;
        for head in &heads {
            let all = head.snapshots().await?;
            let is_meant = meant_by(spec, &all);
            for (snapshot, _) in all.iter().zip(&is_meant).filter(|(_, meant)| **meant) {
                if !self.with_clones && !self.defer {
                    dependents::refuse(snapshot, &dependents::of(snapshot).await?, self.recursive).await?;
                }
                report.destroys(snapshot);
                meant.push(snapshot.clone());
            }
            for run in runs(&is_meant).into_iter().filter(|_| is_told) {
                reclaimed += all[run.start].reclaimable_through(&all[run.end - 1]).await?;
            }
        }
        if meant.is_empty() {
            let why = "could not find any snapshots to destroy; check snapshot names.";
            return Err(CliError::Refused(why.into()));
        }
        report.reclaims(reclaimed);
        match self.with_clones {
            true => self.with_dependents(meant, report).await,
            false => Ok(meant),
        }
    }

    /// Clones and their dependents, before the snapshots.
    async fn with_dependents(
        &self,
        snapshots: Vec<Dataset>,
        report: &mut Report,
    ) -> Result<Vec<Dataset>, CliError> {
        let mut plan: Vec<Dataset> = Vec::new();
        let mut met: HashSet<DatasetId> = snapshots.iter().map(Dataset::id).collect();
        for snapshot in &snapshots {
            for dependent in dependents::of(snapshot).await? {
                if met.insert(dependent.id()) {
                    if !self.dry_run {
                        report.destroys(&dependent);
                    }
                    plan.push(dependent);
                }
            }
        }
        plan.extend(snapshots);
        Ok(plan)
    }
}

/// Which of a dataset's snapshots, oldest first, a list of names and ranges selects; unknown names are
/// ignored.
fn meant_by(spec: &str, all: &[Dataset]) -> Vec<bool> {
    let names = all.iter().map(|snapshot| snapshot.snapshot_name().unwrap_or_default());
    let places: HashMap<&str, usize> = names.zip(0..).collect();
    let place = |name: &str| places.get(name).copied();
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

/// Runs of consecutive snapshots.
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
