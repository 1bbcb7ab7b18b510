//! Copies files without content: symbolic links, fifos, sockets, devices.

use cenote_fs::{Attr, FileKind};
use rustix::fs::{FileType, Mode, OFlags, mknodat, openat, symlinkat};
use rustix::io::Errno;

use super::dress::{Body, Dress};
use super::folder::{Folder, Name};
use super::loss::Loss;

/// A file without content, to be created.
#[derive(Debug)]
pub(super) enum Special {
    /// With this target.
    Symlink(Vec<u8>),
    /// Fifo, socket or device.
    Node(FileType, u64),
}

impl Special {
    /// The node that these attributes describe; `None` if they describe something else.
    pub fn node(attr: &Attr) -> Option<Special> {
        let (major, minor) = attr.device();
        let device = rustix::fs::makedev(major, minor);
        Some(match attr.kind() {
            FileKind::Fifo => Special::Node(FileType::Fifo, 0),
            FileKind::Socket => Special::Node(FileType::Socket, 0),
            FileKind::CharDevice => Special::Node(FileType::CharacterDevice, device),
            FileKind::BlockDevice => Special::Node(FileType::BlockDevice, device),
            _ => return None,
        })
    }

    /// Creates it under `name`, and sets its metadata.
    pub fn make(
        &self,
        folder: &Folder,
        name: &Name,
        replace: bool,
        dress: Option<&Dress>,
        lost: &impl Fn(Loss),
    ) -> Result<(), Errno> {
        folder.place(name, replace, |name| match self {
            Special::Symlink(target) => symlinkat(&target[..], folder, name.as_os()),
            Special::Node(kind, device) => {
                let mode = if dress.is_some() { Mode::RUSR | Mode::WUSR } else { Mode::from_raw_mode(0o666) };
                mknodat(folder, name.as_os(), *kind, mode, *device)
            }
        })?;
        if let Some(dress) = dress {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = openat(folder, name.as_os(), flags, Mode::empty())?;
            dress.put_on(&Body::Located(rustix::fd::AsFd::as_fd(&made)), lost);
            dress.set_flags(None, lost);
        }
        Ok(())
    }
}
