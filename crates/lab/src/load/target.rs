//! Targets: a folder on a mounted file system, a file, or a block device; and the checks before anything is
//! written.
//!
//! Invariants: in a folder, everything is written to one new sub-folder ([`Scratch`]), removed when the work
//! ends in any way. A file is written only if it exists, is regular, was named by the user and confirmed
//! twice; so is a block device that holds any data. A device in use (mounted, part of a pool or array, opened
//! exclusively) is always refused.

mod device;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{LabError, Result};

/// Prefix of the names of the lab's folders.
pub const SCRATCH_PREFIX: &str = "cenote-lab-";

/// Kind of target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// A folder on a mounted file system.
    Folder,
    /// A regular file.
    File,
    /// A block device.
    Device,
}

/// Storage to measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Name in reports.
    pub name: String,
    /// Canonical path.
    pub path: PathBuf,
    /// Folder, file or device.
    pub kind: TargetKind,
}

impl Target {
    /// Examines `path`. Work that writes sets `may_overwrite` (required for files, and for devices that hold
    /// data: the user must have confirmed twice).
    ///
    /// # Errors
    /// The path does not exist or may not be used; the text gives the reason and a remedy.
    pub fn find(name: &str, path: &Path, may_overwrite: bool) -> Result<Target> {
        let shown = path.display();
        let path = fs::canonicalize(path).map_err(LabError::io(format!("cannot measure {shown}")))?;
        let metadata = fs::metadata(&path).map_err(LabError::io(shown.to_string()))?;
        let kind = match metadata.file_type() {
            t if t.is_dir() => TargetKind::Folder,
            t if t.is_file() => TargetKind::File,
            t if t.is_block_device() => TargetKind::Device,
            _ => {
                return Err(LabError::Refused(format!(
                    "{shown}: neither a folder, nor a file, nor a block device"
                )));
            }
        };
        match kind {
            TargetKind::Device => device::refuse_if_used(&path)?,
            TargetKind::Folder | TargetKind::File => {}
        }
        if kind != TargetKind::Folder
            && !may_overwrite
            && let Some(holds) = device::holds(&path)?
        {
            return Err(LabError::Refused(format!(
                "{shown}: holds {holds}; measuring would overwrite it. To allow that, add --overwrite and \
                 --yes-destroy={shown}"
            )));
        }
        Ok(Target { name: name.to_owned(), path, kind })
    }

    /// Creates the lab's folder in the target.
    ///
    /// # Errors
    /// The target is not a folder, or nothing can be created there.
    pub fn scratch(&self) -> Result<Scratch> {
        if self.kind != TargetKind::Folder {
            return Err(LabError::Refused(format!(
                "{}: this work creates files, so it needs a folder",
                self.path.display()
            )));
        }
        Scratch::new(&self.path)
    }
}

/// Folders left in `parent` by earlier runs killed or interrupted by a crash.
pub fn leftovers(parent: &Path) -> Vec<PathBuf> {
    let is_left = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let process = name.strip_prefix(SCRATCH_PREFIX).and_then(|rest| rest.split('-').next());
        process.is_some_and(|id| !Path::new("/proc").join(id).exists())
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_left).collect()
}

/// A folder of the lab, removed with its content on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates one in `parent`.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(parent: &Path) -> Result<Scratch> {
        let id = std::process::id();
        for number in 0.. {
            let path = parent.join(format!("{SCRATCH_PREFIX}{id}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Scratch { path }),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    return Err(LabError::io(format!(
                        "{}: cannot create a folder for test files there",
                        parent.display()
                    ))(e));
                }
            }
        }
        unreachable!("numbers don't end")
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failure has no recipient; `cenote lab run` lists leftovers when it starts.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Opens for reading; fails if the device is opened exclusively elsewhere.
fn open_exclusively(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
    use super::*;

    #[test]
    fn a_file_with_data_is_refused_unless_confirmed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        assert!(Target::find("a", &path, false).is_ok(), "zeros are not data");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"label", (64 << 20) - 100_000).unwrap();
        let refused = Target::find("a", &path, false).unwrap_err().to_string();
        assert!(refused.contains("holds data") && refused.contains("--overwrite"), "{refused}");
        assert!(Target::find("a", &path, true).is_ok());
    }

    #[test]
    fn scratch_folders_are_removed_with_their_content() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::find("a", dir.path(), false).unwrap();
        let (one, two) = (target.scratch().unwrap(), target.scratch().unwrap());
        assert_ne!(one.path(), two.path());
        fs::write(one.path().join("file"), "x").unwrap();
        drop((one, two));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::create_dir(dir.path().join(format!("{SCRATCH_PREFIX}4294967295-0"))).unwrap();
        let _ours = target.scratch().unwrap();
        assert_eq!(leftovers(dir.path()).len(), 1, "left by another process");
    }
}
