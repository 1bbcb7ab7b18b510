//! Dependents, which must be destroyed before a dataset.

use std::collections::HashSet;

use cenote_dataset::{Dataset, DatasetKind};
use cenote_format::units::DatasetId;

use crate::error::ControlError;

/// Everything that depends on a dataset or snapshot, dependents first: children, then the clones of each
/// snapshot and the snapshot itself.
pub async fn of(dataset: &Dataset) -> Result<Vec<Dataset>, ControlError> {
    /// A dataset is visited, and listed once all its dependents are.
    enum Step {
        Enter(Dataset),
        Leave(Dataset),
    }
    let mut entered: HashSet<DatasetId> = HashSet::new();
    let (mut found, mut pending) = (Vec::new(), vec![Step::Enter(dataset.clone())]);
    while let Some(step) = pending.pop() {
        let here = match step {
            Step::Leave(here) => {
                if here.id() != dataset.id() {
                    found.push(here);
                }
                continue;
            }
            // A clone below the dataset is met twice: by its name, and from its origin.
            Step::Enter(here) if !entered.insert(here.id()) => continue,
            Step::Enter(here) => here,
        };
        let mut direct = match here.is_snapshot() {
            true => here.clones().await?,
            false => here.children().await?,
        };
        if !here.is_snapshot() {
            direct.extend(here.snapshots().await?);
        }
        pending.push(Step::Leave(here));
        pending.extend(direct.into_iter().rev().map(Step::Enter));
    }
    Ok(found)
}

/// Refuses to destroy a dataset whose dependents are not covered by the options: any dependents, or with
/// `recursive` clones outside the dataset.
pub async fn refuse(target: &Dataset, dependents: &[Dataset], recursive: bool) -> Result<(), ControlError> {
    let name = target.name();
    let is_below = |dependent: &&Dataset| {
        dependent.name().strip_prefix(name).is_some_and(|rest| rest.starts_with(['/', '@']))
    };
    let kind = match target.kind().await? {
        DatasetKind::Filesystem => "filesystem",
        DatasetKind::Volume => "volume",
        DatasetKind::Snapshot => "snapshot",
    };
    let (mut why, mut how) = ("children", "-r");
    let mut in_the_way: Vec<&Dataset> = dependents.iter().filter(is_below).collect();
    if recursive || target.is_snapshot() {
        (why, how) = ("dependent clones", "-R");
        in_the_way = dependents.iter().filter(|dependent| !is_below(dependent)).collect();
    }
    if in_the_way.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = in_the_way.iter().map(|dependent| dependent.name()).collect();
    Err(ControlError::Refused(format!(
        "cannot destroy '{name}': {kind} has {why}\nuse '{how}' to destroy the following datasets:\n{}",
        names.join("\n")
    )))
}
