//! Opening: what the path is, how large, and how it may be used.
//!
//! Read-only is read-only at the descriptor (`O_RDONLY`): no error of ours can write to a pool that is only looked at.

use crate::DeviceInfo;
use crate::error::{DeviceError, Result};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// What the opener may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `O_RDONLY`.
    ReadOnly,
    /// `O_RDWR`.
    ReadWrite,
}

/// How to open a file or block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Reading, or writing too.
    pub access: Access,
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
}

impl OpenOptions {
    /// Through the page cache, never to write.
    pub const READ_ONLY: OpenOptions = OpenOptions { access: Access::ReadOnly, direct: false };
    /// Through the page cache, to read and write.
    pub const READ_WRITE: OpenOptions = OpenOptions { access: Access::ReadWrite, direct: false };
}

pub(super) fn open(path: &Path, options: OpenOptions) -> Result<(File, DeviceInfo)> {
    let name: Arc<str> = path.to_string_lossy().into();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(options.access == Access::ReadWrite)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK) // a FIFO must not make us wait
        .open(path)
        .map_err(|error| open_error(&name, options, error))?;
    let failed = |error| DeviceError::Open { path: name.clone(), source: Arc::new(error) };
    let metadata = file.metadata().map_err(failed)?;
    check_kind(&name, &metadata)?;
    let size_bytes = (&file).seek(SeekFrom::End(0)).map_err(failed)?;
    let read_only = options.access == Access::ReadOnly;
    Ok((file, DeviceInfo { path: name, size_bytes, sector_bytes: 512, rotational: None, read_only }))
}

fn check_kind(path: &Arc<str>, metadata: &Metadata) -> Result<()> {
    let kind = metadata.file_type();
    let path = path.clone();
    if kind.is_file() || kind.is_block_device() {
        Ok(())
    } else if kind.is_dir() {
        Err(DeviceError::IsDirectory { path })
    } else if kind.is_char_device() {
        Err(DeviceError::NotADevice { path, kind: "character device" })
    } else if kind.is_fifo() {
        Err(DeviceError::NotADevice { path, kind: "pipe" })
    } else {
        Err(DeviceError::NotADevice { path, kind: "special file" })
    }
}

fn open_error(path: &Arc<str>, options: OpenOptions, error: std::io::Error) -> DeviceError {
    let path = path.clone();
    match error.kind() {
        ErrorKind::NotFound => DeviceError::NotFound { path },
        ErrorKind::IsADirectory => DeviceError::IsDirectory { path },
        ErrorKind::PermissionDenied => {
            let access = if options.access == Access::ReadOnly { "read" } else { "read and write" };
            DeviceError::PermissionDenied { path, access }
        }
        _ => DeviceError::Open { path, source: Arc::new(error) },
    }
}
