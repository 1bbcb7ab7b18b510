//! What `zfs send` is asked for.

use cenote_dataset::Dataset;

use super::source::{Resume, SendFlags, Since};

/// Which streams are wanted.
#[derive(Debug, Clone)]
pub enum Extent {
    /// One stream, of a snapshot or of a file system or volume as it is on disk.
    One(Since),
    /// `-I`: one of each snapshot after `from`, a snapshot of the same file system or volume, up to this one;
    /// nothing: from the origin of a clone, or from nothing.
    All(Option<String>),
    /// `-R`: the same of all file systems and volumes below.
    Replica(Replica),
}

/// Options of a replication.
#[derive(Debug, Default, Clone)]
pub struct Replica {
    /// The snapshot, without the name of its file system, that the receiver has of all that had it then.
    pub from: Option<String>,
    /// `-I`: snapshots between are sent, too. Without `from` all are.
    pub between: bool,
    /// `-s`: what has not got the snapshot is left out.
    pub skip_missing: bool,
    /// `-X`: file systems and volumes that are left out, with all below.
    pub exclude: Vec<String>,
}

/// What `zfs send` is asked for.
#[derive(Debug, Clone)]
pub struct SendRequest {
    /// The snapshot; for [`Extent::One`], maybe a file system or volume.
    pub dataset: Dataset,
    /// Which streams.
    pub extent: Extent,
    /// What the receiver takes.
    pub flags: SendFlags,
    /// `-p`: properties.
    pub props: bool,
    /// `-b`: received properties rather than those in force.
    pub backup: bool,
    /// `-h`: holds.
    pub holds: bool,
    /// Where a single stream broke off (`-t`).
    pub resume: Resume,
    /// What was received of a snapshot is sent (`-S`).
    pub saved: bool,
}

/// What a sender should hear, although its send goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A file system or volume is younger than the snapshot (told only if details are wanted).
    Younger {
        /// Its name.
        dataset: String,
        /// The snapshot.
        snapshot: String,
    },
    /// A file system or volume has not got the snapshot, and is left out with all below.
    Skipped {
        /// Its name.
        dataset: String,
        /// The snapshot.
        snapshot: String,
    },
    /// A stream could not be made, because its source is missing. The send fails in the end.
    NoSource {
        /// The file system or volume.
        dataset: String,
        /// The snapshot.
        snapshot: String,
        /// The source.
        from: String,
    },
    /// The same, because its source is not earlier.
    NotEarlier {
        /// The file system or volume.
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
    /// What the receiver has.
    pub since: Since,
}
