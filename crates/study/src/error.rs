//! Why a study ends without an answer.

use cenote_fs::FsError;
use cenote_object::DatasetError;
use cenote_policy::trace::TraceError;
use cenote_pool::{BadSetting, PoolError};
use cenote_runtime::JoinError;

/// What a study gives.
pub type Result<T> = std::result::Result<T, StudyError>;

/// Why it ends.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A trace can't be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A trace says nothing about a cache.
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
    /// A client of a modelled pool ended before its load.
    #[error(transparent)]
    Client(#[from] JoinError),
    /// A cache device does not take a setting.
    #[error(transparent)]
    Setting(#[from] BadSetting),
    /// A modelled pool lacks what the study has put into it.
    #[error("{0}")]
    Bench(&'static str),
}
