//! A descriptor that the library leaks: our end of the event that ends a connection's thread.
//!
//! Idea: vhost-user-backend 0.24 turns the event into a raw descriptor (`VringEpollHandler::new`,
//! `into_raw_fd`), polls that, and never closes it. A guest that reconnects again and again would exhaust the
//! daemon's descriptors. So the device owns the descriptor, and drops with the connection's last thread.
//! `Cargo.toml` pins the library version: remove this module when an update closes the descriptor itself.
#![allow(unsafe_code)] // the library's raw descriptor becomes the device's

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use vmm_sys_util::event::EventConsumer;

/// Takes ownership of the descriptor of an event that the library is given next.
pub fn owned(event: &EventConsumer) -> OwnedFd {
    // SAFETY: it is open, and the library turns the event into a number without an owner.
    unsafe { OwnedFd::from_raw_fd(event.as_raw_fd()) }
}
