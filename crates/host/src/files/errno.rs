//! Errors as errno values.

use cenote_fs::FsError;
use cenote_fuse::Errno;
use cenote_object::DatasetError;

/// The errno of a file system error.
pub fn errno(error: &FsError) -> Errno {
    if let Some(refusal) = error.refusal() {
        return Errno::from_raw_os_error(refusal.errno());
    }
    match error {
        FsError::NotFound { .. } | FsError::NoObject { .. } => Errno::NOENT,
        FsError::NotDirectory { .. } => Errno::NOTDIR,
        FsError::LinkLoop { .. } => Errno::LOOP,
        FsError::NotLink { .. } => Errno::INVAL,
        FsError::Dataset(error) => errno_below(error),
        _ => Errno::IO,
    }
}

/// The errno of a dataset error.
pub fn errno_below(error: &DatasetError) -> Errno {
    match error {
        DatasetError::NoSpace { .. } => Errno::NOSPC,
        DatasetError::OverQuota { .. } | DatasetError::OverLimit { .. } => Errno::DQUOT,
        _ => Errno::IO,
    }
}
