//! Disks for virtual machines by vhost-user-blk: the machine's virtio-blk device is served from its own
//! memory, without its emulator in between.
//!
//! ```text
//!   QEMU --socket--> memory, queues, features  (vhost-user-backend, a thread)
//!   guest --kick--> queue's thread --> a task each: request, disk, status in guest memory --> used ring
//! ```
//!
//! Idea: the protocol, the rings and the mapped memory are rust-vmm's; here is how requests are read
//! ([`request`]) and how they run ([`device`]). A queue's thread only takes requests; tasks of the runtime
//! answer them, in whatever order they are done. Memory that a guest takes away does no harm ([`lost`]).
//!
//! Offered: reading, writing, flush, discard, write zeroes, four queues, event indexes, indirect descriptors.
//! Not offered: reconnecting with requests in flight, migration, a new size while connected. For that a back
//! end sends `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`; the library's `Backend` (vhost 0.18) can't, nor does it
//! hand out its socket.
//!
//! Bounds: requests of 32 MiB; what requests carry, by [`Limits`](cenote_disk::Limits); under way, as many as
//! a queue has descriptors. A guest that breaks the rules of a ring, or whose memory goes away, is
//! disconnected. Guest memory is the guest's: what it does to it meanwhile, it does to itself.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, section 5.2; QEMU's `docs/interop/vhost-user.rst`.
#![deny(unsafe_code)]

pub mod device;
mod forgotten;
mod lost;
pub mod request;

pub use device::{Connection, Disconnect, LoneQueue};
