//! How a command ended: its exit status, and errors that say what to try next.
//!
//! Errors of all layers below this crate arrive as [`InspectError`]; commands add only errors about the
//! command line and about finding pools.
//!
//! Exit status: 0 done, 1 failed, 2 bad usage, 3 damaged data found, or a scan lacks datasets. A command that
//! does several things ends with the worst of their outcomes.

use std::io;
use std::process::ExitCode;

use cenote_fs::FsError;
use cenote_inspect::InspectError;
use cenote_object::DatasetError;
use cenote_pool::PoolError;

use crate::message::say_error;

/// How a command ended, mildest first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Everything was done.
    #[default]
    Done,
    /// Something that was asked for was not done.
    Failed,
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
            Outcome::Misused => 2,
            Outcome::Damaged => 3,
        }
    }

    /// The worse of two.
    pub fn and(self, other: Outcome) -> Outcome {
        self.max(other)
    }

    /// The outcome of finished work after printing its result. A reader that went away does not turn success
    /// into failure.
    pub fn printed(self, printed: Result<(), CliError>) -> Outcome {
        match printed {
            Err(error) if !error.is_broken_pipe() => self.and(error.say()),
            _ => self,
        }
    }
}

/// Work that returns nothing was done completely; otherwise it would have failed.
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

/// Why a command failed. The text says what failed, where, and what to try.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The pool is not on the disks searched.
    #[error("{0}")]
    NotFound(String),
    /// The request can't be carried out; the text says why.
    #[error("{0}")]
    Refused(String),
    /// Too few of the pool's devices were found to open it.
    #[error("pool '{pool}' is unavailable because devices are missing or cut short: {source}{notes}")]
    DevicesMissing {
        /// The pool's name.
        pool: String,
        /// The error that the missing devices caused.
        source: DatasetError,
        /// Problems with devices that are present (truncated, stale labels), one per line.
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
    /// The work was cut short; the text says why and what it leaves behind.
    #[error("{0}")]
    Stopped(String),
    /// From the engine, or from a file or stream outside the pool.
    #[error(transparent)]
    Inspect(#[from] InspectError),
}

impl CliError {
    /// An error on a file or stream outside the pool.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> CliError {
        let error = InspectError::io(what);
        move |source| error(source).into()
    }

    /// The dataset layer's error, if this is one.
    pub fn dataset(&self) -> Option<&DatasetError> {
        match self {
            CliError::Inspect(error) => error.dataset(),
            CliError::Corrupted { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Prints it on standard error.
    pub fn say(&self) -> Outcome {
        self.say_after("")
    }

    /// Prints it like [`CliError::tell`], but without advice, for commands that give that themselves.
    pub fn tell_cause(&self, name: &str) -> Outcome {
        let text = self.to_string();
        let name = if text.contains(name) { String::new() } else { format!("{name}: ") };
        say_error(format_args!("{name}{text}"), self.outcome().status());
        self.outcome()
    }

    fn say_after(&self, name: &str) -> Outcome {
        let advice = self.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
        say_error(format_args!("{name}{self}{advice}"), self.outcome().status());
        self.outcome()
    }

    /// The command to try next.
    fn advice(&self) -> Option<String> {
        Some(match self {
            CliError::DevicesMissing { notes, .. } if notes.is_empty() => {
                "`cenote zpool import` shows which".into()
            }
            CliError::Corrupted { pool, .. } => format!(
                "`cenote zpool status {pool}` says whether an older state opens, and how to return to it"
            ),
            CliError::Inspect(InspectError::Fs(error)) if error.is_damage() => {
                "`cenote verify` lists what else is damaged, `cenote rescue` copies the rest".into()
            }
            _ => return None,
        })
    }

    /// Prints it after the name of the object it concerns, unless the text contains that name already.
    pub fn tell(&self, name: &str) -> Outcome {
        if self.to_string().contains(name) {
            return self.say();
        }
        self.say_after(&format!("{name}: "))
    }

    /// Whether the pool waits for its devices.
    pub fn is_suspended(&self) -> bool {
        matches!(self.dataset(), Some(DatasetError::Suspended { .. }))
    }

    /// Whether the reader of our output went away.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(
            self,
            CliError::Inspect(InspectError::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe
        )
    }

    /// The exit status of this error.
    pub fn outcome(&self) -> Outcome {
        match self {
            CliError::Usage(_) => Outcome::Misused,
            CliError::Inspect(error) if error.is_damage() => Outcome::Damaged,
            CliError::Corrupted { .. } => Outcome::Damaged,
            CliError::NotFound(_)
            | CliError::Refused(_)
            | CliError::DevicesMissing { .. }
            | CliError::Stopped(_)
            | CliError::Inspect(_) => Outcome::Failed,
        }
    }
}

impl From<PoolError> for CliError {
    fn from(error: PoolError) -> CliError {
        InspectError::from(error).into()
    }
}

impl From<DatasetError> for CliError {
    fn from(error: DatasetError) -> CliError {
        InspectError::from(error).into()
    }
}

impl From<FsError> for CliError {
    fn from(error: FsError) -> CliError {
        InspectError::from(error).into()
    }
}
