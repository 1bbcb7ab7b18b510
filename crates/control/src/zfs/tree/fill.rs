//! The initial content of new file systems and volumes.

use cenote_dataset::{Dataset, Mos};
use cenote_fs::write::{NewFilesystem, create_filesystem};
use cenote_fs::{Change, Counted, FsError, FsOptions, SpaceBy, VolumeWriter, default_limit};
use cenote_object::DatasetError;
use cenote_tasks::Fill;

use crate::error::ControlError;
use crate::session::{Session, now};
use crate::zfs::properties::settings::{OwnerQuota, case_of, form_of};

/// An empty file system, with quotas of owners.
pub fn filesystem(session: &Session, new: NewFilesystem, projects: bool, quotas: Vec<OwnerQuota>) -> Fill {
    let now = now(session.runtime());
    let options = FsOptions { projects, ..FsOptions::default() };
    Box::new(move |live| {
        Box::pin(async move {
            let edit = live.edit();
            let made = create_filesystem(&live, Change { edit: &edit, now }, &new, options).await;
            let fs = made.map_err(of_dataset)?;
            for quota in quotas {
                quota.set(&fs, &edit).await.map_err(of_dataset)?;
            }
            Ok(())
        })
    })
}

/// An empty volume.
pub fn volume(size_bytes: u64, block_bytes: u32) -> Fill {
    Box::new(move |live| {
        Box::pin(async move {
            let edit = live.edit();
            let made = VolumeWriter::create(live, &edit, size_bytes, block_bytes).await;
            made.map(|_| ()).map_err(of_dataset)
        })
    })
}

fn of_dataset(error: FsError) -> DatasetError {
    match error {
        FsError::Dataset(error) => error,
        // In an empty object set only impossible sizes are refused.
        other => DatasetError::Unsuitable { name: "the new dataset".into(), why: other.to_string().into() },
    }
}

/// The permanent properties that a child of a file system inherits by default.
pub async fn as_parent(parent: &Dataset) -> Result<NewFilesystem, ControlError> {
    let number = async |name| -> Result<u64, ControlError> {
        Ok(parent.property(name).await?.and_then(|property| property.number()).unwrap_or(0))
    };
    Ok(NewFilesystem {
        case: case_of(number("casesensitivity").await?),
        normalization: form_of(number("normalization").await?),
        utf8_only: number("utf8only").await? == 1,
        ..NewFilesystem::default()
    })
}

/// The default quotas that a child of a file system has from the start. Later changes of the parent's do not
/// reach it.
pub async fn quotas_of_parent(parent: &Dataset) -> Result<Vec<OwnerQuota>, ControlError> {
    let mut quotas = Vec::new();
    for by in SpaceBy::ALL {
        for counted in [Counted::Bytes, Counted::Objects] {
            let property = parent.property(default_limit(by, counted)).await?;
            let limit = property.and_then(|property| property.number()).unwrap_or(0);
            if limit != 0 {
                quotas.push(OwnerQuota { by, counted, owner: None, limit });
            }
        }
    }
    Ok(quotas)
}

/// Whether new files record their projects.
pub async fn has_projects(mos: &Mos) -> Result<bool, ControlError> {
    Ok(mos.enabled_features().await?.contains("project_quota"))
}
