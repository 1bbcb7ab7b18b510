//! Remote disks in use by this process.
//!
//! Idea: a server has no locks, but a process can at least keep itself from using a disk twice, as a lock of
//! the host does for files: `zpool create -f` must not take a disk of a pool that the same daemon has open.
//! An image of RBD being closed still has its lock.
//!
//! Locking: one mutex for the set, held for one look or change.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use cenote_device::{DeviceError, Place};
use cenote_runtime::Runtime;
use parking_lot::Mutex;

/// Paths in labels of the disks in use; of images, which several clusters may have, complete addresses.
static CLAIMED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// A disk closed a moment ago may still have operations under way.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// A disk in use, until dropped.
pub(crate) struct Claim(PathBuf);

impl Claim {
    /// `None`: it is in use.
    pub(crate) fn try_take(place: &Place) -> Option<Claim> {
        let name = match place {
            Place::Rbd(_) => place.recorded(),
            _ => place.in_labels(),
        };
        // Not in one expression: a dropped claim takes the lock.
        let is_free = CLAIMED.lock().insert(name.clone());
        is_free.then(|| Claim(name))
    }

    /// # Errors
    /// It is in use, and stays so for a second.
    pub(crate) async fn take(place: &Place, runtime: &Runtime) -> Result<Claim, DeviceError> {
        for _ in 0..TRIES {
            if let Some(claim) = Claim::try_take(place) {
                return Ok(claim);
            }
            runtime.sleep(PAUSE).await;
        }
        Err(DeviceError::InUse { path: place.to_string().into(), holder: Some("this program".into()) })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.lock().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use cenote_runtime::SimConfig;

    use super::*;

    #[test]
    fn a_disk_is_used_once_at_a_time_however_it_is_named() {
        Runtime::simulate(SimConfig::default(), |runtime| async move {
            let place = |typed: &str| Place::parse(typed).unwrap();
            let claim = Claim::take(&place("nbd://claimed/x"), &runtime).await.unwrap();
            let again = Claim::take(&place("nbd://CLAIMED:10809/x"), &runtime).await;
            assert!(matches!(again, Err(DeviceError::InUse { .. })));
            let other = Claim::take(&place("nbd://claimed/y"), &runtime).await.unwrap();
            drop((claim, other));
            assert!(Claim::try_take(&place("nbd://claimed/x")).is_some());
        });
    }
}
