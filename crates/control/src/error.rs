//! Outcomes of verbs, and errors with a hint of the next step.
//!
//! Errors of all layers below this crate arrive as [`InspectError`]; verbs add only errors about their
//! request and about finding pools.
//!
//! Exit status: 0 done, 1 failed, 2 bad usage, 3 damaged data found or datasets missing from a scan; 255 for
//! a send that can't be resumed, as scripts expect (OpenZFS returns -1). A verb that does several things ends
//! with its worst outcome.

pub mod refusal;

use std::io;
use std::process::ExitCode;

use cenote_fs::FsError;
use cenote_inspect::InspectError;
use cenote_object::DatasetError;
use cenote_pool::PoolError;

use crate::session::pool_of;

/// Outcomes of a verb, mildest first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Everything was done.
    #[default]
    Done,
    /// Part of the request was not done.
    Failed,
    /// The object of a resume token is gone.
    Unresumable,
    /// The command line is wrong.
    Misused,
    /// Damaged data was found.
    Damaged,
}

impl Outcome {
    /// The exit status.
    pub fn status(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::Unresumable => 255,
            Outcome::Misused => 2,
            Outcome::Damaged => 3,
        }
    }

    /// The outcome of an exit status.
    pub fn of_status(status: u8) -> Outcome {
        match status {
            0 => Outcome::Done,
            2 => Outcome::Misused,
            3 => Outcome::Damaged,
            255 => Outcome::Unresumable,
            _ => Outcome::Failed,
        }
    }

    /// The worse of two.
    pub fn and(self, other: Outcome) -> Outcome {
        self.max(other)
    }
}

/// Work without a result was complete; otherwise it would have failed.
impl From<()> for Outcome {
    fn from((): ()) -> Outcome {
        Outcome::Done
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        outcome.status().into()
    }
}

/// Why a verb failed: the failure, its place, and the next step.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The pool is not on the disks searched.
    #[error("{0}")]
    NotFound(String),
    /// The daemon has no such pool.
    #[error("cannot open '{pool}': no such pool\nimported: {imported}")]
    NoPool {
        /// Its name.
        pool: String,
        /// The names of all pools, for people.
        imported: String,
    },
    /// The request is impossible; the text says why.
    #[error("{0}")]
    Refused(String),
    /// The caller may look, and the request changes something or shows file contents.
    #[error("permission denied: this caller may look, but not change anything or read files")]
    MayOnlyLook,
    /// The token can't be used; the text says why.
    #[error("cannot resume send: {0}")]
    Unresumable(String),
    /// Too few of the pool's devices were found to open it.
    #[error("pool '{pool}' is unavailable because devices are missing or cut short: {source}{notes}")]
    DevicesMissing {
        /// The pool's name.
        pool: String,
        /// The error caused by the missing devices.
        source: DatasetError,
        /// Problems of present devices (truncated, stale labels), one per line.
        notes: String,
    },
    /// All needed devices are present, but the newest state can't be read.
    #[error("pool '{pool}' can't be opened because its metadata is corrupted: {source}")]
    Corrupted {
        /// The pool's name.
        pool: String,
        /// The error.
        source: DatasetError,
    },
    /// The work was interrupted; the text gives the cause and the resulting state.
    #[error("{0}")]
    Stopped(String),
    /// From the daemon that ran the verb.
    #[error("{text}")]
    Told {
        /// The daemon's text.
        text: String,
        /// How the verb ended.
        outcome: Outcome,
    },
    /// From the engine, or from a file or stream outside the pool.
    #[error(transparent)]
    Inspect(#[from] InspectError),
}

impl ControlError {
    /// An error on a file or stream outside the pool.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> ControlError {
        let error = InspectError::io(what);
        move |source| error(source).into()
    }

    /// The dataset layer's error, if this is one.
    pub fn dataset(&self) -> Option<&DatasetError> {
        match self {
            ControlError::Inspect(error) => error.dataset(),
            ControlError::Corrupted { source, .. } => Some(source),
            _ => None,
        }
    }

    /// The error of a verb of `zfs` on a dataset. Without its pool, a dataset does not exist: programs look
    /// for these words, as OpenZFS has them.
    #[must_use]
    pub fn of_dataset(self, name: &str) -> ControlError {
        match self {
            ControlError::NoPool { pool, imported } if pool_of(name) == pool => ControlError::NotFound(
                format!("cannot open '{name}': dataset does not exist\nimported pools: {imported}"),
            ),
            error => error,
        }
    }

    /// Its text and advice, prefixed with `name` unless the text contains it.
    pub fn text_about(&self, name: &str) -> String {
        let advice = self.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
        self.cause_about(name) + &advice
    }

    /// The same without advice, for verbs that give it themselves.
    pub fn cause_about(&self, name: &str) -> String {
        let text = self.to_string();
        if name.is_empty() || text.contains(name) { text } else { format!("{name}: {text}") }
    }

    /// The command to try next.
    fn advice(&self) -> Option<String> {
        Some(match self {
            ControlError::DevicesMissing { notes, .. } if notes.is_empty() => {
                "`cenote zpool import` shows which".into()
            }
            ControlError::Corrupted { pool, .. } => format!(
                "`cenote zpool status {pool}` says whether an older state opens, and how to return to it"
            ),
            ControlError::Inspect(InspectError::Fs(error)) if error.is_damage() => {
                "`cenote verify` lists what else is damaged, `cenote rescue` copies the rest".into()
            }
            _ => return None,
        })
    }

    /// Whether the pool waits for its devices.
    pub fn is_suspended(&self) -> bool {
        matches!(self.dataset(), Some(DatasetError::Suspended { .. }))
    }

    /// Whether the reader of our output went away.
    pub fn is_broken_pipe(&self) -> bool {
        match self {
            ControlError::Inspect(InspectError::Io { source, .. }) => {
                source.kind() == io::ErrorKind::BrokenPipe
            }
            _ => false,
        }
    }

    /// The exit status of this error.
    pub fn outcome(&self) -> Outcome {
        match self {
            ControlError::Usage(_) => Outcome::Misused,
            ControlError::Unresumable(_) => Outcome::Unresumable,
            ControlError::Told { outcome, .. } => *outcome,
            ControlError::Inspect(error) if error.is_damage() => Outcome::Damaged,
            ControlError::Corrupted { .. } => Outcome::Damaged,
            ControlError::NotFound(_)
            | ControlError::NoPool { .. }
            | ControlError::Refused(_)
            | ControlError::MayOnlyLook
            | ControlError::DevicesMissing { .. }
            | ControlError::Stopped(_)
            | ControlError::Inspect(_) => Outcome::Failed,
        }
    }
}

/// Errors that end work of the layer below.
impl From<ControlError> for InspectError {
    fn from(error: ControlError) -> InspectError {
        match error {
            ControlError::Inspect(error) => error,
            error => InspectError::Request(error.to_string()),
        }
    }
}

impl From<PoolError> for ControlError {
    fn from(error: PoolError) -> ControlError {
        InspectError::from(error).into()
    }
}

impl From<DatasetError> for ControlError {
    fn from(error: DatasetError) -> ControlError {
        InspectError::from(error).into()
    }
}

impl From<FsError> for ControlError {
    fn from(error: FsError) -> ControlError {
        InspectError::from(error).into()
    }
}
