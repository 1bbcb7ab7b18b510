//! Errors that end a study.

use cenote_fs::FsError;
use cenote_object::DatasetError;
use cenote_policy::trace::TraceError;
use cenote_pool::{BadSetting, PoolError};
use cenote_runtime::JoinError;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, StudyError>;

/// Reason why a study ended.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// Unreadable trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace has no requests.
    #[error("the trace has no requests")]
    Empty,
    /// From a modelled pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// From its datasets.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// From its files.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A client task ended early.
    #[error(transparent)]
    Client(#[from] JoinError),
    /// A cache device rejected a setting.
    #[error(transparent)]
    Setting(#[from] BadSetting),
    /// A modelled pool lacks data that the study wrote.
    #[error("{0}")]
    Bench(&'static str),
}
