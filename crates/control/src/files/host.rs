//! Files of the machine that the caller opens with its own rights for a verb.
//!
//! Idea: the caller opens all first. A failure to open is part of the request: the verb reports it at that
//! file.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cenote_inspect::copy::{Folder, Name};
use cenote_inspect::put::HostFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::remote::Failure;

/// A file of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Opened {
    /// Index in the request's files.
    At(usize),
    /// Open failure.
    Not(Failure),
}

impl Opened {
    /// Adds a file to a request's files.
    pub fn of(opened: Result<OwnedFd, ControlError>, files: &mut Vec<OwnedFd>) -> Opened {
        match opened {
            Ok(file) => {
                files.push(file);
                Opened::At(files.len() - 1)
            }
            Err(error) => Opened::Not(Failure::from(&error)),
        }
    }
}

impl From<Failure> for ControlError {
    fn from(Failure { text, status }: Failure) -> ControlError {
        ControlError::Told { text, outcome: Outcome::of_status(status) }
    }
}

/// Opens a file to copy; with `follow`, resolves a symbolic link.
///
/// # Errors
/// It does not exist, or may not be read.
pub fn open_source(path: &Path, shown: &Path, follow: bool) -> Result<OwnedFd, ControlError> {
    let opened = HostFile::open(path, follow).map_err(io::Error::from);
    opened.map(OwnedFd::from).map_err(ControlError::io(shown.display().to_string()))
}

/// Opens a destination folder.
///
/// # Errors
/// It does not exist, is no folder, or may not be read.
pub fn open_folder(path: &Path, shown: &Path) -> Result<OwnedFd, ControlError> {
    let opened = Folder::open(path).map_err(io::Error::from);
    opened.map(OwnedFd::from).map_err(ControlError::io(shown.display().to_string()))
}

/// Splits the path of a new file into folder and name.
///
/// # Errors
/// It has no name.
pub fn split_destination(path: &Path) -> Result<(&Path, Vec<u8>), ControlError> {
    let name = path.file_name().filter(|name| Name::new(name.as_bytes()).is_some());
    let name = name.ok_or_else(|| {
        ControlError::Usage(format!("{}: name a folder that exists or a new name", path.display()))
    })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok((folder.unwrap_or(Path::new(".")), name.as_bytes().to_vec()))
}

/// A file name in a request.
///
/// # Errors
/// It is invalid.
pub(crate) fn name(bytes: &[u8]) -> Result<Name, ControlError> {
    Name::new(bytes).ok_or_else(|| ControlError::Usage("this is no name of a file".into()))
}
