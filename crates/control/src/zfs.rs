//! The verbs of `zfs`, one file each, and the names of datasets (`select`) and properties (`wanted`,
//! `owner`).
//!
//! `points`: snapshots, bookmarks, holds. `tree` makes, renames and destroys datasets. `properties` are set
//! and cleared. `space` of users, groups, projects. `rights` are delegated; `permitted`: permissions for
//! changes. `keys` are loaded and changed. `mounts`: file systems of the daemon's pools. `program`: changes
//! by a script, in one txg.

pub mod get;
pub mod keys;
pub mod list;
pub mod mounts;
pub mod owner;
pub mod permitted;
pub mod points;
pub mod program;
pub mod properties;
pub mod receive;
pub mod rights;
pub mod select;
pub mod send;
pub mod shown;
pub mod space;
pub mod tree;
pub mod wait;
pub mod wanted;

pub use shown::{Datasets, Shown};
