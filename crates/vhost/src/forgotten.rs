//! A descriptor that the library forgets: our end of the event that ends a connection's thread.
//!
//! Idea: vhost-user-backend 0.24 makes a bare number of it (`VringEpollHandler::new`, `into_raw_fd`), waits
//! for it by that number, and never closes it. A guest that connects again and again would take all
//! descriptors of the daemon. So the device owns it, and closes it with the last thread of the connection,
//! which owns the device. The version is fixed in `Cargo.toml`: one that closes it itself must come without
//! this module.
#![allow(unsafe_code)] // the library's number becomes the device's descriptor

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use vmm_sys_util::event::EventConsumer;

/// The descriptor of an event that is given to the library next.
pub fn owned(event: &EventConsumer) -> OwnedFd {
    // SAFETY: it is open, and the library turns the event into a number without an owner.
    unsafe { OwnedFd::from_raw_fd(event.as_raw_fd()) }
}
