//! Why a scan, a verification or a rescue could not be done as a whole.
//!
//! Damage that is found is a result, not an error: it is reported and the work goes on.
//!
//! Each layer's error holds that of the layer below as it is, so there is one way from any cause to this error:
//! `PoolError` in `DatasetError` in `FsError` in [`InspectError`].

use std::sync::Arc;

use cenote_dataset::DatasetError;
use cenote_fs::FsError;
use cenote_pool::PoolError;

/// Result of this layer.
pub type Result<T, E = InspectError> = std::result::Result<T, E>;

/// An error of this layer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InspectError {
    /// From the file-system layer or those below it.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A file that was read in part: which bytes are not there, as in a manifest.
    #[error("parts of its content can't be read: {unreadable}")]
    Content {
        /// The hash with its unreadable ranges, `EIO:OFFSET+LENGTH;...|HASH`.
        unreadable: String,
    },
    /// What was asked for makes no sense.
    #[error("{0}")]
    Request(String),
    /// A file or stream outside of the pool could not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// The file or stream.
        what: String,
        /// The system's answer.
        source: Arc<std::io::Error>,
    },
}

impl InspectError {
    /// An error of a file or stream outside of the pool.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> InspectError {
        let what = what.into();
        move |source| InspectError::Io { what, source: Arc::new(source) }
    }

    /// Data on the pool are damaged (as opposed to a wrong request, a missing key or a full disk).
    pub fn is_damage(&self) -> bool {
        match self {
            InspectError::Fs(error) => error.is_damage(),
            InspectError::Content { .. } => true,
            InspectError::Request(_) | InspectError::Io { .. } => false,
        }
    }
}

impl From<DatasetError> for InspectError {
    fn from(error: DatasetError) -> InspectError {
        FsError::from(error).into()
    }
}

impl From<PoolError> for InspectError {
    fn from(error: PoolError) -> InspectError {
        DatasetError::from(error).into()
    }
}
