//! What is measured: a folder of a mounted file system, a file, or a block device; and the guards before anything is written.
//!
//! Invariants: in a folder, all that is written lies in one new sub-folder of ours ([`Scratch`]), which goes when the work ends, however
//! it ends. A file is written only if the user named it as an existing regular file and said so twice, as a block device that holds
//! anything is. A device that is in use (mounted, part of a pool or array, open for exclusive use) is refused whatever is said.

mod device;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{LabError, Result};

/// How names of folders of ours begin.
pub const SCRATCH_PREFIX: &str = "cenote-lab-";

/// What kind of place it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// A folder of a mounted file system.
    Folder,
    /// A regular file.
    File,
    /// A block device.
    Device,
}

/// A place to measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// What it is called in reports.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub kind: TargetKind,
}

impl Target {
    /// What is at `path`, for work that writes if `may_overwrite` (files and devices that hold something: the user must have said
    /// twice that it may go).
    ///
    /// # Errors
    /// There is nothing, or it may not be used; the text says why and what would help.
    pub fn find(name: &str, path: &Path, may_overwrite: bool) -> Result<Target> {
        let shown = path.display();
        let path = fs::canonicalize(path).map_err(LabError::io(format!("{shown}: can't be measured")))?;
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
                "{shown}: holds {holds}; measuring overwrites it. If that may go, say --overwrite and --yes-destroy={shown}"
            )));
        }
        Ok(Target { name: name.to_owned(), path, kind })
    }

    /// A folder of our own in the target.
    ///
    /// # Errors
    /// The target is not a folder, or nothing can be made there.
    pub fn scratch(&self) -> Result<Scratch> {
        if self.kind != TargetKind::Folder {
            return Err(LabError::Refused(format!(
                "{}: this work makes files: it needs a folder",
                self.path.display()
            )));
        }
        Scratch::new(&self.path)
    }
}

/// Folders that earlier runs left in `parent`: they were killed, or the machine went down.
pub fn leftovers(parent: &Path) -> Vec<PathBuf> {
    let is_left = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let process = name.strip_prefix(SCRATCH_PREFIX).and_then(|rest| rest.split('-').next());
        process.is_some_and(|id| !Path::new("/proc").join(id).exists())
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_left).collect()
}

/// A folder of our own, which goes with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one in `parent`.
    ///
    /// # Errors
    /// It can't be made.
    pub fn new(parent: &Path) -> Result<Scratch> {
        let id = std::process::id();
        for number in 0.. {
            let path = parent.join(format!("{SCRATCH_PREFIX}{id}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Scratch { path }),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    return Err(LabError::io(format!(
                        "{}: no folder for test files can be made there",
                        parent.display()
                    ))(e));
                }
            }
        }
        unreachable!("numbers don't end")
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nobody is left to be told; `cenote lab run` says at its start what earlier runs left.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Opens for reading, failing if somebody else has the device for exclusive use.
fn open_exclusively(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
    use super::*;

    #[test]
    fn a_file_that_holds_something_is_refused_unless_it_may_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        assert!(Target::find("a", &path, false).is_ok(), "zeros are nothing");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"label", (64 << 20) - 100_000).unwrap();
        let refused = Target::find("a", &path, false).unwrap_err().to_string();
        assert!(refused.contains("holds data") && refused.contains("--overwrite"), "{refused}");
        assert!(Target::find("a", &path, true).is_ok());
    }

    #[test]
    fn scratch_folders_go_with_what_is_in_them() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::find("a", dir.path(), false).unwrap();
        let (one, two) = (target.scratch().unwrap(), target.scratch().unwrap());
        assert_ne!(one.path(), two.path());
        fs::write(one.path().join("file"), "x").unwrap();
        drop((one, two));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::create_dir(dir.path().join(format!("{SCRATCH_PREFIX}4294967295-0"))).unwrap();
        let _ours = target.scratch().unwrap();
        assert_eq!(leftovers(dir.path()).len(), 1, "what another process left");
    }
}
