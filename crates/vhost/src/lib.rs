//! Disks for virtual machines (vhost-user-blk): serves a virtio-blk device directly from guest memory.
//!
//! ```text
//!   QEMU --socket--> memory, queues, features  (vhost-user-backend, a thread)
//!   guest --kick--> queue thread --> task per request: request, disk, status in guest memory --> used ring
//! ```
//!
//! Idea: rust-vmm implements protocol, rings and memory mapping. This crate parses requests ([`request`]) and
//! runs them as tasks ([`device`]), in order of completion. Lost guest memory does no harm ([`lost`]).
//!
//! Supported: read, write, flush, discard, write zeroes, four queues, event indexes, indirect descriptors.
//! Not supported: reconnecting with requests in flight, migration, resizing while connected. Resizing needs
//! `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`, which `Backend` (vhost 0.18) cannot send, and its socket is
//! private.
//!
//! Bounds: requests of 32 MiB; data in progress by [`Limits`](cenote_disk::Limits); requests in progress by a
//! queue's descriptors. A guest that breaks the ring rules or loses memory is disconnected. One that changes
//! memory during a request harms only itself.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, section 5.2; QEMU's `docs/interop/vhost-user.rst`.
#![deny(unsafe_code)]

pub mod device;
mod forgotten;
mod lost;
pub mod request;

pub use device::{Connection, Disconnect, LoneQueue};
