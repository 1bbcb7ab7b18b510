//! Why something was not received: OpenZFS's sentences.

use cenote_object::DatasetError;

use crate::error::StreamError;

/// A stream was not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The stream is wrong.
    #[error("{what}: {source}")]
    Stream {
        /// What was tried: `cannot receive`, and what kind of stream.
        what: &'static str,
        /// What is wrong.
        source: StreamError,
    },
    /// The stream is right, but not for this pool or dataset.
    #[error("{what}: {why}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// The stream broke off, and what has come is kept.
    #[error(
        "{what}: checksum mismatch or incomplete stream.\nPartially received snapshot is saved.\n\
         A resuming stream can be generated on the sending system by running:\n    zfs send -t {token}"
    )]
    Saved {
        /// What was tried.
        what: &'static str,
        /// What is wrong.
        source: StreamError,
        /// Tells the sender where to go on.
        token: String,
    },
    /// Something of the name is there already.
    #[error("cannot restore to {name}: destination already exists")]
    Exists {
        /// The snapshot, or the file system or volume.
        name: String,
    },
    /// The pool can't be changed.
    #[error("{what}: {source}")]
    Pool {
        /// What was tried.
        what: &'static str,
        /// What is wrong.
        source: DatasetError,
    },
}

/// Result of receiving.
pub type Result<T, E = ReceiveError> = std::result::Result<T, E>;

/// What is tried when nothing more is known.
pub(super) const RECEIVE: &str = "cannot receive";

impl ReceiveError {
    pub(super) fn of_stream(source: StreamError) -> ReceiveError {
        ReceiveError::Stream { what: RECEIVE, source }
    }

    pub(super) fn refused(what: &'static str, why: impl Into<String>) -> ReceiveError {
        ReceiveError::Refused { what, why: why.into() }
    }

    /// What a task says.
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
