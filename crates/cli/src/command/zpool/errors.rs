//! The error log, as files: what `zpool status -v` lists.
//!
//! Source: OpenZFS `zpool_get_errlog`, `zpool_obj_to_path`.

use std::collections::BTreeSet;

use cenote_dataset::{Dataset, Mos};
use cenote_format::units::{DatasetId, ObjectId};
use cenote_fs::{Filesystem, PathFinder};

use crate::outcome::CliError;
use crate::render::escape_terminal;

/// The damaged objects, each once: `dataset:/path`, or numbers where there are no names.
pub async fn damaged_files(mos: &Mos) -> Result<Vec<String>, CliError> {
    let log = mos.error_log().await?;
    let objects: BTreeSet<(DatasetId, ObjectId)> =
        log.iter().map(|error| (error.place.dataset, error.place.object)).collect();
    let mut files = Vec::new();
    for (dataset, object) in objects {
        files.push(match dataset {
            DatasetId(0) => format!("<metadata>:<{:#x}>", object.0),
            _ => file(mos, dataset, object).await,
        });
    }
    Ok(files)
}

async fn file(mos: &Mos, dataset: DatasetId, object: ObjectId) -> String {
    let Ok(head) = mos.dataset_by_id(dataset).await else {
        return format!("<{:#x}>:<{:#x}>", dataset.0, object.0);
    };
    // The log names the live dataset; its snapshots may be what still has the object.
    let mut candidates = vec![head.clone()];
    candidates.extend(head.snapshots().await.unwrap_or_default().into_iter().rev());
    for candidate in candidates {
        if let Some(path) = path(&candidate, object).await {
            return format!("{}:/{}", candidate.name(), escape_terminal(&path));
        }
    }
    format!("{}:<{:#x}>", head.name(), object.0)
}

/// The file's path; none if the dataset is locked, a volume, or has no such file.
async fn path(dataset: &Dataset, object: ObjectId) -> Option<Vec<u8>> {
    let filesystem = Filesystem::open(dataset.objset().await.ok()?).await.ok()?;
    let attr = filesystem.attr(object).await.ok()?;
    PathFinder::new(&filesystem).path_of(object, &attr).await.ok()
}
