//! File systems of pools that the daemon holds: verbs that mount and unmount them.
//!
//! Source: OpenZFS `zfs_main.c` (`share_mount`, `unshare_unmount`), zfs-mount(8).

pub mod mount;
pub mod unmount;
