//! What goes wrong in the lab: with what it was about, and what to do next.

use std::io;
use std::path::PathBuf;

/// Results of this crate.
pub type Result<T> = std::result::Result<T, LabError>;

/// Why something in the lab could not be done.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The system refused an operation.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, to what.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A job file that can't be understood.
    #[error("{file}:{line}: {what}")]
    JobFile {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it, and what would be right.
        what: String,
    },
    /// Not done, for safety or because it makes no sense; the text says why and what to do instead.
    #[error("{0}")]
    Refused(String),
    /// What was read back is not what was written.
    #[error("{path}: data differ at byte {offset}: {what}")]
    Verify {
        /// The file or device.
        path: PathBuf,
        /// Where, in bytes.
        offset: u64,
        /// What was found there.
        what: String,
    },
    /// A program that was run failed, or said what can't be understood.
    #[error("{program}: {what}")]
    Program {
        /// Its name.
        program: String,
        /// What it said, or what was expected of it.
        what: String,
    },
    /// A result folder that can't be read.
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
    /// An error of the system, about `what`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::Io { what, source }
    }
}
