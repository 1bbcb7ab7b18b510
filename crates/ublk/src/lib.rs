//! Linux block devices served by this process: ublk.
//!
//! ```text
//!   /dev/ublkbN --> kernel: queues --io_uring--> threads ([`worker`]) --> Disk, by the runtime's tasks
//!                                      ^
//!   /dev/ublk-control: create, start, stop, delete ([`server`], [`driver`])
//! ```
//!
//! Idea: a few threads serve the queues of all devices. As in FUSE, a thread runs a request up to its first
//! wait, and a runtime task does the rest. Data occupies memory only while its request is in progress, and
//! [`Limits`](cenote_disk::Limits) counts it: tags have no memory of their own ([`ring`]).
//!
//! Read in this order: [`abi`] (structures), [`request`] (execution), [`ring`] (io_uring; all `unsafe` code),
//! [`worker`], [`driver`], [`server`], [`users`] (detects open devices).
//!
//! No recovery: with `UBLK_F_USER_RECOVERY` a device would wait for the next process when its server dies,
//! unnoticed by its users. But writes that were confirmed and not flushed are lost with the process, as in a
//! power cut, and a file system must learn of that. So it gets errors, and recovers at the next mount.
//!
//! Bounds: requests of 1 MiB; [128](server) in progress on each of a device's queues, of which there are up
//! to four.
//!
//! Source: Linux `Documentation/block/ublk.rst`, `include/uapi/linux/ublk_cmd.h`, `drivers/block/ublk_drv.c`
//! (6.1: blocking and failure of commands).

pub mod abi;
pub mod driver;
pub mod request;
pub mod ring;
pub mod server;
pub mod users;
pub mod worker;

use std::sync::Arc;

use cenote_disk::{Disk, Failure};
use futures::future::BoxFuture;

pub use abi::Shape;
pub use driver::Missing;
pub use server::{Device, Server};

/// Provides the disk of a device, which may be opened on the first request.
pub trait Source: Send + Sync {
    /// Returns the disk.
    fn disk(&self) -> BoxFuture<'_, Result<Arc<dyn Disk>, Failure>>;
}
