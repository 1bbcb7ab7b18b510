//! FUSE: file systems in user space, as the Linux kernel speaks it.
//!
//! ```text
//!   process -- system call --> kernel -- /dev/fuse --> channel --> request --> session --> impl Vfs
//!                                 ^                                               |
//!                                 '------ channel <-- reply <---------------------'
//! ```
//!
//! Where the kernel offers it, `ring` stands in the place of `channel`: FUSE over io_uring.
//!
//! Idea: a file system implements [`Vfs`] and knows no protocol. A request owns its buffer, so a write hands
//! the kernel's copy on without another one; a reply is a list of slices, written with one `writev`.
//!
//! There are no file handles. A node is named by its number alone, and the kernel says with `FORGET` when it
//! no longer holds one ([`Vfs::forget`]). So `open`, `release`, `opendir` and `flush` cost no round trip: the
//! kernel is told once that they have nothing to say.
//!
//! Read in this order: [`vfs`] (what a file system answers), [`session`] (who reads, who runs what),
//! [`mount`] and [`guard`], then `request`, `reply` and `abi` (the bytes).
//!
//! Source: Linux `include/uapi/linux/fuse.h` (protocol 7.45) and `fs/fuse/`.

mod abi;
mod channel;
pub mod guard;
pub mod kernel;
pub mod mount;
mod reply;
mod request;
mod ring;
pub mod session;
mod traffic;
pub mod vfs;
mod waiting;

pub use mount::{MountError, MountOptions, Mounted};
pub use session::{Notifier, Session, SessionOptions, answer};
pub use traffic::Paused;
pub use vfs::{Attr, Caller, DirSink, Entry, Errno, FileType, Node, Result, SetAttr, Statfs, Time, Vfs};
