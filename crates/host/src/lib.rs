//! The daemon's state: open pools, their datasets as mounted file systems, their volumes as disks.
//!
//! ```text
//!   kernel --FUSE--> files (Vfs over one dataset, its snapshots below .zfs) --> FsWriter --> Engine
//!   doors of `serve` --> volumes (a disk over one dataset) --> VolumeWriter --> Engine
//! ```
//!
//! Read in this order: [`pools`] (open pools), [`files`] (a dataset as a mounted file system), [`mount`] (one
//! mount's lifetime), [`mounts`] (a pool's mounts, which follow its changes), [`volumes`] (a dataset as a
//! disk). [`lock`], [`record`], [`own`], [`places`], [`devices`] and [`waiting`] let the next daemon find all
//! that again. [`tuning`] has the tunables, [`memory`] bounds memory, and [`kstat`], [`traffic`], [`events`],
//! [`copies`] and [`suspended`] report.

pub mod cancel;
pub mod copies;
pub mod devices;
pub mod events;
pub mod files;
pub mod kstat;
pub mod lock;
pub mod memory;
pub mod mount;
pub mod mounts;
pub mod own;
pub mod places;
pub mod pools;
pub mod record;
pub mod suspended;
pub mod traffic;
pub mod tuning;
pub mod volumes;
pub mod waiting;

pub use files::{Atime, Files, FilesOptions};
pub use mount::Mount;
