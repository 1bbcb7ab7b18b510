//! Opens files and block devices, and determines their kind and size.
//!
//! Read-only is enforced at the descriptor (`O_RDONLY`), so no bug of ours can write to an inspected pool.
//!
//! All of this may sleep, including close, so threads for blocking calls do it. A device closed a moment ago
//! may still be open, so opening retries for [`BRIEFLY`] if in use.

use super::claim::{claim_other_names, lies_on, user_of};
use crate::error::{DeviceError, Result};
use crate::{DeviceInfo, Nature};
use cenote_runtime::Runtime;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_setfl, major, minor};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Access rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `O_RDONLY`.
    ReadOnly,
    /// `O_RDWR`.
    ReadWrite,
    /// `O_RDWR` under a lock ([`super::FileDevice::lock`]). A block device must not be in use by the kernel
    /// (`O_EXCL`: mounted, or in an imported pool).
    Exclusive,
}

/// The path of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoPath {
    /// Page cache inline, then io_uring, then threads: the normal choice.
    Auto,
    /// Always io_uring, if available: for measurements and tests.
    Uring,
    /// Always threads: for measurements and tests.
    Threads,
}

/// When to bypass the page cache (`O_DIRECT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direct {
    /// Warm data is read fastest from the page cache.
    Never,
    /// Block devices only: the normal choice. Their cache is dropped at the last close, so it is never warm,
    /// and it goes stale while a file system or the ZFS module writes.
    BlockDevices,
    /// Always, or an error.
    Always,
}

/// How to open a file or block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Access rights.
    pub access: Access,
    /// Use of the page cache.
    pub direct: Direct,
    /// The path of transfers.
    pub io_path: IoPath,
    /// If another client has the lock that the storage offers, break it and fence that client.
    pub takes_over: bool,
}

impl OpenOptions {
    /// The fastest path, read-only.
    pub const READ_ONLY: OpenOptions = OpenOptions {
        access: Access::ReadOnly,
        direct: Direct::BlockDevices,
        io_path: IoPath::Auto,
        takes_over: false,
    };
    /// The fastest path, for reading and writing.
    pub const READ_WRITE: OpenOptions = OpenOptions { access: Access::ReadWrite, ..OpenOptions::READ_ONLY };
    /// The fastest path, exclusively.
    pub const EXCLUSIVE: OpenOptions = OpenOptions { access: Access::Exclusive, ..OpenOptions::READ_ONLY };

    /// The same, taking over.
    #[must_use]
    pub fn taking_over(self, takes_over: bool) -> OpenOptions {
        OpenOptions { takes_over, ..self }
    }
}

/// No file system requires more than a page.
const FILE_DIRECT_ALIGN: usize = 4096;

/// Time for a device in use to be released.
const BRIEFLY: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(5);

/// Retries while the device is in use, for up to [`BRIEFLY`].
pub(super) async fn unless_in_use<T: Send + 'static>(
    runtime: &Runtime,
    attempt: impl Fn() -> Result<T> + Send + Sync + 'static,
) -> Result<T> {
    let attempt = Arc::new(attempt);
    for _ in 0..BRIEFLY.as_millis() / LOOK.as_millis() {
        let one = attempt.clone();
        match runtime.blocking(move || one()).await {
            Err(DeviceError::InUse { .. }) => runtime.sleep(LOOK).await,
            outcome => return outcome,
        }
    }
    runtime.blocking(move || attempt()).await
}

/// Closed by a thread for blocking calls.
pub(super) struct OpenFile {
    /// `None` once closing.
    file: Option<File>,
    /// Locks on its other names.
    claims: Mutex<Vec<File>>,
    pub(super) waits: Waits,
    runtime: Runtime,
}

/// Calls of a file that may sleep, by its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// None: the file is in memory.
    Never,
    /// All but those asked not to.
    ForDisk,
    /// All.
    Always,
}

/// File systems whose calls sleep even if asked not to (`linux/magic.h`): FUSE, NFS, SMB, CIFS, 9p, Ceph.
const SLEEPING: [u32; 6] = [0x6573_5546, 0x6969, 0xfe53_4d42, 0xff53_4d42, 0x0102_1997, 0x00c3_6400];
/// tmpfs and ramfs.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

