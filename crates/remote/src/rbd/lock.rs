//! Takes an image's exclusive lock.
//!
//! ```text
//!   nobody has it, or its client is gone        taken
//!   a process of this machine that has ended    broken, and its client fenced
//!   another client, alive                       refused, or if wanted: broken, and the client fenced
//! ```
//!
//! Idea: only the owner of the lock can write. Ceph's library hands a lock over if another client asks for
//! it, unless the lock was taken on purpose, as here: then such requests are refused. Breaking it puts its
//! owner on the OSDs' blocklist first, so its late writes are refused, too. A client that is gone may
//! only have been stopped, and is put there as well.
//!
//! Source: Ceph `librbd/ManagedLock.cc`, `librbd/managed_lock/BreakRequest.cc`.

use std::io;

use super::error::{RbdError, is_fenced};
use super::holder::Holder;
use super::image::Image;

/// Another client may be faster several times.
const TRIES: u32 = 5;

/// Why there is no lock.
#[derive(Debug)]
pub(super) enum NotTaken {
    /// This client has it.
    Held(String),
    Error(RbdError),
}

/// Takes the lock, and records this process as its owner.
pub(super) fn take(image: &Image, takes_over: bool) -> Result<(), NotTaken> {
    let failed = |what| move |source| NotTaken::Error(RbdError::Call { what, source });
    if !image.has_lock_feature().map_err(failed("cannot read the image's features"))? {
        return Err(NotTaken::Error(RbdError::NoLock));
    }
    let mut tries = 0;
    loop {
        if let Some(owner) = image.owner().map_err(failed("cannot read the image's lock"))? {
            let holder = Holder::of(image, &owner);
            let has_ended = takes_over || holder.as_ref().is_some_and(Holder::has_ended);
            if !has_ended && image.is_watched_by(&owner).map_err(failed("cannot list the image's clients"))? {
                let named = holder.map_or_else(|| format!("client {owner}"), |holder| holder.to_string());
                return Err(NotTaken::Held(named));
            }
            let broken = image.break_lock(&owner).or_else(unless_gone);
            broken.map_err(failed("cannot break the image's lock and fence its owner"))?;
        }
        match image.acquire() {
            Ok(_) => break,
            Err(error) if is_busy(&error) && tries < TRIES => tries += 1,
            Err(error) => return Err(failed("cannot take the image's lock")(error)),
        }
    }
    let own = image.owner().map_err(failed("cannot read the image's lock"))?.unwrap_or_default();
    Holder::record(image, &own).map_err(failed("cannot record the lock's owner"))
}

/// The owner has just let it go.
fn unless_gone(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ENOENT) { Ok(()) } else { Err(error) }
}

/// Another client has taken it meanwhile.
fn is_busy(error: &io::Error) -> bool {
    is_fenced(error) || matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN))
}
