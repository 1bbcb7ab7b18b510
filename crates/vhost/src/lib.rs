//! Disks for virtual machines over vhost-user-blk. Requests of the virtio-blk device are served directly from
//! guest memory, without the emulator in between.
//!
//! ```text
//!   QEMU --socket--> memory, queues, features  (vhost-user-backend, a thread)
//!   guest --kick--> queue thread --> task per request: request, disk, status in guest memory --> used ring
//! ```
//!
//! Idea: rust-vmm implements protocol, rings and memory mapping; this crate parses requests ([`request`]) and
//! runs them ([`device`]). The queue thread only takes requests. Runtime tasks answer them in order of
//! completion. Loss of guest memory is contained ([`lost`]).
//!
//! Supported: read, write, flush, discard, write zeroes, four queues, event indexes, indirect descriptors.
//! Not supported: reconnecting with requests in flight, migration, resizing while connected. The last needs
//! `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`, which the library's `Backend` (vhost 0.18) cannot send, and its
//! socket is private.
//!
//! Bounds: requests of 32 MiB; [`Limits`](cenote_disk::Limits) bounds the data in progress; a queue has at
//! most as many requests in progress as descriptors. A guest that violates the ring rules, or whose memory
//! goes away, is disconnected. A guest that changes memory during a request harms only itself.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, section 5.2; QEMU's `docs/interop/vhost-user.rst`.
#![deny(unsafe_code)]

pub mod device;
mod forgotten;
mod lost;
pub mod request;

pub use device::{Connection, Disconnect, LoneQueue};
