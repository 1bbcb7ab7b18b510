//! Messages of `zfs` and `zpool` for operations that fail: `cannot create 'tank/a': dataset already exists`.
//!
//! Source: OpenZFS `libzfs_util.c` (`zfs_standard_error`); its wording is used where it has one.

use cenote_object::DatasetError;

use crate::error::ControlError;

/// Turns an engine error into the reason why an operation failed.
pub fn cannot(what: impl std::fmt::Display) -> impl FnOnce(DatasetError) -> ControlError {
    move |error| match why_not(&error) {
        Some(why) => ControlError::Refused(format!("cannot {what}: {why}")),
        // Damage and failing devices are not the fault of the request.
        None => error.into(),
    }
}

/// The reason why a request is refused; `None` for damage and failing devices.
pub fn why_not(error: &DatasetError) -> Option<String> {
    Some(match error {
        DatasetError::NoDataset { .. } => "dataset does not exist".into(),
        DatasetError::DatasetExists { name } if name.contains('#') => "bookmark exists".into(),
        DatasetError::DatasetExists { .. } => "dataset already exists".into(),
        DatasetError::Busy { why, .. } if why.starts_with("it's being held") => why.to_string(),
        DatasetError::Busy { why, .. } => format!("dataset is busy: {why}"),
        DatasetError::NoSpace { needed_bytes, available_bytes, .. } => {
            format!("out of space: {needed_bytes} bytes are needed, {available_bytes} available")
        }
        DatasetError::NoCheckpoint { .. } => "checkpoint does not exist".into(),
        DatasetError::OverQuota { .. } => "out of space".into(),
        DatasetError::OverLimit { limit, .. } => {
            format!("{limit} is reached; `zfs get -r {limit}` shows where")
        }
        DatasetError::Suspended { .. } => "pool I/O is currently suspended".into(),
        DatasetError::BadName { why, .. }
        | DatasetError::BadProperty { why, .. }
        | DatasetError::Unsuitable { why, .. } => why.to_string(),
        _ => return None,
    })
}
