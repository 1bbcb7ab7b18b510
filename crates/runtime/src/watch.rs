//! Waits for a descriptor of the operating system in the event loop of the worker threads.
//!
//! Locking: one task waits for a [`Watch`] and holds no lock.
#![allow(unsafe_code)] // tokio has the caller promise that the descriptor stays open

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A watched descriptor.
pub struct Watch(AsyncFd<OwnedFd>);

impl Watch {
    /// To be called within tokio.
    pub(crate) fn new(file: OwnedFd) -> io::Result<Watch> {
        // SAFETY: an `OwnedFd` is open and the same until it is dropped, and the watch owns it.
        let watched = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        Ok(Watch(watched?))
    }

    /// Waits until it has become readable since the last call.
    ///
    /// # Errors
    /// The runtime is ending.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}
