//! A descriptor that the library leaks: our end of a connection's exit event.
//!
//! Idea: vhost-user-backend 0.24 makes it a raw number (`VringEpollHandler::new`, `into_raw_fd`), polls that,
//! and never closes it. A guest that reconnects again and again would exhaust the daemon's descriptors. So
//! the device owns it, and closes it with the connection's last thread. `Cargo.toml` pins the version: once
//! the library closes the descriptor, this module must go.
#![allow(unsafe_code)] // the library's raw descriptor becomes the device's

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use vmm_sys_util::event::EventConsumer;

/// Takes an event's descriptor before the library gets the event.
pub fn owned(event: &EventConsumer) -> OwnedFd {
    // SAFETY: it is open, and the library turns the event into a number without an owner.
    unsafe { OwnedFd::from_raw_fd(event.as_raw_fd()) }
}
