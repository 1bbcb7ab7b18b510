//! Linux block devices served by this process: ublk.
//!
//! ```text
//!   /dev/ublkbN --> kernel: queues --io_uring--> threads ([`worker`]) --> Disk, in runtime tasks
//!                                      ^
//!   /dev/ublk-control: create, start, stop, delete ([`server`], [`driver`])
//! ```
//!
//! Idea: a few threads serve the queues of all devices. As in FUSE, a thread runs a request up to its first
//! wait, and a runtime task does the rest. Only requests in progress hold memory ([`ring`]), and
//! [`Limits`](cenote_disk::Limits) counts it.
//!
//! Read in this order: [`abi`], [`request`], [`ring`] (io_uring; all `unsafe` code), [`worker`], [`driver`],
//! [`server`], [`users`].
//!
//! No recovery: with `UBLK_F_USER_RECOVERY`, a device would wait for the next process after a crash,
//! unnoticed by its users. But confirmed, unflushed writes are lost, as in a power cut, and a file system
//! must learn of that. So it gets errors, and recovers at the next mount.
//!
//! Bounds: requests of 1 MiB; [128](server) at a time per queue; up to four queues per device.
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

/// Source of a device's disk, which may open it on demand.
pub trait Source: Send + Sync {
    /// Returns the disk.
    fn disk(&self) -> BoxFuture<'_, Result<Arc<dyn Disk>, Failure>>;
}
