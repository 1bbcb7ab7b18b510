//! Errors of a receive, in OpenZFS's words.

use cenote_object::DatasetError;

use crate::error::StreamError;

/// A stream was not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The stream is invalid.
    #[error("{what}: {source}")]
    Stream {
        /// The operation: `cannot receive`, and the kind of stream.
        what: &'static str,
        /// The defect.
        source: StreamError,
    },
    /// The stream is valid, but not for this pool or dataset.
    #[error("{what}: {why}")]
    Refused {
        /// The operation.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// The stream broke off, and the received part is kept.
    #[error(
        "{what}: checksum mismatch or incomplete stream.\nPartially received snapshot is saved.\n\
         A resuming stream can be generated on the sending system by running:\n    zfs send -t {token}"
    )]
    Saved {
        /// The operation.
        what: &'static str,
        /// The defect.
        source: StreamError,
        /// Tells the sender where to resume.
        token: String,
    },
    /// The destination exists.
    #[error("cannot restore to {name}: destination already exists")]
    Exists {
        /// The snapshot, or the file system or volume.
        name: String,
    },
    /// The pool can't be changed.
    #[error("{what}: {source}")]
    Pool {
        /// The operation.
        what: &'static str,
        /// The cause.
        source: DatasetError,
    },
}

/// Result of receiving.
pub type Result<T, E = ReceiveError> = std::result::Result<T, E>;

/// The operation, if no more is known.
pub(super) const RECEIVE: &str = "cannot receive";

impl ReceiveError {
    pub(super) fn of_stream(source: StreamError) -> ReceiveError {
        ReceiveError::Stream { what: RECEIVE, source }
    }

    pub(super) fn refused(what: &'static str, why: impl Into<String>) -> ReceiveError {
        ReceiveError::Refused { what, why: why.into() }
    }

    pub(super) fn of_task(what: &'static str, error: DatasetError) -> ReceiveError {
        match error {
            DatasetError::Unsuitable { why, .. } => ReceiveError::refused(what, &*why),
            DatasetError::DatasetExists { name } => ReceiveError::Exists { name: name.to_string() },
            DatasetError::OverQuota { .. } => {
                ReceiveError::refused(what, "destination space quota exceeded.")
            }
            source => ReceiveError::Pool { what, source },
        }
    }
}

impl From<DatasetError> for ReceiveError {
    fn from(error: DatasetError) -> ReceiveError {
        ReceiveError::of_task(RECEIVE, error)
    }
}
