//! Errors of the lab: their object, and the next step for the user.

use std::io;
use std::path::PathBuf;

/// Results of this crate.
pub type Result<T> = std::result::Result<T, LabError>;

/// Failure in the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The system refused an operation.
    #[error("{what}: {source}")]
    Io {
        /// Action and its object.
        what: String,
        /// System's error.
        source: io::Error,
    },
    /// A job file that cannot be parsed.
    #[error("{file}:{line}: {what}")]
    JobFile {
        /// Path of the job file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Mistake, and how to fix it.
        what: String,
    },
    /// Refused as unsafe or impossible; the text gives the reason and an alternative.
    #[error("{0}")]
    Refused(String),
    /// Called incorrectly; the text explains the correct use.
    #[error("{0}")]
    Misused(String),
    /// Data read back differ from the data written.
    #[error("{path}: data differ at byte {offset}: {what}")]
    Verify {
        /// File or device.
        path: PathBuf,
        /// Position in bytes.
        offset: u64,
        /// Description of the data found.
        what: String,
    },
    /// A program failed, or its output cannot be parsed.
    #[error("{program}: {what}")]
    Program {
        /// Name of the program.
        program: String,
        /// Output, or the output expected.
        what: String,
    },
    /// A result folder that cannot be read.
    #[error("{path}: {what}")]
    Result {
        /// Folder, or a file in it.
        path: PathBuf,
        /// The defect.
        what: String,
    },
    /// The user stopped the work.
    #[error("interrupted")]
    Interrupted,
}

impl LabError {
    /// A system error; `what` names the action and its object.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::Io { what, source }
    }
}
