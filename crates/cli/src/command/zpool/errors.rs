//! The error log as a list of files, for `zpool status -v`.
//!
//! Source: OpenZFS `zpool_get_errlog`, `zpool_obj_to_path`.

use cenote_dataset::{Dataset, Mos};
use cenote_format::units::{DatasetId, ObjectId};
use cenote_fs::{Filesystem, PathFinder};

use crate::outcome::CliError;
use crate::render::quoted;

/// The damaged objects without duplicates: `dataset:/path`, or numbers where names are unknown.
pub async fn damaged_files(mos: &Mos) -> Result<Vec<String>, CliError> {
    let mut files = Vec::new();
    for (dataset, object) in mos.damaged_objects().await? {
        files.push(match dataset {
            DatasetId(0) => format!("<metadata>:<{:#x}>", object.0),
            _ => file(mos, dataset, object).await,
        });
    }
    Ok(files)
}

async fn file(mos: &Mos, dataset: DatasetId, object: ObjectId) -> String {
    let Ok(dataset) = mos.dataset_by_id(dataset).await else {
        return format!("<{:#x}>:<{:#x}>", dataset.0, object.0);
    };
    match path(&dataset, object).await {
        Some(path) => quoted(&[dataset.name().as_bytes(), b":/", &path].concat()),
        None => format!("{}:<{:#x}>", dataset.name(), object.0),
    }
}

/// The file's path; `None` if the dataset is locked, is a volume, or has no such file.
async fn path(dataset: &Dataset, object: ObjectId) -> Option<Vec<u8>> {
    let filesystem = Filesystem::open(dataset.objset().await.ok()?).await.ok()?;
    let attr = filesystem.attr(object).await.ok()?;
    PathFinder::new(&filesystem).path_of(object, &attr).await.ok()
}
