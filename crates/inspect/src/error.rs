//! Errors that prevent a scan, verification or rescue as a whole.
//!
//! Damage found is a result, not an error: it is reported and the work continues.
//!
//! Each layer's error contains that of the layer below unchanged, so every cause has one form: `PoolError` in
//! `DatasetError` in `FsError` in [`InspectError`].

use std::sync::Arc;

use cenote_fs::FsError;
use cenote_object::DatasetError;
use cenote_pool::PoolError;

/// Result of this layer.
pub type Result<T, E = InspectError> = std::result::Result<T, E>;

/// An error of this layer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InspectError {
    /// From the file-system layer or those below it.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A file read in part: the bytes missing, in the format of a manifest.
    #[error("parts of its content can't be read: {unreadable}")]
    Content {
        /// The hash with its unreadable ranges, `EIO:OFFSET+LENGTH;...|HASH`.
        unreadable: String,
    },
    /// The request is invalid.
    #[error("{0}")]
    Request(String),
    /// A pool has no older state to rewind to.
    #[error(
        "pool '{pool}' can't be rewound: none of the {states} states that its uberblocks lead to (txg \
         {oldest} to {newest}) is intact; the newest: {why}. `cenote rescue {pool} FOLDER` saves what is \
         still readable"
    )]
    NoWholeState {
        /// The pool's name.
        pool: String,
        /// Number of states tried.
        states: usize,
        /// The txg of the oldest.
        oldest: u64,
        /// The txg of the newest.
        newest: u64,
        /// The defect of the newest.
        why: String,
    },
    /// The rewind target has lost blocks of files.
    #[error(
        "pool '{pool}': the newest state with intact metadata is txg {txg}, but its files have lost blocks \
         ({blocks}). `cenote zpool import -FX {pool}` rewinds to it anyway, \
         `cenote verify --txg {txg} {pool}` lists the files"
    )]
    FilesDamaged {
        /// The pool's name.
        pool: String,
        /// The state's txg.
        txg: u64,
        /// Blocks without a readable copy.
        blocks: u64,
    },
    /// A file or stream outside the pool could not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// The file or stream.
        what: String,
        /// The system's error.
        source: Arc<std::io::Error>,
    },
}

impl InspectError {
    /// An error on a file or stream outside the pool.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> InspectError {
        let what = what.into();
        move |source| InspectError::Io { what, source: Arc::new(source) }
    }

    /// The dataset layer's error, if this is one.
    pub fn dataset(&self) -> Option<&DatasetError> {
        match self {
            InspectError::Fs(FsError::Dataset(error)) => Some(error),
            _ => None,
        }
    }

    /// Whether data on the pool is damaged (rather than a bad request, a missing key or a full disk).
    pub fn is_damage(&self) -> bool {
        match self {
            InspectError::Fs(error) => error.is_damage(),
            InspectError::Content { .. }
            | InspectError::NoWholeState { .. }
            | InspectError::FilesDamaged { .. } => true,
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
