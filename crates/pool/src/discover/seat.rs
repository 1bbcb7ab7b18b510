//! Where a device's bytes lie, so that a device found twice counts once.
//!
//! Links lead to the same file. A partition is found both as the kernel's device and, through the partition
//! table, inside its disk. A loop device is its file.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Independent of the disk's sector size.
const SYSFS_SECTOR_BYTES: u64 = 512;

/// A start offset on a file or disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Seat {
    device: Identity,
    start_bytes: u64,
}

/// The device's number, or the file's device and inode.
type Identity = (bool, u64, u64);

impl Seat {
    /// A partition's seat is on its disk.
    pub(super) fn of(path: &Path) -> Option<Seat> {
        let device = identity(path)?;
        on_disk(path).or(Some(Seat { device, start_bytes: 0 }))
    }

    pub(super) fn behind(self, start_bytes: u64) -> Seat {
        Seat { start_bytes: self.start_bytes.saturating_add(start_bytes), ..self }
    }
}

fn on_disk(path: &Path) -> Option<Seat> {
    let device = Path::new("/sys/class/block").join(std::fs::canonicalize(path).ok()?.file_name()?);
    identity(path).filter(|(is_device, ..)| *is_device)?;
    let read = |name: &str| std::fs::read_to_string(device.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    if let Some(file) = read("loop/backing_file") {
        let file = identity(Path::new(file.trim_end_matches('\n')))?;
        return Some(Seat { device: file, start_bytes: number("loop/offset")? });
    }
    // Whole disks don't have this file.
    let start_bytes = number("start")?.checked_mul(SYSFS_SECTOR_BYTES)?;
    let disk = std::fs::canonicalize(device.join("..")).ok()?;
    Some(Seat::of(&Path::new("/dev").join(disk.file_name()?))?.behind(start_bytes))
}

pub(super) fn identity(path: &Path) -> Option<Identity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(match metadata.file_type().is_block_device() {
        true => (true, metadata.rdev(), 0),
        false => (false, metadata.dev(), metadata.ino()),
    })
}
