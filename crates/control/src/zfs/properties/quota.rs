//! Quotas of users, groups and projects, stored in a file system rather than in properties.

use cenote_dataset::{Dataset, DatasetKind};
use cenote_engine::{Engine, Need};
use cenote_fs::{FsError, FsWriter};
use cenote_object::DatasetError;

use super::settings::OwnerQuota;

/// Sets an owner's quota in a file system.
pub async fn limit_owner(engine: &Engine, name: &str, quota: OwnerQuota) -> Result<(), DatasetError> {
    let refused = |why: &str| DatasetError::Unsuitable { name: name.into(), why: why.into() };
    check_has_owners(engine.mos().await?.dataset(name).await?).await?;
    let set = async {
        let fs = FsWriter::shared(engine, name).await?;
        let limited = fs.change(engine, Need::Free, move |fs, change| {
            Box::pin(async move { quota.set(fs, change.edit).await })
        });
        limited.await
    };
    match set.await {
        Ok(()) => engine.sync_own().await,
        Err(FsError::Dataset(error)) => Err(error),
        Err(other) => Err(refused(&other.to_string())),
    }
}

/// Fails unless the dataset is a file system: only its objects have owners.
pub async fn check_has_owners(dataset: Dataset) -> Result<(), DatasetError> {
    match dataset.kind().await? {
        DatasetKind::Filesystem => Ok(()),
        _ => {
            let why = "property doesn't apply to datasets of this type";
            Err(DatasetError::unsuitable(dataset.name(), why))
        }
    }
}
