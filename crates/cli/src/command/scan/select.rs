//! Which file systems and snapshots a scan covers.

use cenote_dataset::{Dataset, DatasetError};
use cenote_format::objset::ObjsetType;
use cenote_inspect::scan::ScanTarget;

use super::Scan;
use crate::outcome::CliError;
use crate::render::glob_matches;
use crate::session::{Session, Target};

/// The file systems that `target` means under the options of `scan`. Volumes are passed over; locked datasets are said.
pub async fn targets(session: &Session, scan: &Scan, target: &str) -> Result<Vec<ScanTarget>, CliError> {
    let target: Target = target.parse().map_err(CliError::Usage)?;
    if target.path.is_some() {
        return Err(CliError::Usage("scan takes whole datasets; for a folder use `cenote find`".into()));
    }
    let named = session.open_dataset(&target).await?;
    let datasets = if scan.recursive { named.descendants().await? } else { vec![named] };
    let mut found = Vec::new();
    for dataset in datasets {
        for dataset in chosen(scan, dataset).await? {
            found.extend(open(session, &dataset).await?);
        }
    }
    Ok(found)
}

/// The dataset itself or those of its snapshots that the options ask for.
async fn chosen(scan: &Scan, dataset: Dataset) -> Result<Vec<Dataset>, CliError> {
    if dataset.is_snapshot() || (!scan.latest && scan.snapshot.is_empty()) {
        return Ok(vec![dataset]);
    }
    let mut snapshots = dataset.snapshots().await?;
    if scan.latest {
        return Ok(snapshots.pop().into_iter().collect());
    }
    snapshots.retain(|snapshot| {
        let name = snapshot.snapshot_name().unwrap_or_default();
        scan.snapshot.iter().any(|glob| glob_matches(glob.as_bytes(), name.as_bytes()))
    });
    Ok(snapshots)
}

async fn open(session: &Session, dataset: &Dataset) -> Result<Option<ScanTarget>, CliError> {
    let (name, snapshot) = match dataset.name().split_once('@') {
        Some((name, snapshot)) => (name.to_string(), Some(snapshot.to_string())),
        None => (dataset.name().to_string(), None),
    };
    if dataset.content_type().await? != ObjsetType::Zfs {
        return Ok(None);
    }
    match session.filesystem(dataset).await {
        Ok(filesystem) => Ok(Some(ScanTarget { dataset: name, snapshot, filesystem })),
        // A key that is wrong was given: that is an error, while one that was not given need not be meant.
        Err(error) if matches!(error.dataset(), Some(DatasetError::KeyMissing { .. })) => {
            eprintln!("cenote: {}: left out: {error}", dataset.name());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
