//! Requests of `zfs send`.

use cenote_dataset::{Bookmark, Dataset};

use super::source::{Resume, SendFlags, Since};

/// The streams to send.
#[derive(Debug, Clone)]
pub enum Extent {
    /// One stream, of a snapshot or of a dataset's current state on disk.
    One(Since),
    /// `-I`: one for each snapshot after `from`, a snapshot of the same dataset, up to this one. `None`: from
    /// a clone's origin, or a full stream.
    All(Option<String>),
    /// `-R`: the same for all datasets below.
    Replica(Replica),
}

/// Options of a replication.
#[derive(Debug, Default, Clone)]
pub struct Replica {
    /// The receiver's snapshot (short name), in all datasets that had it then.
    pub from: Option<String>,
    /// `-I`: with the snapshots between; all without `from`.
    pub between: bool,
    /// `-s`: skip datasets without the snapshot.
    pub skip_missing: bool,
    /// `-X`: datasets to exclude, with all below.
    pub exclude: Vec<String>,
}

/// A request of `zfs send`.
#[derive(Debug, Clone)]
pub struct SendRequest {
    /// The snapshot; for [`Extent::One`], or a file system or volume.
    pub dataset: Dataset,
    /// The streams.
    pub extent: Extent,
    /// The receiver's abilities.
    pub flags: SendFlags,
    /// `-p`: properties.
    pub props: bool,
    /// `-b`: received properties instead of effective ones.
    pub backup: bool,
    /// `-h`: holds.
    pub holds: bool,
    /// `-U`: properties of encrypted datasets, whose blocks are sent in the clear.
    pub in_clear: bool,
    /// Position to resume a single stream (`-t`).
    pub resume: Resume,
    /// Send the received part of a snapshot (`-S`).
    pub saved: bool,
    /// Leave out the blocks that this redaction bookmark lists (`--redact`).
    pub redact: Option<Bookmark>,
}

/// A notice to the user; the send continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A dataset is younger than the snapshot (only in detailed output).
    Younger {
        /// Its name.
        dataset: String,
        /// The snapshot.
        snapshot: String,
    },
    /// A dataset lacks the snapshot, and is skipped with all below.
    Skipped {
        /// Its name.
        dataset: String,
        /// The snapshot.
        snapshot: String,
    },
    /// An encrypted dataset is sent in the clear, with its other properties.
    InClear {
        /// Its name.
        dataset: String,
    },
    /// A stream is missing, because its source is. The send fails in the end.
    NoSource {
        /// The dataset.
        dataset: String,
        /// The snapshot.
        snapshot: String,
        /// The source.
        from: String,
    },
    /// The same, because its source is not earlier.
    NotEarlier {
        /// The dataset.
        dataset: String,
        /// The snapshot.
        snapshot: String,
        /// The source.
        from: String,
    },
}

impl Notice {
    /// The send fails in the end.
    pub fn is_failure(&self) -> bool {
        matches!(self, Notice::NoSource { .. } | Notice::NotEarlier { .. })
    }
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Younger { dataset, snapshot } => {
                write!(f, "skipping dataset {dataset}: snapshot {snapshot} does not exist")
            }
            Notice::Skipped { dataset, snapshot } => write!(
                f,
                "WARNING: skipping dataset {dataset} and its children: snapshot {snapshot} does not exist"
            ),
            Notice::InClear { dataset } => write!(
                f,
                "WARNING: no-preserve-encryption flag set, sending dataset {dataset} without encryption"
            ),
            Notice::NoSource { dataset, snapshot, from } => write!(
                f,
                "WARNING: could not send {dataset}@{snapshot}:\n\
                 incremental source ({dataset}@{from}) does not exist"
            ),
            Notice::NotEarlier { dataset, snapshot, from } => write!(
                f,
                "WARNING: could not send {dataset}@{snapshot}:\n\
                 incremental source ({dataset}@{from}) is not earlier than it"
            ),
        }
    }
}

/// A stream of a plan.
#[derive(Debug, Clone)]
pub struct Step {
    /// The snapshot.
    pub dataset: Dataset,
    /// The receiver's state.
    pub since: Since,
}
