//! What a daemon holds: pools that stay open, their datasets as mounted file systems, their volumes as disks.
//!
//! ```text
//!   kernel --FUSE--> files (Vfs over one dataset, its snapshots below .zfs) --> FsWriter --> Engine
//!   doors of `serve` --> volumes (a disk over one dataset) --> VolumeWriter --> Engine
//! ```
//!
//! Read in this order: [`pools`] (what is held), [`files`] (a dataset as a mounted file system), [`mount`]
//! (from mounting to unmounting), [`mounts`] (all those of a pool, which follow its changes), [`volumes`] (a
//! dataset as a disk). [`lock`], [`record`], [`own`], [`places`], [`devices`] and [`waiting`]: how the next
//! daemon finds all that again. [`tuning`]: what may be changed meanwhile; [`memory`]: how much they hold;
//! [`kstat`], [`traffic`], [`events`], [`suspended`]: what is counted and told.

pub mod cancel;
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
