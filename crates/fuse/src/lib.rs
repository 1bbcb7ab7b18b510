//! FUSE: file systems in user space, as the Linux kernel speaks it.
//!
//! ```text
//!   process -- system call --> kernel -- /dev/fuse --> channel --> request --> session --> impl Vfs
//!                                 ^                                               |
//!                                 '------ channel <-- reply <---------------------'
//! ```
//!
//! If the kernel supports FUSE over io_uring, `ring` replaces `channel`.
//!
//! Idea: a file system implements [`Vfs`] and knows no protocol. A request owns its buffer, so a write passes
//! it on without another copy; a reply is a list of slices, written with one `writev`.
//!
//! There are no file handles. Nodes are identified by number, and the kernel reports dropped references with
//! `FORGET` ([`Vfs::forget`]). So `open`, `release`, `opendir` and `flush` cost no round trip: the first
//! `ENOSYS` turns them off.
//!
//! Read in this order: [`vfs`] (the interface), [`session`] (operations as tasks), [`mount`] and [`guard`],
//! then `readers` and `ring` (the threads), `request`, `reply` and `abi` (the bytes).
//!
//! Source: Linux `include/uapi/linux/fuse.h` (protocol 7.45) and `fs/fuse/`.

mod abi;
mod channel;
pub mod guard;
pub mod kernel;
pub mod mount;
mod readers;
mod reply;
mod request;
mod ring;
pub mod session;
pub mod simulated;
mod traffic;
pub mod vfs;
mod waiting;

pub use mount::{MountError, MountOptions, Mounted};
pub use session::{Notifier, Session, SessionOptions, answer};
pub use traffic::Paused;
pub use vfs::{Attr, Caller, DirSink, Entry, Errno, FileType, Node, Result, SetAttr, Statfs, Time, Vfs};