impl Waits {
    fn of(file: &File) -> Waits {
        match rustix::fs::fstatfs(file).map(|system| system.f_type as u32) {
            Ok(system) if IN_MEMORY.contains(&system) => Waits::Never,
            Ok(system) if !SLEEPING.contains(&system) => Waits::ForDisk,
            _ => Waits::Always,
        }
    }
}

impl OpenFile {
    pub(super) fn new(file: File, claims: Vec<File>, waits: Waits, runtime: &Runtime) -> Arc<OpenFile> {
        let (claims, runtime) = (Mutex::new(claims), runtime.clone());
        Arc::new(OpenFile { file: Some(file), claims, waits, runtime })
    }

    pub(super) fn lock(&self, path: &Arc<str>) -> Result<()> {
        *self.claims.lock() = lock(self, path)?;
        Ok(())
    }
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.file.as_ref().expect("it is open until it is dropped")
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl AsRawFd for OpenFile {
    fn as_raw_fd(&self) -> RawFd {
        (**self).as_raw_fd()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let files = (self.file.take(), std::mem::take(self.claims.get_mut()));
        self.runtime.start_blocking(move || drop(files));
    }
}

pub(super) struct Opened {
    pub(super) file: File,
    pub(super) claims: Vec<File>,
    pub(super) info: DeviceInfo,
    pub(super) direct_align: Option<usize>,
    pub(super) is_block: bool,
    pub(super) waits: Waits,
}

pub(super) fn open(path: &Path, options: OpenOptions) -> Result<Opened> {
    let name: Arc<str> = path.to_string_lossy().into();
    // Without O_CREAT it has an effect only on block devices.
    let exclusive = if options.access == Access::Exclusive && is_block(path) { libc::O_EXCL } else { 0 };
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(options.access != Access::ReadOnly)
        .custom_flags(libc::O_NONBLOCK | exclusive) // O_NONBLOCK: a pipe must not make us wait
        .open(path)
        .map_err(|error| open_error(&name, options, error))?;
    let failed = |error| DeviceError::Open { path: name.clone(), source: Arc::new(error) };
    let metadata = file.metadata().map_err(failed)?;
    check_kind(&name, &metadata)?;
    let claims = if options.access == Access::Exclusive { lock(&file, &name)? } else { Vec::new() };
    // Left set, it would make io_uring return EAGAIN instead of waiting for the disk.
    let flags = fcntl_getfl(&file).map_err(|errno| failed(errno.into()))? - OFlags::NONBLOCK;
    fcntl_setfl(&file, flags).map_err(|errno| failed(errno.into()))?;
    let block = metadata.file_type().is_block_device();
    let direct = match options.direct {
        Direct::Never => false,
        Direct::BlockDevices => block && fcntl_setfl(&file, flags | OFlags::DIRECT).is_ok(),
        Direct::Always => {
            fcntl_setfl(&file, flags | OFlags::DIRECT).map_err(|errno| failed(errno.into()))?;
            true
        }
    };
    // The end is the size, for files and block devices alike (the kernel returns the value of BLKGETSIZE64).
    let size_bytes = (&file).seek(SeekFrom::End(0)).map_err(failed)?;
    let direct_align = direct.then(|| match rustix::fs::ioctl_blksszget(&file) {
        Ok(logical_bytes) if block && logical_bytes.is_power_of_two() => logical_bytes as usize,
        _ => FILE_DIRECT_ALIGN,
    });
    let sector_bytes = rustix::fs::ioctl_blkpbszget(&file).ok().filter(|bytes| block && *bytes >= 512);
    let info = DeviceInfo {
        path: name,
        size_bytes,
        sector_bytes: sector_bytes.unwrap_or(512),
        rotational: if block { rotational(metadata.rdev()) } else { None },
        read_only: options.access == Access::ReadOnly,
        others_may_write: others_may_write(&metadata),
        nature: Nature::LOCAL,
    };
    let waits = Waits::of(&file);
    Ok(Opened { file, claims, info, direct_align, is_block: block, waits })
}

/// Whether users other than root and this program's own can write to a file, or to those below a block
/// device; true if unknown. A block device's group has access to all disks anyway.
fn others_may_write(found: &Metadata) -> bool {
    let is_block = found.file_type().is_block_device();
    let is_trusted = |uid| uid == 0 || uid == rustix::process::geteuid().as_raw();
    let is_ours = is_trusted(found.uid()) && served_by(found.dev()).is_none_or(is_trusted);
    let modes = if is_block { 0o002 } else { 0o022 };
    let below = if is_block { lies_on(found.rdev()) } else { Vec::new() };
    let is_open =
        |(path, _): &(PathBuf, bool)| std::fs::metadata(path).map_or(true, |below| others_may_write(&below));
    !is_ours || found.mode() & modes != 0 || below.iter().any(is_open)
}

/// The user serving a FUSE file system, and in control of its owners and modes.
///
/// `/proc/self/mountinfo`, a line: ID, parent, device, ..., ` - `, type, source, options (`user_id=1000`).
fn served_by(device: u64) -> Option<u32> {
    // Only root mounts FUSE file systems from block devices.
    if major(device) != 0 {
        return None;
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    user_in(&mounts, &format!("0:{}", minor(device)))
}

fn user_in(mounts: &str, number: &str) -> Option<u32> {
    let mut its = mounts.lines().filter(|line| line.split(' ').nth(2) == Some(number));
    let (_, fuse) = its.find_map(|line| line.split_once(" - fuse"))?;
    // The device's name is the user's choice.
    let options = fuse.split(' ').nth(2)?;
    options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
}

/// Locks a file and its other names, the latter while the returned files are open.
fn lock(file: &File, path: &Arc<str>) -> Result<Vec<File>> {
    lock_as(file, path, FlockOperation::NonBlockingLockExclusive)?;
    claim_other_names(file, path)
}

pub(super) fn lock_as(file: &File, path: &Arc<str>, how: FlockOperation) -> Result<()> {
    match rustix::fs::flock(file, how) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            Err(DeviceError::InUse { path: path.clone(), holder: holder(file).map(Arc::from) })
        }
        Err(errno) => Err(DeviceError::Open { path: path.clone(), source: Arc::new(errno.into()) }),
    }
}

