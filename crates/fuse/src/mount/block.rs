//! A mount that `sync(2)` and `syncfs(2)` reach.
//!
//! Idea: since Linux 6.18, the kernel forwards them to a FUSE file system on a block device (`fuseblk`). So
//! each mount gets an empty one: a loop device over a piece of memory, which the kernel frees with the mount.
//!
//! The mount table shows the device's path: it should be the dataset's name. So the device node has that path
//! in an unattached tmpfs, and a thread with that working directory makes the mount.
//!
//! ```text
//!   tmpfs (nowhere)   tank/home: node of /dev/loop7 --- loop7: 64 KiB of memory
//!      ^ working directory while `fuseblk` is made with source=tank/home
//! ```
//!
//! Source: Linux `fs/fuse/inode.c` (`fuse_sync_fs`, `fuse_get_tree`), `drivers/block/loop.c`, loop(4).

#![allow(unsafe_code)] // ioctls of loop devices, and a thread's own working directory, have no safe wrappers

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;

use rustix::fs::{
    FileType, MemfdFlags, Mode, OFlags, fstat, ftruncate, memfd_create, mkdirat, mknodat, open,
};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::kernel;

const FIRST_KERNEL: (u32, u32) = (6, 18);
/// Enough for a block device.
const LOOP_BYTES: u64 = 64 << 10;
/// `s_blocksize` of any other FUSE mount.
pub(super) const BLOCK_BYTES: u32 = 4096;

const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
/// `LO_FLAGS_AUTOCLEAR`: frees the device at its last close.
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// `sizeof(struct loop_config)`: fd, block_size; `loop_info64` (232 bytes); 64 reserved.
const LOOP_CONFIG_BYTES: usize = 304;
const FLAGS_AT: usize = 8 + 52;
const NAME_AT: usize = 8 + 56;
/// Another process may take the free device first.
const TRIES: usize = 16;

pub(super) fn is_of_use() -> bool {
    kernel::is_at_least(FIRST_KERNEL)
}

/// Makes the file system of `opened` on its own loop device, shown as `name`.
pub(super) fn create(opened: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    // Open until the file system has it.
    let device = loop_device()?;
    let nowhere = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(nowhere.as_fd())?;
    let folder = fsmount(nowhere.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    for (at, _) in name.match_indices('/') {
        mkdirat(&folder, &name[..at], Mode::RWXU)?;
    }
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(&folder, name, FileType::BlockDevice, mode, fstat(&device)?.st_rdev)?;
    let make = || {
        // SAFETY: the thread ends here; nothing of the process expects it to share its working directory.
        unsafe { unshare_unsafe(UnshareFlags::FS)? };
        rustix::process::fchdir(&folder)?;
        fsconfig_create(opened)
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("cenote-mount".into()).spawn_scoped(scope, make);
        thread.map_err(errno)?.join().unwrap_or(Err(Errno::IO))
    })
}

/// Freed by its last close.
fn loop_device() -> Result<OwnedFd, Errno> {
    let memory = memfd_create("cenote", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, LOOP_BYTES)?;
    let control = open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut config = [0; LOOP_CONFIG_BYTES];
    config[..4].copy_from_slice(&memory.as_raw_fd().to_ne_bytes());
    config[FLAGS_AT..][..4].copy_from_slice(&LO_FLAGS_AUTOCLEAR.to_ne_bytes());
    config[NAME_AT..][..6].copy_from_slice(b"cenote");
    for _ in 0..TRIES {
        // SAFETY: takes no argument, and returns a number.
        let number = unsafe { ioctl(&control, GetFree)? };
        let path = format!("/dev/loop{number}");
        let device = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // SAFETY: the kernel reads a `struct loop_config`, which has that size.
        match unsafe { ioctl(&device, Setter::<LOOP_CONFIGURE, _>::new(config)) } {
            Err(Errno::BUSY) => {}
            done => return done.map(|()| device),
        }
    }
    Err(Errno::BUSY)
}

struct GetFree;

// SAFETY: the operation takes no argument, and its result is a number.
unsafe impl Ioctl for GetFree {
    type Output = i64;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut std::ffi::c_void) -> Result<i64, Errno> {
        Ok(out.into())
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
