//! Local files, held open: attributes, names and extended attributes.
//!
//! Everything below the user's path is opened relative to its folder, never through a symbolic link.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use cenote_format::units::ObjectId;
use cenote_fs::FileKind;
use rustix::fs::{
    AtFlags, CWD, Dir, IFlags, Mode, OFlags, RawMode, Stat, fstat, major, minor, openat, statat,
};
use rustix::io::Errno;

use super::Putter;
use super::source::Source;
use crate::copy::Reason;

/// Buffer size for names or a value of extended attributes: initial and maximum (`XATTR_SIZE_MAX`,
/// `XATTR_LIST_MAX`).
const LEAST_XATTR_BYTES: usize = 256;
const MOST_XATTR_BYTES: usize = 64 << 10;

/// Folders open at a time while bytes are counted.
const COUNTED_DEPTH: usize = 100;

/// An open local file of any kind.
#[derive(Debug)]
pub struct HostFile {
    fd: OwnedFd,
    pub(super) stat: Stat,
}

impl HostFile {
    /// Opens the path that the user named; with `follow`, a symbolic link is resolved.
    ///
    /// # Errors
    /// It does not exist, or may not be read.
    pub fn open(path: &Path, follow: bool) -> Result<HostFile, Errno> {
        open(CWD, path.as_os_str().as_bytes(), if follow { OFlags::empty() } else { OFlags::NOFOLLOW })
    }

    /// One that somebody has opened, as [`HostFile::open`] does.
    ///
    /// # Errors
    /// It can't be looked at.
    pub fn of(fd: OwnedFd) -> Result<HostFile, Errno> {
        let stat = fstat(&fd)?;
        Ok(HostFile { fd, stat })
    }

    /// The bytes of all regular files in it and below, as far as they can be looked at without too many open
    /// folders.
    pub fn bytes_below(&self) -> u64 {
        if self.kind() != FileKind::Directory {
            return if self.kind() == FileKind::Regular { bytes_of(&self.stat) } else { 0 };
        }
        let mut sum = 0u64;
        let mut folders: Vec<Dir> = Dir::read_from(&self.fd).into_iter().collect();
        loop {
            let is_deep = folders.len() >= COUNTED_DEPTH;
            let Some(folder) = folders.last_mut() else { return sum };
            let Some(Ok(entry)) = folder.next() else {
                folders.pop();
                continue;
            };
            let name = entry.file_name();
            let Ok(at) = folder.fd() else { continue };
            let Ok(stat) = statat(at, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            match FileKind::from_mode(stat.st_mode.into()) {
                FileKind::Regular => sum = sum.saturating_add(bytes_of(&stat)),
                FileKind::Directory if ![c".", c".."].contains(&name) && !is_deep => {
                    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let below = openat(at, name, flags, Mode::empty()).and_then(Dir::new);
                    folders.extend(below);
                }
                _ => {}
            }
        }
    }

    /// Its type.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.stat.st_mode.into())
    }

    pub(super) fn xattr_names(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let list = grown(|buffer| rustix::fs::listxattr(self.link(), buffer))?;
        Ok(list.split(|b| *b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    pub(super) fn xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        grown(|buffer| rustix::fs::getxattr(self.link(), name, buffer))
    }

    /// Immutable, append-only, nodump.
    pub(super) fn flags(&self) -> IFlags {
        match self.kind() {
            FileKind::Regular | FileKind::Directory => {
                rustix::fs::ioctl_getflags(&self.fd).unwrap_or(IFlags::empty())
            }
            _ => IFlags::empty(),
        }
    }

    pub(super) fn file(&self) -> Result<File, Errno> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?.into())
    }

    /// A path that leads to this very file, even a symbolic link.
    fn link(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }
}

impl From<HostFile> for OwnedFd {
    fn from(file: HostFile) -> OwnedFd {
        file.fd
    }
}

impl Source for HostFile {
    fn kind(&self) -> FileKind {
        HostFile::kind(self)
    }

    fn permissions(&self) -> u32 {
        (self.stat.st_mode as RawMode) & 0o7777
    }

    fn owner(&self) -> (u64, u64) {
        (self.stat.st_uid.into(), self.stat.st_gid.into())
    }

    fn device(&self) -> (u32, u32) {
        (major(self.stat.st_rdev), minor(self.stat.st_rdev))
    }

    fn link_key(&self) -> Option<(u64, u64)> {
        (self.stat.st_nlink > 1).then_some((self.stat.st_dev, self.stat.st_ino))
    }

    async fn names(&self) -> Result<Vec<OsString>, Reason> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    async fn enter(&self, name: &[u8]) -> Result<HostFile, Reason> {
        Ok(open(&self.fd, name, OFlags::NOFOLLOW)?)
    }

    async fn target(&self) -> Result<Vec<u8>, Reason> {
        Ok(rustix::fs::readlinkat(&self.fd, c"", Vec::new())?.into_bytes())
    }

    async fn put_content(
        &self,
        putter: &Putter,
        path: &Path,
        object: ObjectId,
    ) -> crate::error::Result<bool> {
        putter.put_host_content(self, path, object).await
    }

    async fn dress(&self, putter: &Putter, path: &Path, object: ObjectId) {
        putter.dress_as_host(self, path, object).await;
    }
}

fn bytes_of(stat: &Stat) -> u64 {
    stat.st_size.cast_unsigned()
}

fn open(at: impl std::os::fd::AsFd, name: &[u8], nofollow: OFlags) -> Result<HostFile, Errno> {
    let located = openat(&at, name, OFlags::PATH | OFlags::CLOEXEC | nofollow, Mode::empty())?;
    let stat = fstat(&located)?;
    if !matches!(FileKind::from_mode(stat.st_mode.into()), FileKind::Regular | FileKind::Directory) {
        return Ok(HostFile { fd: located, stat });
    }
    // NONBLOCK: if a pipe has replaced it meanwhile, do not wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | nofollow;
    let fd = openat(&at, name, flags, Mode::empty())?;
    let stat = fstat(&fd)?;
    Ok(HostFile { fd, stat })
}

/// Reads data of unknown size, enlarging the buffer as needed.
fn grown(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; LEAST_XATTR_BYTES];
    loop {
        match read(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < MOST_XATTR_BYTES => buffer.resize(buffer.len() * 4, 0),
            Err(errno) => return Err(errno),
        }
    }
}
