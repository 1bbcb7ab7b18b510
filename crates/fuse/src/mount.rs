//! Mounting and unmounting: `mount(2)` as root, `fusermount3` for other users.
//!
//! Idea: a mount is identified by its id ([`table`]), not its path, so mounts that others put over it are
//! never touched. It is made without a path and attached by another process ([`hand`]); before Linux 5.2,
//! this process looks the path up itself. A killed program leaves a mount that answers only `ENOTCONN`;
//! [`check`] removes it.
//!
//! Source: Linux `fs/fuse/inode.c` (mount options), fsopen(2), move_mount(2), libfuse `lib/mount.c`
//! (`fusermount3` sends the descriptor of `/dev/fuse` over the socket numbered `_FUSE_COMMFD`).

mod block;
pub mod hand;
pub mod table;
pub mod users;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::abi::MAX_WRITE_BYTES;
use crate::guard::{self, Watched};
use crate::simulated::SimulatedKernel;
use hand::{Ask, Failure};
use table::Table;

const DEVICE: &str = "/dev/fuse";
/// The kernel's default is 128 KiB.
const READ_AHEAD_KIB: u32 = 4096;
/// Share of the memory that may hold delayed writes. The kernel's default for FUSE, 1 %, makes writers wait
/// from the start; all of it would let a daemon that is stuck stop the writers of other file systems.
const DELAYED_PERCENT: u32 = 5;

/// A mount or unmount failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum MountError {
    #[error("{}: {source}: load the kernel module `fuse`, or give the container the device", DEVICE)]
    NoDevice { source: io::Error },
    #[error("{dir}: can't be mounted on: {source}")]
    Mount { dir: String, source: io::Error },
    #[error("{dir}: can't be mounted on: it is not a directory")]
    NotDirectory { dir: String },
    #[error("{dir}: only root may mount, unless `fusermount3` is installed (package fuse3): {source}")]
    NoHelper { dir: String, source: io::Error },
    #[error("{dir}: fusermount3 refused: {why}")]
    Refused { dir: String, why: String },
    #[error("{dir}: can't be unmounted: {source}")]
    Unmount { dir: String, source: io::Error },
    #[error("{dir}: can't be unmounted: {by} is mounted over it")]
    Covered { dir: String, by: String },
    #[error("{dir}: something on the way there does not answer")]
    Silent { dir: String },
    #[error("{dir}: can't be mounted on: it is not empty")]
    NotEmpty { dir: String },
    #[error("{dir}: can't be unmounted: it is in use{}", users::said(users))]
    Busy { dir: String, users: Vec<String> },
    #[error("{dir}: can't be made read-only: it is being written to{}", users::said(users))]
    BusyWriting { dir: String, users: Vec<String> },
}

/// Options of a mount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// The device shown in the mount table.
    pub source: String,
    /// The type is shown as `fuse.SUBTYPE`.
    pub subtype: &'static str,
    /// Read-only.
    pub read_only: bool,
    /// Programs can't be run.
    pub no_exec: bool,
    /// Set-id bits have no effect.
    pub no_suid: bool,
    /// Device nodes have no effect.
    pub no_dev: bool,
    /// Open to all; always so as root.
    pub allow_other: bool,
    /// `sync(2)` and `syncfs(2)` reach it, if the kernel can. Root only.
    pub hears_sync: bool,
    /// See [`crate::SessionOptions::writeback_cache`].
    pub delays_writes: bool,
}

/// A mounted file system.
#[derive(Debug, Clone)]
pub struct Mounted {
    dir: PathBuf,
    by_root: bool,
    /// 0: unknown.
    id: u64,
    watched: Option<Arc<Watched>>,
    simulated: Option<SimulatedKernel>,
}

/// Checks early that `dir` can be mounted on. Removes a dead program's mount of this `subtype`.
///
/// # Errors
/// No device, no such directory.
pub fn check(dir: &Path, subtype: &str) -> Result<(), MountError> {
    let name = || dir.display().to_string();
    std::fs::metadata(DEVICE).map_err(|source| MountError::NoDevice { source })?;
    clear_dead(dir, subtype).map_err(|errno| not_mounted(dir, errno.into()))?;
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(MountError::NotDirectory { dir: name() }),
        Err(source) => Err(MountError::Mount { dir: name(), source }),
    }
}

