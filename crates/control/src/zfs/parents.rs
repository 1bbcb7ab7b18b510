//! File systems above a dataset that are missing: `zfs receive -d` makes them.

use cenote_dataset::{Dataset, FeatureState, Mos};
use cenote_engine::Engine;
use cenote_format::props::Prop;
use cenote_fs::write::{NewFilesystem, create_filesystem};
use cenote_fs::{CaseSensitivity, Change, FsError, FsOptions, Normalization};
use cenote_object::{DatasetError, Result};
use cenote_runtime::Runtime;
use cenote_tasks::{Fill, Settings};

use crate::session::now;

/// Creates the missing file systems above a dataset; answers the uppermost of them.
///
/// # Errors
/// One can't be made.
pub async fn make_parents(runtime: &Runtime, engine: &Engine, name: &str) -> Result<Option<String>> {
    let mut uppermost = None;
    for ancestor in name.match_indices('/').map(|(at, _)| &name[..at]) {
        let mos = engine.mos().await?;
        match mos.dataset(ancestor).await {
            Err(DatasetError::NoDataset { .. }) => {}
            found => {
                found?;
                continue;
            }
        }
        let parent = ancestor.rsplit_once('/').map_or(ancestor, |(above, _)| above);
        let new = as_parent(&mos.dataset(parent).await?).await?;
        let fill = empty(runtime, new, has_projects(&mos).await?);
        cenote_tasks::create_filesystem(engine, ancestor, Settings::new(), fill).await?;
        uppermost.get_or_insert_with(|| ancestor.to_owned());
    }
    Ok(uppermost)
}

fn empty(runtime: &Runtime, new: NewFilesystem, projects: bool) -> Fill {
    let now = now(runtime);
    let options = FsOptions { projects, ..FsOptions::default() };
    Box::new(move |live| {
        Box::pin(async move {
            let edit = live.edit();
            let made = create_filesystem(&live, Change { edit: &edit, now }, &new, options).await;
            made.map(drop).map_err(of_dataset)
        })
    })
}

fn of_dataset(error: FsError) -> DatasetError {
    match error {
        FsError::Dataset(error) => error,
        // In an empty object set only impossible sizes are refused.
        other => DatasetError::unsuitable("the new dataset", other.to_string()),
    }
}

/// The permanent properties that a child of a file system inherits by default.
async fn as_parent(parent: &Dataset) -> Result<NewFilesystem> {
    let number = async |name| -> Result<u64> {
        Ok(parent.property(name).await?.and_then(|property| property.number()).unwrap_or(0))
    };
    Ok(NewFilesystem {
        case: case_of(number("casesensitivity").await?),
        normalization: form_of(number("normalization").await?),
        utf8_only: number("utf8only").await? == 1,
        ..NewFilesystem::default()
    })
}

/// Whether new files record their projects.
async fn has_projects(mos: &Mos) -> Result<bool> {
    let features = mos.features().await?;
    Ok(features.iter().any(|(f, state)| f.name == "project_quota" && *state != FeatureState::Disabled))
}

/// The value of `casesensitivity` from its stored number.
fn case_of(number: u64) -> CaseSensitivity {
    match number {
        1 => CaseSensitivity::Insensitive,
        2 => CaseSensitivity::Mixed,
        _ => CaseSensitivity::Sensitive,
    }
}

/// The value of `normalization` from its stored number, a set of `u8_textprep` flags.
fn form_of(number: u64) -> Normalization {
    let name = Prop::zfs("normalization").and_then(|prop| prop.index_name(number));
    match name {
        Some("formC") => Normalization::FormC,
        Some("formD") => Normalization::FormD,
        Some("formKC") => Normalization::FormKc,
        Some("formKD") => Normalization::FormKd,
        _ => Normalization::None,
    }
}
