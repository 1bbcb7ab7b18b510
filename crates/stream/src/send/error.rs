//! Errors of a send.

use cenote_format::units::ObjectId;
use cenote_object::DatasetError;
use cenote_pool::PoolError;

use crate::StreamError;

/// A stream can't be made.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The dataset can't be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The dataset's metadata can't be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A block can't be read.
    #[error(
        "cannot send '{name}': object {object} at offset {offset}: {source}; `cenote verify` names the file"
    )]
    Block {
        /// The snapshot.
        name: String,
        /// The object.
        object: ObjectId,
        /// Offset in the object.
        offset: u64,
        /// The cause.
        source: PoolError,
    },
    /// The output failed.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The program is ending.
    #[error("the send was stopped")]
    Stopped,
    /// The source of an increment does not precede the snapshot.
    #[error("cannot send '{name}': '{from}' is not an earlier snapshot from the same fs")]
    NotEarlier {
        /// The snapshot.
        name: String,
        /// The source.
        from: String,
    },
    /// The bookmark has no redaction list, or is of another snapshot.
    #[error("not a redaction bookmark of this snapshot: {mark}")]
    NoRedaction {
        /// The bookmark.
        mark: String,
    },
    /// OpenZFS was interrupted while it made the bookmark.
    #[error("incomplete redaction bookmark provided")]
    IncompleteRedaction,
    /// The snapshot, or its source, is missing.
    #[error("cannot send '{name}': snapshot {missing} does not exist")]
    Missing {
        /// The requested snapshot.
        name: String,
        /// The missing one.
        missing: String,
    },
    /// Blocks of large directories can't be split.
    #[error("cannot send '{name}': it has directories in blocks of more than 128 KiB; send it with -L")]
    LargeMicrozap {
        /// The snapshot.
        name: String,
    },
    /// Keys in an old format, which no receiver takes raw.
    #[error("cannot send '{name}' raw: its keys are of an old format; send it without -w")]
    OldKeys {
        /// The snapshot.
        name: String,
    },
    /// Properties of an encrypted dataset require a raw stream.
    #[error(
        "cannot send {name}: encrypted dataset {encrypted} may not be sent with properties without the raw \
         flag"
    )]
    NeedsRaw {
        /// The requested snapshot.
        name: String,
        /// The dataset.
        encrypted: String,
    },
    /// Metadata in the other byte order, which would need conversion.
    #[error("cannot send '{name}': object {object} was written by a machine of the other byte order")]
    ForeignByteOrder {
        /// The snapshot.
        name: String,
        /// The object.
        object: ObjectId,
    },
    /// No receive was interrupted.
    #[error("cannot send '{name}': it has no partially received state")]
    NothingSaved {
        /// The dataset.
        name: String,
    },
    /// More snapshots and properties than a receiver takes.
    #[error(
        "cannot send '{name}': the size of the list of snapshots and properties is too large to be received \
         successfully; select a smaller number of snapshots to send"
    )]
    TooManyProperties {
        /// The requested snapshot.
        name: String,
    },
}

pub(super) type Result<T, E = SendError> = std::result::Result<T, E>;
