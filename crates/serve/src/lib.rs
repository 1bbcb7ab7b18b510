//! What serves an open pool.
//!
//! ```text
//!   kernel --FUSE--> files (Vfs over one dataset, its snapshots below .zfs) --> FsWriter --> Engine
//!   hosts  --NBD, iSCSI, ublk--> volumes (a disk over one dataset) --> VolumeWriter --> Engine
//! ```
//!
//! Read in this order: [`files`] (a dataset as a mounted file system), [`mount`] (from mounting to
//! unmounting), [`pools`] (what the daemon holds), [`lock`], [`record`], `own`, [`places`] and [`waiting`]
//! (how the next daemon finds it again), [`tuning`] (what may be changed meanwhile), [`memory`] (how much
//! they hold), [`kstat`] (what is counted, as OpenZFS shows it), [`socket`] and [`run`] (commands). For
//! volumes: [`volumes`] (a dataset as a disk), [`nbd`], [`iscsi`], [`vhost`], [`ublk`], [`listen`], [`tls`].

pub mod cancel;
pub mod devices;
mod disk;
pub mod events;
pub mod files;
pub mod iscsi;
pub mod kstat;
pub mod listen;
pub mod lock;
pub mod memory;
pub mod mount;
pub mod mounts;
pub mod nbd;
mod own;
pub mod places;
pub mod pools;
pub mod record;
pub mod run;
pub mod socket;
pub mod suspended;
pub mod tls;
pub mod traffic;
pub mod tuning;
pub mod ublk;
pub mod vhost;
pub mod volumes;
pub mod waiting;

pub use files::{Atime, Files, FilesOptions};
pub use mount::Mount;
