//! What can go wrong above objects: one flat enum. Where an object was damaged is said by [`FsError::Dataset`].

use cenote_dataset::DatasetError;
use cenote_format::FormatError;
use cenote_format::units::ObjectId;

/// An error of the POSIX layer.
#[derive(Debug, Clone, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum FsError {
    /// The layer below could not give an object, a block or a ZAP entry.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The object set is not a file system (or not a volume, where one was meant).
    #[error("the object set is not a {wanted}; it cannot be opened as one")]
    WrongKind { wanted: &'static str },
    /// The master node lacks what every file system has.
    #[error("the file system's master node has no {name}; try an older transaction group")]
    MasterNode { name: &'static str },
    /// A newer ZPL than 1 to 5.
    #[error("file system version {version} is not known (1 to 5 are)")]
    Version { version: u64 },
    /// Bonus or spill attributes that contradict themselves.
    #[error("attributes {why}")]
    Attributes { why: &'static str },
    /// Bonus or spill attributes that do not decode.
    #[error(transparent)]
    BadAttributes(#[from] FormatError),
    /// The same, and of which object.
    #[error("object {object}: {source}")]
    Object { object: ObjectId, source: Box<FsError> },
    /// A structure within an object that does not decode.
    #[error("object {object}: {source}")]
    Format { object: ObjectId, source: FormatError },
    /// No object, name or path of that kind.
    #[error("object {object} does not exist")]
    NoObject { object: ObjectId },
    /// A component of a path is missing.
    #[error("{path}: no such file or directory")]
    NotFound { path: String },
    /// A component of a path that is not a directory.
    #[error("{path}: not a directory")]
    NotDirectory { path: String },
    /// More symbolic links than any sane path has, or a cycle of them.
    #[error("{path}: too many levels of symbolic links")]
    LinkLoop { path: String },
    /// An object that is a file but not a symbolic link.
    #[error("object {object} is not a symbolic link")]
    NotLink { object: ObjectId },
    /// Parents that never lead to the root.
    #[error("object {object} cannot be reached from the root; its parents are damaged or unlinked")]
    Orphan { object: ObjectId },
    /// The intent log asks for something that the tree contradicts.
    #[error("intent log record {sequence}: {why}")]
    Replay { sequence: u64, why: &'static str },
}

/// Result of this crate.
pub type Result<T, E = FsError> = std::result::Result<T, E>;

impl FsError {
    /// What lies on the pool is damaged (as opposed to a wrong name, a missing key or a version not known).
    pub fn is_damage(&self) -> bool {
        match self {
            FsError::Dataset(error) => error.is_damage(),
            FsError::Object { source, .. } => source.is_damage(),
            FsError::MasterNode { .. }
            | FsError::Attributes { .. }
            | FsError::BadAttributes(_)
            | FsError::Format { .. }
            | FsError::Orphan { .. } => true,
            _ => false,
        }
    }

    /// Adds the object that the error is about.
    pub(crate) fn of(self, object: ObjectId) -> FsError {
        match self {
            FsError::Attributes { .. } | FsError::BadAttributes(_) => {
                FsError::Object { object, source: Box::new(self) }
            }
            other => other,
        }
    }
}
