//! Lists, reads, copies, makes and removes files of pools, without a mount.
//!
//! Idea: a request names files by [`Target`]s; each of their pools and file systems is opened once. Listings
//! come in parts ([`crate::parts`]). Files of the machine come as descriptors that the caller opened with its
//! own rights ([`host`]).

pub mod cat;
mod change;
pub mod copy;
pub mod du;
pub mod find;
pub mod host;
mod listed;
pub mod ls;
pub mod mkdir;
mod place;
pub mod rewriting;
pub mod rm;
pub mod stat;
mod target;

pub use cenote_format::units::ObjectId;
pub use cenote_fs::{Attr, FileKind, Timestamp};
pub use cenote_inspect::scan::sort::Sorter;
pub use listed::{File, Files};
pub use target::{Target, split_path};
