//! Error numbers: their names in programs, and the number of each refusal.
//!
//! Source: OpenZFS `zcp_global.c` (`errno_globals`).

use cenote_object::DatasetError;

/// Global names of error numbers.
pub(crate) const NAMES: [(&str, i32); 40] = [
    ("EPERM", libc::EPERM),
    ("ENOENT", libc::ENOENT),
    ("ESRCH", libc::ESRCH),
    ("EINTR", libc::EINTR),
    ("EIO", libc::EIO),
    ("ENXIO", libc::ENXIO),
    ("E2BIG", libc::E2BIG),
    ("ENOEXEC", libc::ENOEXEC),
    ("EBADF", libc::EBADF),
    ("ECHILD", libc::ECHILD),
    ("EAGAIN", libc::EAGAIN),
    ("ENOMEM", libc::ENOMEM),
    ("EACCES", libc::EACCES),
    ("EFAULT", libc::EFAULT),
    ("ENOTBLK", libc::ENOTBLK),
    ("EBUSY", libc::EBUSY),
    ("EEXIST", libc::EEXIST),
    ("EXDEV", libc::EXDEV),
    ("ENODEV", libc::ENODEV),
    ("ENOTDIR", libc::ENOTDIR),
    ("EISDIR", libc::EISDIR),
    ("EINVAL", libc::EINVAL),
    ("ENFILE", libc::ENFILE),
    ("EMFILE", libc::EMFILE),
    ("ENOTTY", libc::ENOTTY),
    ("ETXTBSY", libc::ETXTBSY),
    ("EFBIG", libc::EFBIG),
    ("ENOSPC", libc::ENOSPC),
    ("ESPIPE", libc::ESPIPE),
    ("EROFS", libc::EROFS),
    ("EMLINK", libc::EMLINK),
    ("EPIPE", libc::EPIPE),
    ("EDOM", libc::EDOM),
    ("ERANGE", libc::ERANGE),
    ("EDEADLK", libc::EDEADLK),
    ("ENOLCK", libc::ENOLCK),
    ("ECANCELED", libc::ECANCELED),
    ("ENOTSUP", libc::ENOTSUP),
    ("EDQUOT", libc::EDQUOT),
    ("ENAMETOOLONG", libc::ENAMETOOLONG),
];

/// The number of a refusal; `None`: it is none.
pub(crate) fn of(error: &DatasetError) -> Option<i32> {
    Some(match error {
        DatasetError::NoDataset { .. } => libc::ENOENT,
        DatasetError::DatasetExists { .. } => libc::EEXIST,
        DatasetError::BadName { name, .. } if name.len() > cenote_dataset::name::MAX_NAME_BYTES => {
            libc::ENAMETOOLONG
        }
        DatasetError::Busy { .. } => libc::EBUSY,
        DatasetError::NoSpace { .. } => libc::ENOSPC,
        DatasetError::OverQuota { .. } | DatasetError::OverLimit { .. } => libc::EDQUOT,
        DatasetError::KeyMissing { .. } | DatasetError::WrongKey { .. } => libc::EACCES,
        DatasetError::NextTxg { .. } => libc::EAGAIN,
        refusal if refusal.is_refusal() => libc::EINVAL,
        _ => return None,
    })
}