/// The process that holds a file's lock: `process 42 (cenote serve -d .)`. `None` if unknown, as in
/// containers.
///
/// `/proc/locks`, a line: number, kind (`FLOCK`), `ADVISORY`, `WRITE`, process, device (major and minor in
/// hex) and inode, range.
fn holder(file: &File) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    let place = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().filter(|field| *field != "->").collect();
        let is_it = fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&&*place);
        fields.get(4).filter(|_| is_it)?.parse::<u32>().ok()
    })?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|command| !command.is_empty());
    let Some(command) = command else { return Some(format!("process {pid}")) };
    let words: Vec<_> = command.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    let command = words.join(" ");
    Some(format!("process {pid} ({})", command.trim_end()))
}

fn is_block(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// From sysfs; a partition shares its disk's queue, one folder up.
fn rotational(device: u64) -> Option<bool> {
    let folder = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let read = |queue: &str| std::fs::read_to_string(format!("{folder}/{queue}/rotational"));
    match read("queue").or_else(|_| read("../queue")).ok()?.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
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
        ErrorKind::ResourceBusy => {
            let holder = user_of(Path::new(&*path)).map(Arc::from);
            DeviceError::InUse { path, holder }
        }
        ErrorKind::PermissionDenied => {
            let access = if options.access == Access::ReadOnly { "read" } else { "read and write" };
            DeviceError::PermissionDenied { path, access }
        }
        _ => DeviceError::Open { path, source: Arc::new(error) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_fuse_mount_is_not_whom_its_source_names() {
        let mounts = "40 25 0:50 / /run rw,nosuid - tmpfs tmpfs rw,size=1k,mode=755\n\
            41 25 0:51 / /home/u/m rw,nosuid,nodev shared:9 - fuse.x a,user_id=0 rw,user_id=1000,group_id=0\n\
            42 25 0:52 / /tank rw - fuseblk.zfs tank rw,user_id=0,group_id=0,allow_other\n";
        assert_eq!(user_in(mounts, "0:51"), Some(1000));
        assert_eq!(user_in(mounts, "0:52"), Some(0));
        assert_eq!((user_in(mounts, "0:50"), user_in(mounts, "0:5")), (None, None));
    }
}
