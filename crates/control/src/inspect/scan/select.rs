//! Selects the file systems and snapshots of a scan.

use cenote_dataset::Dataset;
use cenote_format::objset::ObjsetType;
use cenote_inspect::scan::ScanTarget;
use cenote_object::DatasetError;

use super::Scan;
use crate::error::{ControlError, Outcome};
use crate::files::Target;
use crate::session::{Session, dataset};
use crate::text::glob_matches;

/// The file systems that `target` selects. Volumes are skipped silently. Without `-r`, a locked or unopenable
/// dataset ends the scan. With it, such datasets are reported, and the outcome marks the list as incomplete.
pub async fn targets(
    session: &Session,
    scan: &Scan,
    target: &Target,
) -> Result<(Vec<ScanTarget>, Outcome), ControlError> {
    if target.path.is_some() {
        return Err(ControlError::Usage("scan takes whole datasets; for a folder, use `cenote find`".into()));
    }
    let named = dataset(&session.open_pool(target.pool()).await?, &target.dataset).await?;
    let mut found = Vec::new();
    if !scan.recursive {
        for dataset in chosen(scan, named).await? {
            found.extend(open(session, &dataset).await?);
        }
        return Ok((found, Outcome::Done));
    }
    let (datasets, lost) = named.reachable().await;
    let told = lost.into_iter().map(|(name, error)| session.caller().tell(&name, &error.into()));
    let mut outcome = told.fold(Outcome::Done, Outcome::and);
    for dataset in datasets {
        let name = dataset.name().to_owned();
        let chosen = chosen(scan, dataset).await;
        for dataset in chosen.unwrap_or_else(|error| {
            outcome = outcome.and(session.caller().tell(&name, &error));
            Vec::new()
        }) {
            match open(session, &dataset).await {
                Ok(opened) => found.extend(opened),
                // A missing key may be intended, but the list then lacks its dataset.
                Err(error) if matches!(error.dataset(), Some(DatasetError::KeyMissing { .. })) => {
                    session.caller().note(format!("{}: skipped: {error}", dataset.name()));
                    outcome = outcome.and(Outcome::Damaged);
                }
                Err(error) => outcome = outcome.and(session.caller().tell(dataset.name(), &error)),
            }
        }
    }
    Ok((found, outcome))
}

async fn chosen(scan: &Scan, dataset: Dataset) -> Result<Vec<Dataset>, ControlError> {
    if dataset.is_snapshot() || (!scan.latest && scan.snapshots.is_empty()) {
        return Ok(vec![dataset]);
    }
    let mut snapshots = dataset.snapshots().await?;
    if scan.latest {
        return Ok(snapshots.pop().into_iter().collect());
    }
    snapshots.retain(|snapshot| {
        let name = snapshot.snapshot_name().unwrap_or_default();
        scan.snapshots.iter().any(|glob| glob_matches(glob.as_bytes(), name.as_bytes()))
    });
    Ok(snapshots)
}

async fn open(session: &Session, dataset: &Dataset) -> Result<Option<ScanTarget>, ControlError> {
    let (name, snapshot) = match dataset.name().split_once('@') {
        Some((name, snapshot)) => (name.to_string(), Some(snapshot.to_string())),
        None => (dataset.name().to_string(), None),
    };
    if dataset.content_type().await? != ObjsetType::Zfs {
        return Ok(None);
    }
    let filesystem = session.filesystem(dataset).await?;
    Ok(Some(ScanTarget { dataset: name, snapshot, filesystem }))
}
