//! Why a scan, a verification or a rescue could not be done as a whole.
//!
//! Damage that is found is a result, not an error: it is reported and the work goes on.

use std::sync::Arc;

use cenote_dataset::DatasetError;
use cenote_fs::FsError;
use cenote_pool::PoolError;

/// Result of this layer.
pub type Result<T, E = InspectError> = std::result::Result<T, E>;

/// An error of this layer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InspectError {
    /// From the pool layer.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// From the dataset layer.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// From the file-system layer.
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
    /// Results could not be written.
    #[error("{what}: {source}")]
    Output {
        /// The file or stream.
        what: String,
        /// The system's answer.
        source: Arc<std::io::Error>,
    },
}

impl InspectError {
    /// An error of writing results.
    pub fn output(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> InspectError {
        let what = what.into();
        move |source| InspectError::Output { what, source: Arc::new(source) }
    }

    /// Data on the pool are damaged (as opposed to a wrong request, a missing key or a full disk).
    pub fn is_damage(&self) -> bool {
        match self {
            InspectError::Pool(error) => error.is_damage(),
            InspectError::Dataset(error) => error.is_damage(),
            InspectError::Fs(error) => error.is_damage(),
            InspectError::Content { .. } => true,
            InspectError::Request(_) | InspectError::Output { .. } => false,
        }
    }
}
