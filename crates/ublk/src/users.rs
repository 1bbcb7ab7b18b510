//! Users of a block device: mounts, stacked devices, swap, processes.
//!
//! The driver does not report opens and closes. This module reads proc(5) and sysfs, which disturbs no user,
//! but may miss mounts in other namespaces. [`is_claimed`] misses none: mounts and stacked devices open
//! exclusively (`O_EXCL`). During its check it holds that claim itself.

use std::fs::{File, OpenOptions, read_dir, read_link, read_to_string};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, OFlags, StatxFlags, statx};
use rustix::io::Errno;

const MOUNTS_BYTES_MAX: u64 = 16 << 20;

/// Path of a block device.
pub fn path_of(device: u32) -> PathBuf {
    format!("/dev/ublkb{device}").into()
}

/// Describes a user; `None` if none is visible.
pub fn user_of(device: u32) -> Option<String> {
    let parts = parts(&Path::new("/sys/block").join(format!("ublkb{device}")));
    if parts.is_empty() {
        return None;
    }
    on_top(&parts).or_else(|| mounted(&parts)).or_else(|| swapped(&parts)).or_else(|| opened(&parts))
}

/// Whether a device or a partition is open exclusively. Blocks briefly.
pub fn is_claimed(device: u32) -> bool {
    let flags = (OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
    let opened = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path_of(device));
    opened.is_err_and(|error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error()))
}

struct Part {
    /// In sysfs.
    folder: PathBuf,
    /// In `/dev`.
    path: String,
    /// Such as `259:3`.
    number: String,
}

fn parts(folder: &Path) -> Vec<Part> {
    let within = read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = std::iter::once(folder.to_owned()).chain(within.filter(|path| path.join("partition").exists()));
    let part = |folder: PathBuf| {
        let name = folder.file_name()?.to_str()?;
        let number = read_to_string(folder.join("dev")).ok()?.trim().to_owned();
        Some(Part { path: format!("/dev/{name}"), number, folder })
    };
    all.filter_map(part).collect()
}

/// Stacked devices: device mapper, MD.
fn on_top(parts: &[Part]) -> Option<String> {
    let mut holders = parts.iter().flat_map(|part| read_dir(part.folder.join("holders"))).flatten().flatten();
    holders.next().map(|holder| format!("{} is on it", holder.file_name().display()))
}

fn mounted(parts: &[Part]) -> Option<String> {
    let mut table = String::new();
    File::open("/proc/self/mountinfo").ok()?.take(MOUNTS_BYTES_MAX).read_to_string(&mut table).ok()?;
    table.lines().find_map(|line| mounted_by(line, parts))
}

/// The mount point, if this mountinfo line mounts a part. btrfs has its own device numbers: its source is
/// compared.
fn mounted_by(line: &str, parts: &[Part]) -> Option<String> {
    let (about, source) = line.split_once(" - ")?;
    let mut about = about.split(' ');
    let (number, place) = (about.nth(2)?, about.nth(1)?);
    let source = source.split(' ').nth(1)?;
    let is_it = |part: &Part| part.number == number || part.path == source;
    parts.iter().any(is_it).then(|| format!("mounted at {}", place.replace("\\040", " ")))
}

fn swapped(parts: &[Part]) -> Option<String> {
    let table = read_to_string("/proc/swaps").unwrap_or_default();
    let mut names = table.lines().filter_map(|line| line.split_ascii_whitespace().next());
    names.any(|name| parts.iter().any(|part| part.path == name)).then(|| "swap".into())
}

/// The first process with a part open.
fn opened(parts: &[Part]) -> Option<String> {
    read_dir("/proc").ok()?.flatten().find_map(|process| {
        let (path, pid) = (process.path(), process.file_name());
        let pid = pid.to_str().filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()))?;
        let mut open = read_dir(path.join("fd")).into_iter().flatten().flatten();
        open.any(|file| is_open(&file.path(), parts)).then(|| {
            let name = read_to_string(path.join("comm")).unwrap_or_default();
            format!("{} ({pid})", name.trim())
        })
    })
}

fn is_open(file: &Path, parts: &[Part]) -> bool {
    // Devices have absolute paths. STATX_DONT_SYNC: asks no remote server.
    let Ok(true) = read_link(file).map(|to| to.is_absolute()) else { return false };
    let Ok(found) = statx(CWD, file, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE) else { return false };
    let number = || format!("{}:{}", found.stx_rdev_major, found.stx_rdev_minor);
    FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice
        && parts.iter().any(|part| part.number == number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_and_by_name() {
        let part = |path: &str, number: &str| Part {
            folder: PathBuf::new(),
            path: path.into(),
            number: number.into(),
        };
        let parts = [part("/dev/ublkb1", "259:3"), part("/dev/ublkb1p1", "259:4")];
        let line = "36 35 259:4 / /mnt/a\\040b rw,noatime master:1 - ext4 /dev/ublkb1p1 rw,errors=continue";
        assert_eq!(mounted_by(line, &parts).unwrap(), "mounted at /mnt/a b");
        let line = "36 35 0:45 /sub /mnt/b rw - btrfs /dev/ublkb1 rw";
        assert_eq!(mounted_by(line, &parts).unwrap(), "mounted at /mnt/b");
        for other in ["36 35 259:5 / /mnt rw - ext4 /dev/ublkb10 rw", "", "36 35", "1 2 259:3 - x"] {
            assert_eq!(mounted_by(other, &parts), None, "{other}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_used_by_nobody() {
        assert_eq!(user_of(u32::MAX), None);
        assert!(!is_claimed(u32::MAX));
    }
}
