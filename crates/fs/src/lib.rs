//! The POSIX file system (ZPL) and volumes: everything for `ls`, `stat`, `cat`, `getfattr` and `zfs diff`,
//! and for changes.
//!
//! ```text
//!   Objset --Filesystem::open--> Filesystem --lookup, read_dir, resolve--> ObjectId --attr--> Attr
//!       \                            |        open_file --> OpenFile --> bytes, holes
//!        \--Volume::open--> Volume   |        read_link, xattrs, acl, path_of
//!                                    |--replay(records)--> Filesystem   the intent log applied in memory
//!                                    '--diff, manifest                  changes; everything, hashed
//!   LiveObjset --FsWriter::open--> FsWriter --create, write, rename...--> the same Filesystem, changed
//! ```
//!
//! Read in this order: [`filesystem`] (the structure of a file system), [`attr`] (attributes straight from
//! dnodes, the fast path of scans), [`directory`], [`file`](mod@file), [`xattr`], [`acl`], [`userspace`],
//! [`volume`]; then the modules built on them: `overlay` and [`replay`], [`diff`], [`manifest`], `salvage`;
//! and [`write`](mod@write), which changes all of this in memory.
#![forbid(unsafe_code)]

pub mod acl;
pub mod attr;
pub mod diff;
pub mod directory;
pub mod error;
pub mod file;
pub mod filesystem;
mod log_attrs;
pub mod manifest;
mod overlay;
pub mod path;
pub mod replay;
mod salvage;
pub mod userspace;
pub mod volume;
pub mod write;
pub mod xattr;

pub use attr::{Attr, Decoded, FileKind, Timestamp};
pub use directory::{DirEntry, LastLink, ReadDir};
pub use error::{FsError, Refusal, Result};
pub use file::OpenFile;
pub use filesystem::{CaseSensitivity, Filesystem, MasterNode, Normalization};
pub use path::PathFinder;
pub use replay::{ReplayReport, SetAside};
pub use userspace::{Counted, OwnerSpace, SpaceBy, default_limit};
pub use volume::{Volume, VolumeSource, VolumeWriter};
pub use write::{Change, FsOptions, FsWriter, Rewrite, replay_logs};
pub use xattr::Xattr;