/// Makes a mount point if needed. Removes a dead program's mount of this subtype.
///
/// # Errors
/// It can't be made, or is not empty without `overlay`.
pub fn prepare(dir: &Path, subtype: &str, overlay: bool) -> Result<(), MountError> {
    let done = hand::call(&Ask::Prepare { dir, subtype, overlay }, None);
    done.map_err(|failure| match failure.errno {
        Errno::NOTEMPTY => MountError::NotEmpty { dir: dir.display().to_string() },
        _ => not_mounted(dir, failure),
    })
}

fn not_mounted(dir: &Path, failure: Failure) -> MountError {
    let dir = dir.display().to_string();
    match failure.errno {
        Errno::TIMEDOUT => MountError::Silent { dir },
        errno => MountError::Mount { dir, source: errno.into() },
    }
}

fn clear_dead(dir: &Path, subtype: &str) -> Result<(), Errno> {
    let is_last = |table: Table| {
        let last = table.lines().iter().rfind(|line| line.dir == dir);
        last.is_some_and(|line| line.fuse_subtype() == Some(subtype))
    };
    // The table is as long as there are mounts.
    while is_dead(dir) && Table::read().is_ok_and(is_last) {
        rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// Whether the server is gone. `ECONNABORTED`: its connection is being torn down. `ECANCELED`: the request's
/// ring ended (`fuse_uring_send_in_task`).
fn is_dead(dir: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let asked = statx(CWD, dir, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    matches!(asked, Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED))
}

/// Mounts on `dir` and opens the connection.
///
/// # Errors
/// No device, no rights, no such directory.
pub fn mount(dir: &Path, options: &MountOptions) -> Result<(OwnedFd, Mounted), MountError> {
    let by_root = rustix::process::geteuid().is_root();
    let (device, made) = match by_root {
        true => mount_as_root(dir, options)?,
        false => (mount_by_helper(dir, options)?, None),
    };
    let made = made.or_else(|| Made::of(CWD, dir));
    if let Some(made) = made.filter(|_| by_root) {
        tune(made.device, "read_ahead_kb", READ_AHEAD_KIB);
        if options.delays_writes {
            tune(made.device, "max_ratio", DELAYED_PERCENT);
        }
    }
    let watched = made.map(|made| Arc::new(guard::watch(guard::connection(made.device), made.id)));
    let id = made.map_or(0, |made| made.id);
    Ok((device, Mounted { dir: dir.to_owned(), by_root, id, watched, simulated: None }))
}

#[derive(Clone, Copy)]
struct Made {
    id: u64,
    device: (u32, u32),
}

impl Made {
    /// Without attributes: there may be no server to answer.
    fn of(folder: impl AsFd, path: impl rustix::path::Arg) -> Option<Made> {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
        let stat = statx(folder, path, flags, StatxFlags::MNT_ID).ok()?;
        let has_id = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        let id = if has_id { stat.stx_mnt_id } else { 0 };
        Some(Made { id, device: (stat.stx_dev_major, stat.stx_dev_minor) })
    }
}

fn mount_id(folder: impl AsFd, path: &Path) -> Option<u64> {
    Made::of(folder, path).map(|made| made.id).filter(|&id| id != 0)
}

fn mount_as_root(dir: &Path, options: &MountOptions) -> Result<(OwnedFd, Option<Made>), MountError> {
    let failed = |source: Errno| MountError::Mount { dir: dir.display().to_string(), source: source.into() };
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|source| MountError::NoDevice { source: source.into() })?;
    let mount = match options.hears_sync && block::is_of_use() {
        // A container may have no loop devices.
        true => detached(&device, options, Kind::Block).or_else(|_| detached(&device, options, Kind::Plain)),
        false => detached(&device, options, Kind::Plain),
    };
    match mount {
        Ok(mount) => {
            let made = Made::of(&mount, "");
            hand::call(&Ask::Attach { dir }, Some(mount.as_fd()))
                .map_err(|failure| not_mounted(dir, failure))?;
            Ok((device, made))
        }
        // An old kernel, or a container that forbids it.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {
            mount_by_path(&device, dir, options).map_err(failed)?;
            Ok((device, None))
        }
        Err(errno) => Err(failed(errno)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `fuse`.
    Plain,
    /// On a loop device.
    Block,
}

/// Makes an unattached mount.
fn detached(device: &OwnedFd, options: &MountOptions, kind: Kind) -> Result<OwnedFd, Errno> {
    let name = if kind == Kind::Block { "fuseblk" } else { "fuse" };
    let opened = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    let opened = opened.as_fd();
    for (key, value) in [
        ("source", &*options.source),
        ("subtype", options.subtype),
        ("fd", &*device.as_raw_fd().to_string()),
        ("rootmode", "40000"),
        ("user_id", "0"),
        ("group_id", "0"),
        ("max_read", &*MAX_WRITE_BYTES.to_string()),
    ] {
        fsconfig_set_string(opened, key, value)?;
    }
    fsconfig_set_flag(opened, "allow_other")?;
    fsconfig_set_flag(opened, "default_permissions")?;
    if options.read_only {
        fsconfig_set_flag(opened, "ro")?;
    }
    match kind {
        Kind::Plain => fsconfig_create(opened)?,
        Kind::Block => {
            fsconfig_set_string(opened, "blksize", block::BLOCK_BYTES.to_string())?;
            block::create(opened, &options.source)?;
        }
    }
    let mut attributes = MountAttrFlags::empty();
    for (is_set, attribute) in [
        (options.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (options.no_exec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (options.no_suid, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (options.no_dev, MountAttrFlags::MOUNT_ATTR_NODEV),
    ] {
        attributes.set(attribute, is_set);
    }
    fsmount(opened, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn mount_by_path(device: &OwnedFd, dir: &Path, options: &MountOptions) -> Result<(), Errno> {
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,\
         max_read={MAX_WRITE_BYTES}",
        device.as_raw_fd()
    );
    let text = |text: &[u8]| CString::new(text).map_err(|_| Errno::INVAL);
    let data = text(data.as_bytes())?;
    let flags = flags_of(options);
    let kind = text(format!("fuse.{}", options.subtype).as_bytes())?;
    let (source, target) = (text(options.source.as_bytes())?, text(dir.as_os_str().as_bytes())?);
    rustix::mount::mount(&*source, &*target, &*kind, flags, &*data)
}

fn flags_of(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    for (is_set, flag) in [
        (options.read_only, MountFlags::RDONLY),
        (options.no_exec, MountFlags::NOEXEC),
        (options.no_suid, MountFlags::NOSUID),
        (options.no_dev, MountFlags::NODEV),
    ] {
        flags.set(flag, is_set);
    }
    flags
}

fn mount_by_helper(dir: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let name = || dir.display().to_string();
    let failed = |source: Errno| MountError::Mount { dir: name(), source: source.into() };
    // The helper inherits its end, so no CLOEXEC.
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).map_err(failed)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC).map_err(failed)?;
    let mut words = vec!["default_permissions".to_owned(), format!("subtype={}", options.subtype)];
    words.push(format!("fsname={}", options.source.replace('\\', "\\\\").replace(',', "\\,")));
    for (is_set, word) in [
        (options.read_only, "ro"),
        (options.no_exec, "noexec"),
        (options.no_suid, "nosuid"),
        (options.no_dev, "nodev"),
        (options.allow_other, "allow_other"),
    ] {
        words.extend(is_set.then(|| word.to_owned()));
    }
    let helper = Command::new("fusermount3")
        .args(["-o", &words.join(","), "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| MountError::NoHelper { dir: name(), source })?;
    drop(theirs);
    // `None`: closed without a descriptor.
    let (_, device) = hand::recv(&ours, &mut [0]).map_err(failed)?;
    let output = helper.wait_with_output().map_err(|source| MountError::Mount { dir: name(), source })?;
    device.ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr);
        MountError::Refused { dir: name(), why: why.trim().trim_start_matches("fusermount3: ").into() }
    })
}

impl Mounted {
    /// A mount in a simulated machine.
    pub(crate) fn simulated(dir: &Path, kernel: SimulatedKernel, id: u64) -> Mounted {
        Mounted { dir: dir.to_owned(), by_root: true, id, watched: None, simulated: Some(kernel) }
    }

    /// The mount point.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether it is still attached.
    pub fn is_there(&self) -> bool {
        if let Some(kernel) = &self.simulated {
            return kernel.is_there(self.id);
        }
        self.id == 0 || Table::read().is_ok_and(|table| table.get(self.id).is_some())
    }

    /// Unmounts, unless already done. `lazy`: detaches it now; it ends with its last user.
    ///
    /// # Errors
    /// It is in use, or covered by another mount.
    pub fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        if let Some(kernel) = &self.simulated {
            return kernel.unmount(self.id, lazy);
        }
        if !self.by_root {
            return self.unless_explained(|| take_down_by_helper(&self.dir, lazy));
        }
        // It checks the id: the path may lead to another mount.
        let Err(failure) = hand::call(&Ask::Unmount { dir: &self.dir, id: self.id, lazy }, None) else {
            return Ok(());
        };
        let name = || self.dir.display().to_string();
        // The table is as long as there are mounts: it only explains a failure.
        self.unless_explained(|| {
            Err(match failure.errno {
                Errno::BUSY => MountError::Busy { dir: name(), users: failure.users },
                Errno::STALE => MountError::Covered { dir: name(), by: "another file system".into() },
                Errno::TIMEDOUT => MountError::Silent { dir: name() },
                errno => MountError::Unmount { dir: name(), source: errno.into() },
            })
        })
    }

    /// Done if not attached any more, an error if covered; otherwise `or`.
    fn unless_explained(&self, or: impl FnOnce() -> Result<(), MountError>) -> Result<(), MountError> {
        if self.id != 0
            && let Ok(table) = Table::read()
        {
            if table.get(self.id).is_none() {
                return Ok(());
            }
            if let Some(by) = table.covering(self.id) {
                let by = format!("'{}' ({}, on {})", by.source, by.kind, by.dir.display());
                return Err(MountError::Covered { dir: self.dir.display().to_string(), by });
            }
        }
        or()
    }

    /// Aborts its connection: its users get an error.
    pub fn abort(&self) {
        match (&self.watched, &self.simulated) {
            (_, Some(kernel)) => kernel.abort(self.id),
            (Some(watched), None) => watched.abort(),
            (None, None) => {}
        }
    }

    /// Changes its options.
    ///
    /// # Errors
    /// Read-only, and a file is open for writing; only root may.
    pub fn remount(&self, options: &MountOptions) -> Result<(), MountError> {
        if let Some(kernel) = &self.simulated {
            return kernel.remount(self.id, options);
        }
        let name = || self.dir.display().to_string();
        let flags = flags_of(options).bits();
        let done = hand::call(&Ask::Remount { dir: &self.dir, flags }, None);
        done.map_err(|Failure { errno, users }| match errno {
            Errno::BUSY => MountError::BusyWriting { dir: name(), users },
            Errno::TIMEDOUT => MountError::Silent { dir: name() },
            errno => MountError::Mount { dir: name(), source: errno.into() },
        })
    }
}

/// Best effort: the kernel's default only costs speed.
fn tune((major, minor): (u32, u32), name: &str, value: u32) {
    // File systems without a device have major 0.
    let kind = if major == 0 { "" } else { "-fuseblk" };
    let path = format!("/sys/class/bdi/{major}:{minor}{kind}/{name}");
    drop(std::fs::write(path, value.to_string()));
}

fn device_of(path: &Path) -> Option<(u32, u32)> {
    Made::of(CWD, path).map(|made| made.device)
}

fn take_down_by_helper(dir: &Path, lazy: bool) -> Result<(), MountError> {
    let name = || dir.display().to_string();
    let failed = |source| MountError::Unmount { dir: name(), source };
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(dir).stdin(Stdio::null());
    let output = command.output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match why.contains("busy") {
        true => Err(MountError::Busy { dir: name(), users: users::of(dir) }),
        false => Err(failed(io::Error::other(why))),
    }
}
