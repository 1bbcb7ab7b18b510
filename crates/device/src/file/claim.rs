//! Other names of a device: exclusive use of a disk covers all its names.
//!
//! Idea: the kernel arbitrates among block devices (`O_EXCL`: disks, partitions, mounts, swap space, device
//! mapper, RAID), and a lock (`flock`) among openers of a file under any link. Neither relates a loop device
//! to its file. So a block device claims the files that it lies on, and a file claims the loop devices that
//! lie on it:
//!
//! ```text
//!   /dev/loop0        file        exclusive lock          excludes the file and its other loop devices
//!   /dev/loop0p1      file        shared lock             the kernel arbitrates among these, and no program
//!   a mapping on it   file        shared lock             takes the whole file
//!   file              /dev/loop0  open with O_EXCL        nothing on it is mounted or otherwise in use
//! ```
//!
//! Two loop devices on one file, each with partitions in use, are not detected. Files with an invisible path
//! (another mount namespace, removed) cannot be claimed, nor opened by that path.
//!
//! Source: `Documentation/ABI/stable/sysfs-block` (`holders`, `slaves`), `loop(4)`, `proc(5)` (`swaps`,
//! `mountinfo`).

use super::block_devices::block_devices;
use crate::error::{DeviceError, Result};
use rustix::fs::{FlockOperation, major, minor};
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAX_DEPTH: usize = 8;

/// Claims the other names until the returned files are closed.
pub(super) fn claim_other_names(file: &File, path: &Arc<str>) -> Result<Vec<File>> {
    let failed = |source: std::io::Error| DeviceError::Open { path: path.clone(), source: Arc::new(source) };
    let metadata = file.metadata().map_err(failed)?;
    let mut claims = Vec::new();
    if metadata.file_type().is_block_device() {
        for (below, is_alone) in lies_on(metadata.rdev()) {
            claims.extend(claim_below(&below, is_alone, path)?);
        }
    } else {
        for above in loops_on(&metadata) {
            claims.extend(claim_above(&above, path)?);
        }
    }
    Ok(claims)
}

/// The files and disks below a block device, and whether it occupies each alone.
pub(super) fn lies_on(device: u64) -> Vec<(PathBuf, bool)> {
    let mut files = Vec::new();
    files_below(&sysfs(device), true, MAX_DEPTH, &mut files);
    files
}

/// A mount, swap space, or a device on this one.
pub(super) fn user_of(path: &Path) -> Option<String> {
    let device =
        std::fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_block_device())?.rdev();
    let folder = sysfs(device).canonicalize().ok()?;
    let partitions = entries(&folder).into_iter().filter(|entry| entry.join("partition").exists());
    std::iter::once(folder.clone()).chain(partitions).find_map(|folder| user_at(&folder))
}

fn user_at(folder: &Path) -> Option<String> {
    let number = std::fs::read_to_string(folder.join("dev")).ok()?;
    let number = number.trim();
    // ID, parent, device, root, mount point ...
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    if let Some(mount) = mount.into_iter().find(|fields| fields.get(2) == Some(&number)) {
        return Some(format!("the file system mounted at {}", mount.get(4).unwrap_or(&"?")));
    }
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let is_it = |path: &str| {
        let device = std::fs::metadata(path).ok().filter(|of| of.file_type().is_block_device());
        device.is_some_and(|of| number == format!("{}:{}", major(of.rdev()), minor(of.rdev())))
    };
    if swaps.lines().skip(1).filter_map(|line| line.split(' ').next()).any(is_it) {
        return Some("the system as swap space".into());
    }
    let holder = entries(&folder.join("holders")).into_iter().next()?;
    Some(format!("the device {}", holder.file_name()?.to_string_lossy()))
}

fn files_below(folder: &Path, is_alone: bool, depth: usize, files: &mut Vec<(PathBuf, bool)>) {
    let Ok(folder) = folder.canonicalize() else { return };
    let Some(depth) = depth.checked_sub(1) else { return };
    if let Some(file) = backing_file(&folder) {
        files.push((file, is_alone));
    }
    if folder.join("partition").exists() {
        folder.parent().into_iter().for_each(|disk| files_below(disk, false, depth, files));
    }
    entries(&folder.join("slaves")).iter().for_each(|slave| files_below(slave, false, depth, files));
}

/// Locks a file below a device, or claims a device and its files.
fn claim_below(below: &Path, is_alone: bool, path: &Arc<str>) -> Result<Vec<File>> {
    let is_block = std::fs::metadata(below).is_ok_and(|of| of.file_type().is_block_device());
    let exclusive = if is_block && is_alone { libc::O_EXCL } else { 0 };
    let open = |may_write| {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(may_write).custom_flags(libc::O_NONBLOCK | exclusive).open(below)
    };
    // A network file system may require write access for a lock.
    let file = match if is_block { open(false) } else { open(true).or_else(|_| open(false)) } {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::ResourceBusy => return Err(in_use(path, user_of(below))),
        Err(_) => return Ok(Vec::new()),
    };
    let how = match is_alone {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    super::open::lock_as(&file, path, how)?;
    let mut claims = vec![file];
    if let Some(metadata) = claims[0].metadata().ok().filter(|_| is_block) {
        let mut files = Vec::new();
        files_below(&sysfs(metadata.rdev()), is_alone, MAX_DEPTH, &mut files);
        for (file, is_alone) in files.into_iter().filter(|(file, _)| file != below) {
            claims.extend(claim_below(&file, is_alone, path)?);
        }
    }
    Ok(claims)
}

fn claim_above(device: &Path, path: &Arc<str>) -> Result<Option<File>> {
    let flags = libc::O_NONBLOCK | libc::O_EXCL;
    match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(device) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            let user = user_of(device).map(|user| format!(", which is in use by {user}"));
            Err(in_use(path, Some(format!("{}{}", device.display(), user.unwrap_or_default()))))
        }
        Err(_) => Ok(None),
    }
}

fn in_use(path: &Arc<str>, holder: Option<String>) -> DeviceError {
    DeviceError::InUse { path: path.clone(), holder: holder.map(Arc::from) }
}

fn loops_on(file: &Metadata) -> Vec<PathBuf> {
    let lies_on_it = |name: &String| {
        let backing = backing_file(&Path::new("/sys/block").join(name));
        let backing = backing.and_then(|path| std::fs::metadata(path).ok());
        backing.is_some_and(|backing| (backing.dev(), backing.ino()) == (file.dev(), file.ino()))
    };
    // Nothing can be written through a loop device without sectors.
    let names = block_devices().into_iter().map(|device| device.name);
    let loops = names.filter(|name| name.starts_with("loop") && lies_on_it(name));
    loops.map(|name| Path::new("/dev").join(name)).collect()
}

fn backing_file(folder: &Path) -> Option<PathBuf> {
    let line = std::fs::read(folder.join("loop/backing_file")).ok()?;
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    Some(PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(line)))
}

fn sysfs(device: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", major(device), minor(device)).into()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
