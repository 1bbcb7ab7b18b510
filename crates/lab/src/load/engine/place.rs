//! The workers' files: their names, each worker's region, and opening.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use super::transfer::help;
use crate::load::job::{Job, SyncMode};
use crate::{LabError, Result};

/// Files that a run may read and write. [`Target`](crate::load::target::Target) has already checked
/// permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkFiles {
    /// A folder: each worker has its own file there, `JOB.WORKER.0` as fio names it, or the job's `filename`.
    Folder(PathBuf),
    /// One file or device for all workers, regardless of `filename`.
    File(PathBuf),
}

impl WorkFiles {
    /// Path of a worker's file.
    ///
    /// # Errors
    /// The job names a file outside the folder.
    pub(crate) fn path(&self, job: &Job, number: u32) -> Result<PathBuf> {
        match (self, &job.filename) {
            (WorkFiles::File(path), _) => Ok(path.clone()),
            (WorkFiles::Folder(folder), Some(name)) => inside(folder, name),
            (WorkFiles::Folder(folder), None) => {
                Ok(folder.join(format!("{}.{number}.0", job.name.replace('/', "_"))))
            }
        }
    }

    /// The worker's region of the file: as in the job, or all.
    ///
    /// # Errors
    /// The size is missing, or the device is too small.
    pub(super) fn region(&self, job: &Job, path: &Path) -> Result<Range<u64>> {
        let (start, size_bytes) = (job.offset_bytes, job.size_bytes);
        let refused = |what: String| Err(LabError::Refused(format!("job {}: {what}", job.name)));
        let end = match self {
            WorkFiles::Folder(_) if size_bytes == 0 => return refused("size is missing".into()),
            WorkFiles::Folder(_) => start + size_bytes,
            WorkFiles::File(_) => {
                let mut file = File::open(path).map_err(not_opened(path))?;
                let is_device = file.metadata().map_err(not_opened(path))?.file_type().is_block_device();
                let length = file.seek(SeekFrom::End(0)).map_err(not_opened(path))?;
                match size_bytes {
                    0 => length,
                    _ if is_device && start + size_bytes > length => {
                        let shown = path.display();
                        return refused(format!(
                            "{shown} has {length} bytes, but offset and size require {}",
                            start + size_bytes
                        ));
                    }
                    _ => start + size_bytes,
                }
            }
        };
        if end <= start {
            return refused(format!("{} ends before byte {start}: size is missing", path.display()));
        }
        Ok(start..end)
    }
}

/// A file name in a folder, which must not lead out of it.
fn inside(folder: &Path, name: &Path) -> Result<PathBuf> {
    let refused = || {
        LabError::Refused(format!(
            "filename={}: outside {}, the only folder where files are created; use a name without a folder",
            name.display(),
            folder.display()
        ))
    };
    let relative = if name.is_absolute() { name.strip_prefix(folder).map_err(|_| refused())? } else { name };
    let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    let path = folder.join(relative);
    let (Some(parent), true, true) = (path.parent(), plain, path != folder) else {
        return Err(refused());
    };
    let real = |path: &Path| path.canonicalize().map_err(not_opened(path));
    if !real(parent)?.starts_with(real(folder)?) {
        return Err(refused());
    }
    Ok(path)
}

/// Opens a worker's file as the job says. The flag is set if `O_DIRECT` was refused and is not used.
pub(super) fn open(job: &Job, path: &Path) -> Result<(File, bool)> {
    let sync = match job.sync {
        SyncMode::None => 0,
        SyncMode::Sync => libc::O_SYNC,
        SyncMode::Dsync => libc::O_DSYNC,
    };
    // Written data are read back for verification.
    let mut options = OpenOptions::new();
    options.read(job.reads() || job.verify).write(job.writes()).create(job.writes());
    let mut open = |direct: i32| options.custom_flags(libc::O_NOFOLLOW | sync | direct).open(path);
    if !job.direct {
        return Ok((open(0).map_err(not_opened(path))?, false));
    }
    match open(libc::O_DIRECT) {
        Ok(file) => Ok((file, false)),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok((open(0).map_err(not_opened(path))?, true)),
        Err(e) => Err(not_opened(path)(e)),
    }
}

pub(super) fn not_opened(path: &Path) -> impl FnOnce(io::Error) -> LabError {
    let shown = path.display().to_string();
    move |e| LabError::io(format!("{shown}: cannot be used{}", help(&e, false)))(e)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
    use super::*;

    #[test]
    fn names_that_lead_out_of_the_folder_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, other) = (dir.path().join("ours"), dir.path().join("theirs"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, folder.join("link")).unwrap();
        let place = WorkFiles::Folder(folder.clone());
        let path = |name: &Path| place.path(&Job { filename: Some(name.into()), ..Job::default() }, 0);
        assert_eq!(path(Path::new("shared")).unwrap(), folder.join("shared"));
        assert_eq!(path(&folder.join("shared")).unwrap(), folder.join("shared"));
        for name in ["../theirs/file", "/etc/passwd", "link/file", "a/../../theirs/x", ".", ""] {
            assert!(matches!(path(Path::new(name)), Err(LabError::Refused(_))), "{name:?}");
        }
        // A symbolic link instead of the file is not followed.
        std::os::unix::fs::symlink(other.join("file"), folder.join("file")).unwrap();
        let job =
            Job { pattern: crate::load::job::Pattern { random: false, read_percent: 0 }, ..Job::default() };
        assert!(open(&job, &folder.join("file")).is_err());
    }

    #[test]
    fn without_direct_io_a_file_is_buffered_and_that_is_reported() {
        let job = Job { direct: true, ..Job::default() };
        // A character device without direct I/O behaves like a file system that refuses O_DIRECT.
        assert!(open(&job, Path::new("/dev/zero")).unwrap().1);
        assert!(!open(&Job::default(), Path::new("/dev/zero")).unwrap().1);
    }
}
