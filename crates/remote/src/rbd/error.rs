//! Errors of images: one flat enum.

use std::io;

/// Why an image can't be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum RbdError {
    #[error("Ceph's client library is missing: install librbd1 ({why})")]
    NoLibrary { why: String },
    #[error("Ceph's client library is too old: Ceph 14 or newer is needed ({why})")]
    OldLibrary { why: String },
    #[error("a name contains a zero byte")]
    Name,
    #[error("Ceph's configuration can't be read: {0}; name it with ?conf=PATH")]
    Conf(io::Error),
    #[error("Ceph's configuration does not take {name}: {source}")]
    Setting { name: &'static str, source: io::Error },
    #[error(
        "cannot connect to the Ceph cluster: {0}; are its monitors running, and is the user's keyring here?"
    )]
    Connect(io::Error),
    #[error("Ceph's pool can't be opened: {0}")]
    Pool(io::Error),
    #[error("the image can't be opened: {0}")]
    Image(io::Error),
    #[error(
        "the image lacks the feature exclusive-lock, without which two machines could write it: `rbd feature \
         enable POOL/IMAGE exclusive-lock`"
    )]
    NoLock,
    #[error("{what}: {source}")]
    Call { what: &'static str, source: io::Error },
    #[error("the Ceph cluster has not answered for {0} s")]
    Silent(u64),
}

/// A call's result: an error if negative.
pub(super) fn checked(result: i64) -> io::Result<u64> {
    u64::try_from(result).map_err(|_| {
        let number = i32::try_from(-result).unwrap_or(libc::EIO);
        match number {
            libc::ETIMEDOUT => io::Error::from(io::ErrorKind::TimedOut),
            _ => io::Error::from_raw_os_error(number),
        }
    })
}

/// As [`checked`], naming the call.
pub(super) fn done(what: &'static str, result: i64) -> Result<u64, RbdError> {
    checked(result).map_err(|source| RbdError::Call { what, source })
}

/// Whether an error means that another client has this one's lock, or that the cluster refuses this client.
/// `EBLOCKLISTED` is `ESHUTDOWN`.
pub(super) fn is_fenced(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESHUTDOWN | libc::EROFS))
}
