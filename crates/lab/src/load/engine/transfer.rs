//! One complete operation by plain system calls, and error messages for failed ones.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::LabError;
use crate::load::workload::{Kind, Operation};

/// Completes an operation with `done` bytes already done.
#[inline]
pub(super) fn complete(
    file: &File,
    operation: &Operation,
    buffer: &mut [u8],
    mut done: usize,
) -> io::Result<()> {
    match operation.kind {
        Kind::Sync => return file.sync_all(),
        Kind::Datasync => return file.sync_data(),
        Kind::Read | Kind::Write => {}
    }
    while done < buffer.len() {
        let at = operation.offset + done as u64;
        let moved = match operation.kind {
            Kind::Read => file.read_at(&mut buffer[done..], at),
            _ => file.write_at(&buffer[done..], at),
        };
        match moved {
            Ok(0) if operation.kind == Kind::Read => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => done += bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

pub(super) fn failed(path: &Path, operation: &Operation, direct: bool, error: io::Error) -> LabError {
    let what = match operation.kind {
        Kind::Read => format!("read of {} bytes at byte {}", operation.bytes, operation.offset),
        Kind::Write => format!("write of {} bytes at byte {}", operation.bytes, operation.offset),
        Kind::Sync => "fsync".into(),
        Kind::Datasync => "fdatasync".into(),
    };
    LabError::io(format!("{}: {what}{}", path.display(), help(&error, direct)))(error)
}

/// Advice about an error, in brackets.
pub(super) fn help(error: &io::Error, direct: bool) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => " (free some space there, or choose a smaller size)",
        Some(libc::EIO) => " (the device or something below it failed: see the kernel log)",
        Some(libc::EINVAL) if direct => {
            " (direct I/O requires sizes and offsets in multiples of the device's sector size: choose \
             another bs, or direct=0)"
        }
        Some(libc::ENODEV | libc::ENXIO | libc::ESTALE | libc::ENOENT) => {
            " (it is gone: was it unmounted or unplugged?)"
        }
        Some(libc::EROFS | libc::EACCES | libc::EPERM) => {
            " (choose a writable location, or run as its owner)"
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => " (the file was truncated meanwhile)",
        _ => "",
    }
}
