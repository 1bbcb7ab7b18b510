//! The error log as a list of files.
//!
//! Source: OpenZFS `zpool_get_errlog`, `zpool_obj_to_path`.

use cenote_dataset::{Dataset, Mos};
use cenote_format::text_or_bytes;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_fs::{Filesystem, PathFinder};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;

/// An object with damaged blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Damaged {
    /// Dataset.
    pub dataset: Of,
    /// Number.
    pub object: ObjectId,
    /// Its path in the file system, without the leading slash; none: no path, or the keys are not loaded.
    #[serde(with = "text_or_bytes::maybe")]
    #[schemars(with = "Option<text_or_bytes::TextOrBytes>")]
    pub path: Option<Vec<u8>>,
}

/// The owner of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// Pool itself.
    Pool,
    /// Dataset.
    Dataset(String),
    /// Destroyed dataset.
    Gone(DatasetId),
}

/// The damaged objects, each once.
///
/// # Errors
/// The error log can't be read.
pub async fn damaged_objects(mos: &Mos) -> Result<Vec<Damaged>, ControlError> {
    let mut all = Vec::new();
    for (id, object) in mos.damaged_objects().await? {
        all.push(match (id, mos.dataset_by_id(id).await) {
            (DatasetId(0), _) => Damaged { dataset: Of::Pool, object, path: None },
            (id, Err(_)) => Damaged { dataset: Of::Gone(id), object, path: None },
            (_, Ok(dataset)) => {
                let path = path(&dataset, object).await;
                Damaged { dataset: Of::Dataset(dataset.name().into()), object, path }
            }
        });
    }
    Ok(all)
}

/// The file's path; `None` if the dataset is locked, is a volume, or has no such file.
async fn path(dataset: &Dataset, object: ObjectId) -> Option<Vec<u8>> {
    let filesystem = Filesystem::open(dataset.objset().await.ok()?).await.ok()?;
    let attr = filesystem.attr(object).await.ok()?;
    PathFinder::new(&filesystem).path_of(object, &attr).await.ok()
}
