//! The snapshots selected by `hold`, `release` and `holds`.

use cenote_dataset::{Dataset, Mos};

use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::session::{Session, dataset};
use crate::zfs::permitted::head_of;

/// The named snapshot and, if `recursive`, those of the same name below: at least one.
pub async fn snapshots(mos: &Mos, name: &str, recursive: bool) -> Result<Vec<Dataset>, ControlError> {
    let found = snapshots_or_none(mos, name, recursive).await?;
    match (found.is_empty(), name.split_once('@')) {
        (true, Some((path, own))) => {
            let text = format!("no dataset at or below '{path}' has a snapshot '{own}'");
            Err(ControlError::NotFound(text))
        }
        _ => Ok(found),
    }
}

/// The same; with `recursive`, there may be none.
pub async fn snapshots_or_none(mos: &Mos, name: &str, recursive: bool) -> Result<Vec<Dataset>, ControlError> {
    let Some((path, own)) = name.split_once('@') else {
        return Err(ControlError::Usage(format!("'{name}' is not a snapshot; use DATASET@SNAPSHOT")));
    };
    if !recursive {
        return Ok(vec![dataset(mos, name).await?]);
    }
    let mut snapshots = Vec::new();
    for head in dataset(mos, path).await?.descendants().await? {
        snapshots.extend(head.snapshot(own).await?);
    }
    Ok(snapshots)
}

/// The permissions to hold or release them.
pub async fn permissions(
    session: &Session,
    what: &str,
    names: &[String],
    recursive: bool,
    permission: &str,
) -> Result<Permissions, ControlError> {
    let mut permissions = Permissions::to(what);
    for name in names {
        permissions.and_to(format!("{what} '{name}'"));
        let head = dataset(&session.pool_to_ask(name).await?, head_of(name)).await?;
        let all = if recursive { head.descendants().await? } else { vec![head] };
        all.iter().for_each(|head| permissions.need(head, &[permission]));
    }
    Ok(permissions)
}
