//! A folder at the destination, and names that stay in it.
//!
//! Only the folder that the caller names is opened by a path, links and all. Everything below is opened relative to an open
//! folder, one name at a time, never through a symbolic link: who plants one there, or names a file `../x` in the pool, gets an error.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

/// `NAME_MAX` of Linux.
const MAX_NAME_BYTES: usize = 255;
const OPEN_FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// One component of a path: not empty, not `.` or `..`, without slash and NUL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Checks a name.
    pub fn new(bytes: &[u8]) -> Option<Name> {
        let refused = matches!(bytes, b"" | b"." | b"..")
            || bytes.len() > MAX_NAME_BYTES
            || bytes.iter().any(|&b| b == b'/' || b == 0);
        (!refused).then(|| Name(bytes.into()))
    }

    /// A name that nothing else has, for what gets its own later.
    pub(super) fn temporary() -> Name {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Name(format!(".cenote-{}-{number}.part", std::process::id()).into_bytes().into())
    }

    /// As the system wants it.
    pub fn as_os(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

/// An open folder.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens the folder that the user named.
    ///
    /// # Errors
    /// It is not there, or no folder, or not readable.
    pub fn open(path: &Path) -> Result<Folder, Errno> {
        Ok(Folder(openat(CWD, path, OPEN_FOLDER, Mode::empty())?))
    }

    /// Opens a folder in this one.
    ///
    /// # Errors
    /// It is not there, or something else, a symbolic link for example.
    pub fn enter(&self, name: &Name) -> Result<Folder, Errno> {
        let flags = OPEN_FOLDER | OFlags::NOFOLLOW;
        Ok(Folder(openat(&self.0, name.as_os(), flags, Mode::empty())?))
    }

    /// Makes a folder in this one, for its owner alone until it is dressed, and opens it. One that is there is opened as it is.
    ///
    /// # Errors
    /// It can't be made, or something else is there.
    pub fn make(&self, name: &Name, mode: Mode) -> Result<Folder, Errno> {
        match mkdirat(&self.0, name.as_os(), mode) {
            Ok(()) | Err(Errno::EXIST) => self.enter(name),
            Err(errno) => Err(errno),
        }
    }

    /// The same folder, opened once more.
    ///
    /// # Errors
    /// Too many open files.
    pub fn again(&self) -> Result<Folder, Errno> {
        Ok(Folder(rustix::io::fcntl_dupfd_cloexec(&self.0, 0)?))
    }

    /// Makes something under `name` with `make`; if a file is there and is to be replaced, under another name first, so that the
    /// old one is there until the new one is whole.
    pub(super) fn place(
        &self,
        name: &Name,
        replace: bool,
        make: impl Fn(&Name) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        match make(name) {
            Err(Errno::EXIST) if replace => {}
            done => return done,
        }
        let temporary = Name::temporary();
        make(&temporary)?;
        let renamed = renameat(&self.0, temporary.as_os(), &self.0, name.as_os());
        // Two names of one file: the rename did nothing. Otherwise there is nothing to remove, unless it failed.
        self.remove(&temporary);
        renamed
    }

    /// Gives a file here (or in another folder) one more name.
    pub(super) fn link(&self, from: &Folder, old: &Name, new: &Name) -> Result<(), Errno> {
        linkat(&from.0, old.as_os(), &self.0, new.as_os(), AtFlags::empty())
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &Name) {
        let _ = unlinkat(&self.0, name.as_os(), AtFlags::empty());
    }

    /// Opens a new file to write, without a name if the file system can do that.
    pub(super) fn open_unnamed(&self, mode: Mode) -> Result<File, Errno> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(openat(&self.0, c".", flags, mode)?.into())
    }

    /// Opens a new file to write.
    pub(super) fn open_new(&self, name: &Name, mode: Mode) -> Result<File, Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(openat(&self.0, name.as_os(), flags, mode)?.into())
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_components_are_names() {
        for hostile in [&b""[..], b".", b"..", b"/etc/passwd", b"../x", b"a/b", b"a\0b", &[b'x'; 256]] {
            assert_eq!(Name::new(hostile), None, "{hostile:?}");
        }
        for fine in [&b"a"[..], b"...", b"..a", b"\xff\n", &[b'x'; 255]] {
            assert!(Name::new(fine).is_some(), "{fine:?}");
        }
    }

    #[test]
    fn a_planted_link_leads_nowhere() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join("outside")).unwrap();
        std::fs::create_dir(scratch.path().join("inside")).unwrap();
        std::os::unix::fs::symlink("../outside", scratch.path().join("inside/link")).unwrap();
        let folder = Folder::open(&scratch.path().join("inside")).unwrap();
        let link = Name::new(b"link").unwrap();
        assert!(folder.enter(&link).is_err());
        assert!(folder.make(&link, Mode::RWXU).is_err());
        assert!(folder.open_new(&link, Mode::RUSR).is_err());
    }
}
