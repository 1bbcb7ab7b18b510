//! Files with secrets: keys and passwords.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Bound on the size of a file.
const BYTES_MAX: u64 = 1 << 20;

/// Reads a file that no other user can read.
pub(crate) fn secret(file: &Path) -> io::Result<Vec<u8>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    let found = file.metadata()?;
    let is_trusted = found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_file() || !is_trusted || found.mode() & 0o077 != 0 {
        return Err(io::Error::other("is no private file of this user or root: `chmod 600` it"));
    }
    let mut text = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}
