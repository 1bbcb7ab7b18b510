//! Emptying the system's caches.

use std::fs::{self, File};
use std::io;

/// Writes out what is to be written, and drops page cache, dentries and inodes. The ZFS module then gives its ARC back, too, as far as it can.
///
/// # Errors
/// It is not allowed: it takes root.
pub fn drop_all() -> io::Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// Forgets the cached pages of a file, which takes no rights, so that it is read from where it lies; where that is refused, it is not.
pub fn drop_pages(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}
