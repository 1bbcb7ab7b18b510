//! Block devices of Linux that this process serves: ublk.
//!
//! ```text
//!   /dev/ublkbN --> kernel: queues --io_uring--> threads ([`worker`]) --> Disk, by the runtime's tasks
//!                                      ^
//!   /dev/ublk-control: made, shown, stopped, deleted ([`server`], [`driver`])
//! ```
//!
//! Idea: a few threads serve the queues of all devices. A thread runs a request up to its first wait, as
//! those of FUSE do; tasks of the runtime do the rest. What requests carry is in memory only while a request
//! is under way, and counted by [`Limits`](cenote_disk::Limits): tags have no memory of their own ([`ring`]).
//!
//! Read in this order: [`abi`] (bytes), [`request`] (what they mean), [`ring`] (io_uring; all that is
//! `unsafe`), [`worker`], [`driver`], [`server`], [`users`] (who has a device open).
//!
//! No recovery: with `UBLK_F_USER_RECOVERY` a device waits for the next process when its own dies, and those
//! who use it notice nothing. But what was answered and not flushed is lost with the process, as with a power
//! cut. A file system has to hear of that: it gets errors, and finds itself consistent when it is mounted
//! again.
//!
//! Bounds: requests of 1 MiB, [128](server) at a time of each of up to four queues a device.
//!
//! Source: Linux `Documentation/block/ublk.rst`, `include/uapi/linux/ublk_cmd.h`, `drivers/block/ublk_drv.c`
//! (6.1: what commands wait for, and when they fail).

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

/// Where a device's requests find their disk, which may be opened when the first one comes.
pub trait Source: Send + Sync {
    /// The disk.
    fn disk(&self) -> BoxFuture<'_, Result<Arc<dyn Disk>, Failure>>;
}
