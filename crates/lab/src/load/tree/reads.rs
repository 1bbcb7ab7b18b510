//! Counts reads from disk.
//!
//! The counters are those of the file system's own device; without one (pools, network), those of all disks
//! of the machine. Reads that the kernel attributes to this process count as well; the ZFS module does so,
//! too.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::load::measurement::Figure;
use crate::unit::Unit;

/// Sector size of the kernel's counters, independent of the disk's own.
const SECTOR_BYTES: u64 = 512;

/// Counters at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskReads {
    /// (reads, bytes) of the device or devices.
    pub disks: Option<(u64, u64)>,
    /// Bytes read on behalf of this process.
    pub process_bytes: Option<u64>,
}

impl DiskReads {
    /// Current counters, for the file system of `place`.
    pub fn now(place: &Path) -> DiskReads {
        DiskReads { disks: disks(place), process_bytes: process_bytes() }
    }

    /// Difference from `earlier`.
    pub fn since(self, earlier: DiskReads) -> DiskReads {
        let disks = self.disks.zip(earlier.disks);
        let process = self.process_bytes.zip(earlier.process_bytes);
        DiskReads {
            disks: disks.map(|(now, then)| (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1))),
            process_bytes: process.map(|(now, then)| now.saturating_sub(then)),
        }
    }

    /// Sum, where both are known.
    pub fn plus(self, other: DiskReads) -> DiskReads {
        let disks = self.disks.zip(other.disks);
        let process = self.process_bytes.zip(other.process_bytes);
        DiskReads {
            disks: disks.map(|(a, b)| (a.0 + b.0, a.1 + b.1)),
            process_bytes: process.map(|(a, b)| a + b),
        }
    }

    /// Known counters as figures.
    pub fn figures(self) -> Vec<Figure> {
        let bytes = |name: &str, bytes: u64| Figure::lower(name, bytes as f64, Unit::Bytes);
        let reads = |reads: u64| Figure::lower("disk.reads", reads as f64, Unit::Count);
        let disks = self.disks.map(|disks| [reads(disks.0), bytes("disk.read_bytes", disks.1)]);
        let process = self.process_bytes.map(|process| bytes("process.read_bytes", process));
        disks.into_iter().flatten().chain(process).collect()
    }
}

fn process_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?;
    line.trim().parse().ok()
}

fn disks(place: &Path) -> Option<(u64, u64)> {
    let device = fs::metadata(place).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let own = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    if own.exists() {
        return counters(&own);
    }
    // A disk has hardware behind it; arrays, loop devices and partitions have none.
    let all = fs::read_dir("/sys/block").ok()?.flatten().map(|entry| entry.path());
    let disks = all.filter(|disk| disk.join("device").exists());
    disks.filter_map(|disk| counters(&disk.join("stat"))).reduce(|a, b| (a.0 + b.0, a.1 + b.1))
}

/// (reads, bytes read) of a `stat` file in sysfs.
fn counters(stat: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(stat).ok()?;
    let mut fields = text.split_whitespace();
    let reads = fields.next()?.parse().ok()?;
    let sectors: u64 = fields.nth(1)?.parse().ok()?;
    Some((reads, sectors * SECTOR_BYTES))
}
