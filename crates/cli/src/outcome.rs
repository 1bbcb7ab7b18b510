//! How a command ended: its exit status, and errors with what to try.
//!
//! What goes wrong below this crate is an [`InspectError`], whichever layer it comes from; a command adds only what is about the
//! command line and about finding pools.
//!
//! Exit status: 0 done, 1 failed, 2 misused, 3 damaged data found. A command that does many things
//! ends with the worst of what happened.

use std::io;
use std::process::ExitCode;

use cenote_dataset::DatasetError;
use cenote_fs::FsError;
use cenote_inspect::InspectError;
use cenote_pool::PoolError;

/// How a command ended, in order of gravity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All was done.
    Done,
    /// Something asked for was not done.
    Failed,
    /// The command line makes no sense.
    Misused,
    /// Damaged data was found.
    Damaged,
}

impl Outcome {
    /// The worse of two.
    pub fn and(self, other: Outcome) -> Outcome {
        self.max(other)
    }
}

/// Work that answers nothing did all, or it would be an error.
impl From<()> for Outcome {
    fn from((): ()) -> Outcome {
        Outcome::Done
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        ExitCode::from(match outcome {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::Misused => 2,
            Outcome::Damaged => 3,
        })
    }
}

/// Why a command failed. The text says what, where and what to try.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The pool can't be found among the disks.
    #[error("{0}")]
    NotFound(String),
    /// What was asked for can't be done; the text says what and why.
    #[error("{0}")]
    Refused(String),
    /// Too few of the pool's devices were found to open it.
    #[error(
        "pool '{pool}' is unavailable, as devices are missing; `cenote zpool import` shows which: {source}"
    )]
    DevicesMissing {
        /// The pool.
        pool: String,
        /// What could not be read for that reason.
        source: DatasetError,
    },
    /// The work was ended before its end; the text says why and what is left of it.
    #[error("{0}")]
    Stopped(String),
    /// From the engine, or from a file or stream outside of the pool.
    #[error(transparent)]
    Inspect(#[from] InspectError),
}

impl CliError {
    /// An error of a file or stream outside of the pool.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> CliError {
        let error = InspectError::io(what);
        move |source| error(source).into()
    }

    /// What the dataset layer said, if it comes from there.
    pub fn dataset(&self) -> Option<&DatasetError> {
        match self {
            CliError::Inspect(InspectError::Fs(FsError::Dataset(error))) => Some(error),
            _ => None,
        }
    }

    /// Tells of it on standard error, with the name of what it concerns unless it says that itself.
    pub fn tell(&self, name: &str) -> Outcome {
        let text = self.to_string();
        match text.contains(name) {
            true => eprintln!("cenote: {text}"),
            false => eprintln!("cenote: {name}: {text}"),
        }
        self.outcome()
    }

    /// The reader of our output went away.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, CliError::Inspect(InspectError::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The exit status that goes with it.
    pub fn outcome(&self) -> Outcome {
        match self {
            CliError::Usage(_) => Outcome::Misused,
            CliError::Inspect(error) if error.is_damage() => Outcome::Damaged,
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
