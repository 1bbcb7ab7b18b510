//! A folder at the destination, and names that can't leave it.
//!
//! Only the caller's folder is opened by path, following links. Everything below is opened relative to an
//! open folder, one name at a time: a planted link, or a file named `../x` in the pool, causes an error.
//!
//! Locking: none. A global atomic counter makes temporary names unique within the process.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_codec::Endian;
use cenote_codec::checksum::Checksum;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fstat, linkat, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

/// `NAME_MAX` of Linux.
const MAX_NAME_BYTES: usize = 255;
const OPEN_FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// One component of a path: not empty, not `.` or `..`, without slash or NUL.
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

    /// The name, or a stand-in if Linux can't store it.
    pub fn or_stand_in(bytes: &[u8]) -> Name {
        Name::new(bytes).unwrap_or_else(|| Name::stand_in(bytes))
    }

    /// The stand-in for a name too long or not a single component: as much of it as fits, `~`, and a hash of
    /// the whole name. Equal names have equal stand-ins.
    pub fn stand_in(bytes: &[u8]) -> Name {
        // SHA-256 needs no salt, so this does not fail.
        let [hash, ..] = Checksum::Sha256.compute(bytes, Endian::Big, None).unwrap_or_default();
        let tail = format!("{hash:016x}");
        let mut end = bytes.len().min(MAX_NAME_BYTES - 1 - tail.len());
        // Do not cut inside a character.
        while end < bytes.len() && end > 0 && bytes[end] & 0xc0 == 0x80 {
            end -= 1;
        }
        let head = bytes[..end].iter().map(|&b| if b == b'/' || b == 0 { b'_' } else { b });
        Name(head.chain([b'~']).chain(tail.bytes()).collect())
    }

    /// A unique name, for files that get their own later.
    pub(super) fn temporary() -> Name {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Name(format!(".cenote-{}-{number}.part", std::process::id()).into_bytes().into())
    }

    /// The name for system calls.
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
    /// It does not exist, is not a folder, or is not readable.
    pub fn open(path: &Path) -> Result<Folder, Errno> {
        Ok(Folder(openat(CWD, path, OPEN_FOLDER, Mode::empty())?))
    }

    /// One that somebody has opened.
    ///
    /// # Errors
    /// It is something else.
    pub fn of(fd: OwnedFd) -> Result<Folder, Errno> {
        match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
            FileType::Directory => Ok(Folder(fd)),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Opens a subfolder.
    ///
    /// # Errors
    /// It does not exist, or is not a folder (a symbolic link, for example).
    pub fn enter(&self, name: &Name) -> Result<Folder, Errno> {
        let flags = OPEN_FOLDER | OFlags::NOFOLLOW;
        Ok(Folder(openat(&self.0, name.as_os(), flags, Mode::empty())?))
    }

    /// Creates a subfolder, accessible only to its owner until its metadata is set, and opens it. An existing
    /// folder is opened unchanged.
    ///
    /// # Errors
    /// It can't be created, or another kind of file has that name.
    pub fn make(&self, name: &Name, mode: Mode) -> Result<Folder, Errno> {
        match mkdirat(&self.0, name.as_os(), mode) {
            Ok(()) | Err(Errno::EXIST) => self.enter(name),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn has(&self, name: &Name) -> bool {
        statat(&self.0, name.as_os(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Opens the same folder again.
    ///
    /// # Errors
    /// Too many open files.
    pub fn again(&self) -> Result<Folder, Errno> {
        Ok(Folder(rustix::io::fcntl_dupfd_cloexec(&self.0, 0)?))
    }

    /// Creates a file under `name` with `make`. A file to replace remains until the new one, under a
    /// temporary name, is complete.
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
        // If both names are one file, the rename did nothing. Otherwise there is nothing to remove, unless it
        // failed.
        self.remove(&temporary);
        renamed
    }

    /// Adds a name to a file of this or another folder.
    pub(super) fn link(&self, from: &Folder, old: &Name, new: &Name) -> Result<(), Errno> {
        linkat(&from.0, old.as_os(), &self.0, new.as_os(), AtFlags::empty())
    }

    /// Removes a file if it exists.
    pub(super) fn remove(&self, name: &Name) {
        let _ = unlinkat(&self.0, name.as_os(), AtFlags::empty());
    }

    /// Opens a new file for writing, without a name if the file system supports that.
    pub(super) fn open_unnamed(&self, mode: Mode) -> Result<File, Errno> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(openat(&self.0, c".", flags, mode)?.into())
    }

    pub(super) fn open_new(&self, name: &Name, mode: Mode) -> Result<File, Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(openat(&self.0, name.as_os(), flags, mode)?.into())
    }
}

impl From<Folder> for OwnedFd {
    fn from(folder: Folder) -> OwnedFd {
        folder.0
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
    fn stand_ins_are_names_and_differ() {
        let long = [b"x".repeat(300), "\u{4e2d}".repeat(200).into_bytes(), b"x".repeat(301), b"a/b".to_vec()];
        let hostile = [b"".to_vec(), b"..".to_vec(), b"a\0b".to_vec()];
        let all: Vec<Name> = long.iter().chain(&hostile).map(|name| Name::stand_in(name)).collect();
        let unique: std::collections::HashSet<&Name> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
        for name in &all {
            assert_eq!(Name::new(&name.0).as_ref(), Some(name));
            assert!(std::str::from_utf8(&name.0).is_ok(), "{name:?}");
        }
        assert_eq!(all[0], Name::stand_in(&long[0]));
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
