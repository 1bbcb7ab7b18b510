//! Whether and where a dataset is to be mounted, as its properties say.

use std::path::{Path, PathBuf};

use cenote_boxed::boxed;
use cenote_dataset::properties::{PLACED_BY_PROPERTY, Property, Source, Value};
use cenote_dataset::{Dataset, DatasetKind, KeyStatus};
use cenote_object::DatasetError;

/// Why a dataset is not mounted. The texts are those of `zfs mount`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unmountable {
    /// A volume, or a snapshot.
    #[error("operation not applicable to this type")]
    Kind,
    /// `mountpoint=legacy`.
    #[error("legacy mountpoint\nuse mount(8) to mount this filesystem")]
    Legacy,
    /// `mountpoint=none`.
    #[error("no mountpoint set")]
    None,
    /// `canmount=off`.
    #[error("'canmount' property is set to 'off'")]
    CanmountOff,
    /// `canmount=noauto`, and nobody asked for it.
    #[error("'canmount' property is set to 'noauto'")]
    Noauto,
    /// Somebody who may not mount chose the mount point, and nobody named this dataset.
    #[error("a user who may not mount set its mountpoint; name the file system, or set the mountpoint")]
    PlacedByUser,
    /// A receive fills it, or has broken off.
    #[error("it was not received to the end")]
    Unfinished,
    /// Its key is not loaded.
    #[error("encryption key not loaded")]
    Key,
}

/// How a dataset is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // properties of the same names
pub struct Plan {
    pub dir: PathBuf,
    /// The directory follows from the dataset's name: it goes with the dataset, if it is empty.
    pub is_derived: bool,
    /// A user who may not mount chose the directory.
    pub is_users_place: bool,
    pub read_only: bool,
    pub exec: bool,
    pub setuid: bool,
    pub devices: bool,
    pub overlay: bool,
}

impl Plan {
    /// What a dataset's properties say. `root` goes in front of the mount point; `auto`: nobody named this
    /// dataset.
    ///
    /// # Errors
    /// They can't be read.
    #[boxed]
    pub async fn of(
        dataset: &Dataset,
        root: Option<&Path>,
        auto: bool,
    ) -> Result<Result<Plan, Unmountable>, DatasetError> {
        if dataset.is_snapshot() || dataset.kind().await? != DatasetKind::Filesystem {
            return Ok(Err(Unmountable::Kind));
        }
        if dataset.phys().is_inconsistent() {
            return Ok(Err(Unmountable::Unfinished));
        }
        let names = ["canmount", "readonly", "exec", "setuid", "devices", "overlay"];
        let [canmount, read_only, exec, setuid, devices, overlay] = dataset.numbers(names).await?;
        match canmount {
            0 => return Ok(Err(Unmountable::CanmountOff)),
            2 if auto => return Ok(Err(Unmountable::Noauto)),
            _ => {}
        }
        let mut place =
            dataset.properties_of(&|name| name == "mountpoint" || name == PLACED_BY_PROPERTY).await?;
        let placed_by = place.pop_if(|property| property.name == PLACED_BY_PROPERTY);
        let (mountpoint, source) = match place.pop() {
            Some(Property { value: Value::Text(text), source, .. }) => (text, source),
            _ => return Ok(Err(Unmountable::None)),
        };
        match &*mountpoint {
            "none" => return Ok(Err(Unmountable::None)),
            "legacy" => return Ok(Err(Unmountable::Legacy)),
            _ => {}
        }
        let is_users_place = placed_by.is_some_and(|placed_by| placed_by.source == source);
        if auto && is_users_place {
            return Ok(Err(Unmountable::PlacedByUser));
        }
        if dataset.key_status().await? == KeyStatus::Unavailable {
            return Ok(Err(Unmountable::Key));
        }
        let dir = match root {
            Some(root) => root.join(mountpoint.trim_start_matches('/')),
            None => PathBuf::from(&*mountpoint),
        };
        Ok(Ok(Plan {
            dir,
            is_users_place,
            is_derived: matches!(source, Source::Default | Source::Inherited(_)),
            read_only: read_only == 1,
            exec: exec == 1,
            setuid: setuid == 1,
            devices: devices == 1,
            overlay: overlay == 1,
        }))
    }
}
