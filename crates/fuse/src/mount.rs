//! Mounting: `mount(2)` as root, `fusermount3` for everyone else; and taking mounts away.
//!
//! A program that is killed leaves its mount behind: nothing below answers but `ENOTCONN`. [`check`] and
//! [`clear_dead`] take it away.
//!
//! Source: Linux `fs/fuse/inode.c` (mount options), libfuse `lib/mount.c` (the protocol of `fusermount3`: it
//! mounts and sends the descriptor of `/dev/fuse` over the socket whose number `_FUSE_COMMFD` holds).

pub mod users;

use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use crate::abi::MAX_WRITE_BYTES;
use crate::guard::{self, Watched};

/// The device that serves file systems.
const DEVICE: &str = "/dev/fuse";
/// Read-ahead of a mount, if this process may set it: the kernel's default is 128 KiB.
const READ_AHEAD_KIB: u32 = 4096;

/// Why nothing was mounted or unmounted.
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
    #[error("{dir}: can't be unmounted: it is in use{}", users::said(users))]
    Busy { dir: String, users: Vec<String> },
    #[error("{dir}: can't be made read-only: it is being written to{}", users::said(users))]
    BusyWriting { dir: String, users: Vec<String> },
}

/// How a file system is mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// What the mount table shows as the device.
    pub source: String,
    /// The type is shown as `fuse.` and this.
    pub subtype: &'static str,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Programs can't be run.
    pub no_exec: bool,
    /// Set-id bits have no effect.
    pub no_suid: bool,
    /// Device nodes have no effect.
    pub no_dev: bool,
    /// Other users than the one who mounted may use it. Always so as root.
    pub allow_other: bool,
}

/// A mounted file system.
#[derive(Debug, Clone)]
pub struct Mounted {
    dir: PathBuf,
    by_root: bool,
    _watched: Option<Arc<Watched>>,
}

/// Whether `dir` can be mounted on: to be asked before work that would be for nothing. If the program that
/// had mounted a file system of this `subtype` there has died, what it left is taken away.
///
/// # Errors
/// No device, no such directory.
pub fn check(dir: &Path, subtype: &str) -> Result<(), MountError> {
    let name = || dir.display().to_string();
    std::fs::metadata(DEVICE).map_err(|source| MountError::NoDevice { source })?;
    clear_dead(dir, subtype)?;
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(MountError::NotDirectory { dir: name() }),
        Err(source) => Err(MountError::Mount { dir: name(), source }),
    }
}

/// Takes away what programs that have died left mounted on `dir`.
///
/// # Errors
/// It can't be unmounted.
pub fn clear_dead(dir: &Path, subtype: &str) -> Result<(), MountError> {
    while is_mounted(dir, subtype) && is_dead(dir) {
        unmount(dir, true)?;
    }
    Ok(())
}

/// Nobody answers for a file system. What the kernel has cached of it does not count. `ECONNABORTED`: the
/// kernel is just taking its connection down.
fn is_dead(dir: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let asked = statx(CWD, dir, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    matches!(asked, Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Whether the last mount on `dir` is of this kind. `/proc/self/mountinfo`: the fifth field is the mount
/// point, and the type comes behind a dash; blanks are written in octal.
fn is_mounted(dir: &Path, subtype: &str) -> bool {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return false };
    let escaped = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        byte => vec![*byte],
    };
    let dir: Vec<u8> = dir.as_os_str().as_bytes().iter().flat_map(escaped).collect();
    let kind = format!("fuse.{subtype}");
    let mut of_dir = table.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        (fields.nth(4)? == dir).then(|| fields.skip_while(|field| *field != b"-").nth(1))?
    });
    of_dir.next_back() == Some(kind.as_bytes())
}

/// Mounts on `dir` and opens the connection.
///
/// # Errors
/// No device, no rights, no such directory.
pub fn mount(dir: &Path, options: &MountOptions) -> Result<(OwnedFd, Mounted), MountError> {
    let by_root = rustix::process::geteuid().is_root();
    let device = if by_root { mount_as_root(dir, options)? } else { mount_by_helper(dir, options)? };
    let number = device_of(dir);
    if let Some(number) = number.filter(|_| by_root) {
        set_read_ahead(number);
    }
    // Connections are named by the minor number of what is mounted.
    let watched = number.map(|(_, minor)| Arc::new(guard::watch(minor)));
    Ok((device, Mounted { dir: dir.to_owned(), by_root, _watched: watched }))
}

fn mount_as_root(dir: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |source: Errno| MountError::Mount { dir: dir.display().to_string(), source: source.into() };
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|source| MountError::NoDevice { source: source.into() })?;
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,\
         max_read={MAX_WRITE_BYTES}",
        device.as_raw_fd()
    );
    let text = |text: &[u8]| CString::new(text).map_err(|_| failed(Errno::INVAL));
    let data = text(data.as_bytes())?;
    let flags = flags_of(options);
    let kind = text(format!("fuse.{}", options.subtype).as_bytes())?;
    let (source, target) = (text(options.source.as_bytes())?, text(dir.as_os_str().as_bytes())?);
    rustix::mount::mount(&*source, &*target, &*kind, flags, &*data).map_err(failed)?;
    Ok(device)
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
    // The helper inherits its end: no CLOEXEC there.
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
    let device = receive_descriptor(&ours).map_err(failed)?;
    let output = helper.wait_with_output().map_err(|source| MountError::Mount { dir: name(), source })?;
    device.ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr);
        MountError::Refused { dir: name(), why: why.trim().trim_start_matches("fusermount3: ").into() }
    })
}

/// `None`: the other side closed the socket without sending one.
fn receive_descriptor(socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return Ok(descriptors.next());
        }
    }
    Ok(None)
}

impl Mounted {
    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts. `lazy`: takes it out of the tree now, and ends when nobody uses it any more.
    ///
    /// # Errors
    /// It is in use.
    pub fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        take_down(&self.dir, lazy, self.by_root)
    }

    /// Gives it other options while it is mounted: whether it can be written to, and what may be run from it.
    ///
    /// # Errors
    /// A file is open for writing, and it is to be read-only; only root may.
    pub fn remount(&self, options: &MountOptions) -> Result<(), MountError> {
        let name = || self.dir.display().to_string();
        rustix::mount::mount_remount(&self.dir, flags_of(options), c"").map_err(|errno| match errno {
            Errno::BUSY => MountError::BusyWriting { dir: name(), users: users::of(&self.dir) },
            errno => MountError::Mount { dir: name(), source: errno.into() },
        })
    }
}

/// Best effort: a smaller read-ahead costs speed, nothing else.
fn set_read_ahead((major, minor): (u32, u32)) {
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    drop(std::fs::write(path, READ_AHEAD_KIB.to_string()));
}

/// The device number of a file system. Its attributes are not asked for: perhaps nobody answers yet, or any
/// more.
fn device_of(path: &Path) -> Option<(u32, u32)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let stat = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

/// Unmounts what is mounted on a directory, by whomever.
///
/// # Errors
/// It is in use, or not ours to unmount.
pub fn unmount(dir: &Path, lazy: bool) -> Result<(), MountError> {
    take_down(dir, lazy, rustix::process::geteuid().is_root())
}

fn take_down(dir: &Path, lazy: bool, by_root: bool) -> Result<(), MountError> {
    let name = || dir.display().to_string();
    let failed = |source| MountError::Unmount { dir: name(), source };
    if by_root {
        let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return rustix::mount::unmount(dir, flags).map_err(|errno| match errno {
            Errno::BUSY => MountError::Busy { dir: name(), users: users::of(dir) },
            errno => failed(errno.into()),
        });
    }
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
