//! Whether and where to mount a dataset, by its properties.

use std::path::{Path, PathBuf};

use cenote_boxed::boxed;
use cenote_dataset::properties::{PLACED_BY_PROPERTY, Property, REDACTED_DATASETS, Source, Value};
use cenote_dataset::{Dataset, DatasetKind, KeyStatus};
use cenote_object::DatasetError;

/// Why a dataset is not mounted, in the words of `zfs mount`.
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
    /// `canmount=noauto`, and not requested by name.
    #[error("'canmount' property is set to 'noauto'")]
    Noauto,
    /// The mount point was set by a user not allowed to mount, and the dataset was not requested by name.
    #[error("a user who may not mount set its mountpoint; name the file system, or set the mountpoint")]
    PlacedByUser,
    /// Received redacted.
    #[error(
        "Dataset is not complete, was created by receiving a redacted zfs send stream.\n`zfs mount -f` \
         mounts it once the tunable zfs_allow_redacted_dataset_mount is 1"
    )]
    Redacted,
    /// Being received, or left by an interrupted receive.
    #[error("it was not received to the end")]
    Unfinished,
    /// Its key is not loaded.
    #[error("encryption key not loaded")]
    Key,
}

/// Whether a user asked for a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// All file systems are mounted.
    No,
    /// By name.
    ByName,
    /// By name, even with parts missing (`zfs mount -f`).
    Incomplete,
}

/// How to mount a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // properties of the same names
pub struct Plan {
    pub dir: PathBuf,
    /// Derived from the dataset's name, so removed with it if empty.
    pub is_derived: bool,
    /// Set by a user not allowed to mount.
    pub is_users_place: bool,
    pub read_only: bool,
    pub exec: bool,
    pub setuid: bool,
    pub devices: bool,
    pub overlay: bool,
}

impl Plan {
    /// Reads a dataset's properties. `root` is prepended to the mount point.
    ///
    /// # Errors
    /// They can't be read.
    #[boxed]
    pub async fn of(
        dataset: &Dataset,
        root: Option<&Path>,
        asked: Asked,
    ) -> Result<Result<Plan, Unmountable>, DatasetError> {
        if dataset.is_snapshot() || dataset.kind().await? != DatasetKind::Filesystem {
            return Ok(Err(Unmountable::Kind));
        }
        if dataset.phys().is_inconsistent() {
            return Ok(Err(Unmountable::Unfinished));
        }
        if asked != Asked::Incomplete && dataset.field(REDACTED_DATASETS).await?.is_some() {
            return Ok(Err(Unmountable::Redacted));
        }
        let names = ["canmount", "readonly", "exec", "setuid", "devices", "overlay"];
        let [canmount, read_only, exec, setuid, devices, overlay] = dataset.numbers(names).await?;
        match canmount {
            0 => return Ok(Err(Unmountable::CanmountOff)),
            2 if asked == Asked::No => return Ok(Err(Unmountable::Noauto)),
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
        if asked == Asked::No && is_users_place {
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
