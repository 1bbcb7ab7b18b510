//! Emptying the system's caches.

use std::fs::{self, File};
use std::io;

/// Writes out dirty data, and drops the page cache, dentries and inodes. The ZFS module then shrinks its ARC,
/// too, as far as it can.
///
/// # Errors
/// Not root.
pub fn drop_all() -> io::Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// Drops a file's cached pages, so that the next read reaches the storage. It needs no privilege; a refusal
/// is ignored.
pub fn drop_pages(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}
