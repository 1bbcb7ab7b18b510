//! An open folder of a walk, and opening the next ones: by name relative to their folder, or by path if that
//! is closed.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, openat, statx};

/// Folders that may be open besides those being listed.
pub const OPEN_FOLDERS: usize = 256;

/// Paths are resolved in pieces shorter than this, in bytes: the kernel accepts 4096 (`PATH_MAX`).
const LONGEST_PATH: usize = 4000;

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A folder.
    Folder,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A device, socket or pipe.
    Other,
}

impl EntryKind {
    pub(super) fn of(stat: &Statx) -> EntryKind {
        match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
            FileType::Directory => EntryKind::Folder,
            FileType::RegularFile => EntryKind::File,
            FileType::Symlink => EntryKind::Link,
            _ => EntryKind::Other,
        }
    }
}

pub struct Root {
    fd: OwnedFd,
    device: (u32, u32),
    open: AtomicUsize,
}

/// An open folder. Its descriptor also holds the position in its listing.
pub struct Folder {
    pub fd: OwnedFd,
    pub path: Vec<u8>,
    root: Arc<Root>,
}

impl Folder {
    /// Root itself; its path may contain symbolic links.
    pub fn root(path: &Path) -> io::Result<Folder> {
        let open = || openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let (fd, again) = (open()?, open()?);
        let stat = statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        let root = Root { fd: again, device: device(&stat), open: AtomicUsize::new(0) };
        Ok(Folder::new(fd, Vec::new(), Arc::new(root)))
    }

    pub fn open(&self, name: &CStr) -> io::Result<Folder> {
        Ok(Folder::new(open(&self.fd, name)?, self.path_of(name.to_bytes()), Arc::clone(&self.root)))
    }

    pub fn open_far(root: Arc<Root>, path: Vec<u8>) -> io::Result<Folder> {
        let mut rest = path.as_slice();
        let mut above: Option<OwnedFd> = None;
        while rest.len() > LONGEST_PATH {
            // A name has at most 255 bytes, so each piece contains a slash.
            let end = rest[..LONGEST_PATH].iter().rposition(|&b| b == b'/').unwrap_or(LONGEST_PATH);
            above = Some(open(above.as_ref().unwrap_or(&root.fd), &CString::new(&rest[..end])?)?);
            rest = &rest[(end + 1).min(rest.len())..];
        }
        let fd = open(above.as_ref().unwrap_or(&root.fd), &CString::new(rest)?)?;
        Ok(Folder::new(fd, path, root))
    }

    pub fn stat(&self, name: &CStr) -> rustix::io::Result<Statx> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        statx(&self.fd, name, flags, StatxFlags::BASIC_STATS)
    }

    /// Whether the entry with this `stat` is on the same file system as the root.
    pub fn is_inside(&self, stat: &Statx) -> bool {
        device(stat) == self.root.device
    }

    /// Root and path by which to open a sub-folder later; None if this folder can be kept open for it.
    pub fn far(&self, name: &CStr) -> Option<(Arc<Root>, Vec<u8>)> {
        let is_crowded = self.root.open.load(Relaxed) > OPEN_FOLDERS;
        is_crowded.then(|| (Arc::clone(&self.root), self.path_of(name.to_bytes())))
    }

    fn new(fd: OwnedFd, path: Vec<u8>, root: Arc<Root>) -> Folder {
        root.open.fetch_add(1, Relaxed);
        Folder { fd, path, root }
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut path = Vec::with_capacity(self.path.len() + 1 + name.len());
        path.extend_from_slice(&self.path);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.root.open.fetch_sub(1, Relaxed);
    }
}

fn open(above: &OwnedFd, path: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, path, flags, Mode::empty())
}

fn device(stat: &Statx) -> (u32, u32) {
    (stat.stx_dev_major, stat.stx_dev_minor)
}
