//! Errors of the layers above objects, in one flat enum. [`FsError::Dataset`] says where an object was
//! damaged.

use cenote_format::FormatError;
use cenote_format::units::ObjectId;
use cenote_object::DatasetError;

/// An error of the POSIX layer.
#[derive(Debug, Clone, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum FsError {
    /// The layer below could not deliver an object, a block or a ZAP entry.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The object set is not a file system (or not a volume, if one was expected).
    #[error("the object set is not a {wanted}; it cannot be opened as one")]
    WrongKind { wanted: &'static str },
    /// The master node lacks a mandatory entry.
    #[error("the file system's master node has no {name}; try an older transaction group")]
    MasterNode { name: &'static str },
    /// The version is newer than ZPL 1 to 5.
    #[error("unknown file system version {version} (1 to 5 are known)")]
    Version { version: u64 },
    /// Bonus or spill attributes that contradict themselves.
    #[error("attributes {why}")]
    Attributes { why: &'static str },
    /// Bonus or spill attributes that do not decode.
    #[error(transparent)]
    BadAttributes(#[from] FormatError),
    /// The same, with the object.
    #[error("object {object}: {source}")]
    Object { object: ObjectId, source: Box<FsError> },
    /// A structure within an object that does not decode.
    #[error("object {object}: {source}")]
    Format { object: ObjectId, source: FormatError },
    /// No such object.
    #[error("object {object} does not exist")]
    NoObject { object: ObjectId },
    /// A component of a path is missing.
    #[error("{path}: no such file or directory")]
    NotFound { path: String },
    /// A component of a path that is not a directory.
    #[error("{path}: not a directory")]
    NotDirectory { path: String },
    /// Too many symbolic links, or a cycle of them.
    #[error("{path}: too many levels of symbolic links")]
    LinkLoop { path: String },
    /// A file, not a symbolic link.
    #[error("object {object} is not a symbolic link")]
    NotLink { object: ObjectId },
    /// Parents that never lead to the root.
    #[error("object {object} cannot be reached from the root; its parents are damaged or unlinked")]
    Orphan { object: ObjectId },
    /// An operation that POSIX does not allow in this situation.
    #[error("{}: {why}", place(*object, name.as_deref()))]
    Refused { why: Refusal, object: ObjectId, name: Option<Box<str>> },
    /// An intent log record contradicts the tree.
    #[error("intent log record {sequence}: {why}")]
    Replay { sequence: u64, why: &'static str },
}

/// Why an operation was refused; each has its errno in Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages explain them
pub enum Refusal {
    #[error("operation not permitted")]
    NotPermitted = 1,
    #[error("no such file or directory")]
    NotFound = 2,
    #[error("resource temporarily unavailable")]
    Again = 11,
    #[error("file exists")]
    Exists = 17,
    #[error("invalid cross-device link")]
    CrossDevice = 18,
    #[error("not a directory")]
    NotDirectory = 20,
    #[error("is a directory")]
    IsDirectory = 21,
    #[error("invalid argument")]
    Invalid = 22,
    #[error("file too large")]
    TooLarge = 27,
    #[error("no space left on device")]
    NoSpace = 28,
    #[error("read-only file system")]
    ReadOnly = 30,
    #[error("too many links")]
    TooManyLinks = 31,
    #[error("file name too long")]
    NameTooLong = 36,
    #[error("directory not empty")]
    NotEmpty = 39,
    #[error("no data available")]
    NoData = 61,
    #[error("invalid or incomplete multibyte character")]
    BadText = 84,
    #[error("operation not supported")]
    NotSupported = 95,
    #[error("disk quota of its user, group or project exceeded; see `zfs userspace`")]
    Quota = 122,
}

impl Refusal {
    /// The error for an object.
    pub fn of(self, object: ObjectId) -> FsError {
        FsError::Refused { why: self, object, name: None }
    }

    /// The error for a name in a directory.
    pub fn named(self, dir: ObjectId, name: &[u8]) -> FsError {
        let name = Some(String::from_utf8_lossy(name).into());
        FsError::Refused { why: self, object: dir, name }
    }

    /// The Linux errno.
    pub fn errno(self) -> i32 {
        self as i32
    }
}

fn place(object: ObjectId, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("'{name}' in directory {object}"),
        None => format!("object {object}"),
    }
}

/// Result of this crate.
pub type Result<T, E = FsError> = std::result::Result<T, E>;

impl FsError {
    /// Why an operation was refused, if it was.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            FsError::Refused { why, .. } => Some(*why),
            FsError::NoObject { .. } => Some(Refusal::NotFound),
            FsError::Dataset(DatasetError::NoSpace { .. }) => Some(Refusal::NoSpace),
            FsError::Dataset(DatasetError::OverQuota { .. }) => Some(Refusal::Quota),
            _ => None,
        }
    }

    /// Whether data on the pool is damaged (rather than a wrong name, a missing key or an unknown version).
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

    /// Adds the object concerned.
    pub(crate) fn of(self, object: ObjectId) -> FsError {
        match self {
            FsError::Attributes { .. } | FsError::BadAttributes(_) => {
                FsError::Object { object, source: Box::new(self) }
            }
            other => other,
        }
    }
}
