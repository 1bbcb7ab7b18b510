//! Emptying the system's caches.

use std::fs;
use std::io;

/// Writes out what is to be written, and drops page cache, dentries and inodes. The ZFS module then gives its ARC back, too, as far as it can.
///
/// # Errors
/// It is not allowed: it takes root.
pub fn drop_all() -> io::Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")
}
