//! A file's project and flags by `ioctl`, of any file system that has them.
//!
//! Source: Linux `include/uapi/linux/fs.h` (`struct fsxattr`).

#![allow(unsafe_code)] // rustix has no safe wrapper of these two ioctls

use std::fs::File;
use std::io;

use rustix::ioctl::{Getter, Opcode, Setter, ioctl};

/// `FS_IOC_FSGETXATTR`.
const FS_IOC_FSGETXATTR: Opcode = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`.
const FS_IOC_FSSETXATTR: Opcode = 0x401c_5820;
/// `FS_XFLAG_PROJINHERIT`.
const FS_XFLAG_PROJINHERIT: u32 = 0x200;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileAttr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    project: u32,
    cowextsize: u32,
    padding: [u8; 8],
}

const _: () = assert!(size_of::<FileAttr>() == 28, "the size is part of the number of the ioctl");

impl FileAttr {
    /// Those of an open file.
    pub fn of(file: &File) -> io::Result<FileAttr> {
        // SAFETY: the kernel fills a `struct fsxattr`, which this is.
        let got = unsafe { ioctl(file, Getter::<FS_IOC_FSGETXATTR, FileAttr>::new()) };
        Ok(got?)
    }

    /// Sets them on a file.
    pub fn set(self, file: &File) -> io::Result<()> {
        // SAFETY: the kernel reads a `struct fsxattr`, which this is.
        unsafe { ioctl(file, Setter::<FS_IOC_FSSETXATTR, FileAttr>::new(self)) }?;
        Ok(())
    }

    /// The project's number.
    pub fn project(&self) -> u32 {
        self.project
    }

    /// Whether files created in it belong to its project.
    pub fn inherits(&self) -> bool {
        self.xflags & FS_XFLAG_PROJINHERIT != 0
    }

    /// The same attributes with another project.
    pub fn in_project(self, project: u32, inherits: bool) -> FileAttr {
        let others = self.xflags & !FS_XFLAG_PROJINHERIT;
        let xflags = others | if inherits { FS_XFLAG_PROJINHERIT } else { 0 };
        FileAttr { xflags, project, ..self }
    }
}
