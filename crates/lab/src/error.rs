//! Errors of the lab: what they concern, and what to do next.

use std::io;
use std::path::PathBuf;

/// Results of this crate.
pub type Result<T> = std::result::Result<T, LabError>;

/// Why something in the lab failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The system refused an operation.
    #[error("{what}: {source}")]
    Io {
        /// The action and its object.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// A job file that cannot be parsed.
    #[error("{file}:{line}: {what}")]
    JobFile {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it, and how to fix it.
        what: String,
    },
    /// Refused, for safety or because it cannot work; the text says why and what to do instead.
    #[error("{0}")]
    Refused(String),
    /// Called incorrectly; the text says how to do it.
    #[error("{0}")]
    Misused(String),
    /// Data read back differ from what was written.
    #[error("{path}: data differ at byte {offset}: {what}")]
    Verify {
        /// The file or device.
        path: PathBuf,
        /// Where, in bytes.
        offset: u64,
        /// What was found there.
        what: String,
    },
    /// A program failed, or its output cannot be parsed.
    #[error("{program}: {what}")]
    Program {
        /// Its name.
        program: String,
        /// What it printed, or what was expected of it.
        what: String,
    },
    /// A result folder that cannot be read.
    #[error("{path}: {what}")]
    Result {
        /// The folder or a file in it.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The work was asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl LabError {
    /// A system error about `what`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::Io { what, source }
    }
}
