//! The ioctl that asks a mounted file system, ours or OpenZFS's, to rewrite part of a file.
//!
//! Source: OpenZFS 2.4 `zfs.h` (`zfs_rewrite_args_t`, `ZFS_IOC_REWRITE`, `ZFS_REWRITE_*`).

#![allow(unsafe_code)] // rustix has no safe wrapper of this ioctl

use std::io;
use std::os::fd::AsFd;

use cenote_host::files::rewrite::{
    ZFS_IOC_REWRITE, ZFS_REWRITE_PHYSICAL, ZFS_REWRITE_SKIP_BRT, ZFS_REWRITE_SKIP_SNAPSHOT,
};
use rustix::ioctl::{Setter, ioctl};

/// `zfs_rewrite_args_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    offset_bytes: u64,
    len_bytes: u64,
    flags: u64,
    zero: u64,
}

const _: () = assert!(size_of::<Asked>() == 32, "the size is part of the number of the ioctl");

impl Asked {
    /// No range yet.
    pub fn new(physical: bool, skip_snapshots: bool, skip_clones: bool) -> Asked {
        let all = [
            (physical, ZFS_REWRITE_PHYSICAL),
            (skip_snapshots, ZFS_REWRITE_SKIP_SNAPSHOT),
            (skip_clones, ZFS_REWRITE_SKIP_BRT),
        ];
        let flags = all.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
        Asked { offset_bytes: 0, len_bytes: 0, flags, zero: 0 }
    }

    /// Rewrites a range, which is not empty.
    ///
    /// # Errors
    /// `ENOTTY`: the file system can't do it; `EOPNOTSUPP`: its pool lacks feature `physical_rewrite`.
    pub fn rewrite(self, file: impl AsFd, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let asked = Asked { offset_bytes, len_bytes, ..self };
        // SAFETY: the kernel reads a `zfs_rewrite_args_t`, which this is.
        unsafe { ioctl(file, Setter::<ZFS_IOC_REWRITE, Asked>::new(asked)) }?;
        Ok(())
    }
}
