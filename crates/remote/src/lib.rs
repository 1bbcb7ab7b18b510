//! Opens places: devices of this machine, and those of other machines' servers.
//!
//! ```text
//!   Place::Path  --> cenote_device::open     files and block devices, or a simulated machine's rack
//!   Place::Nbd   --> ServerDisk over nbd     connections, requests in flight, unflushed writes
//!   Place::Iscsi --> ServerDisk over iscsi   the same, and a reservation
//!   Place::Rbd   --> rbd::RbdDevice          Ceph's client library, the image's lock
//!   Place::S3    --> cenote_bucket           a log of objects
//! ```
//!
//! Idea: a pool's layers know only [`Device`]. All that differs about a remote disk is in its [`Nature`] (how
//! far it is, its failure domain, how long to wait) and behind its methods: connections that break and
//! return, and repeated requests.
//!
//! Read in this order: [`disk`], `requests`, `requests/unflushed`, `session`, [`nbd`], [`iscsi`];
//! [`rbd`], `rbd/lock`, `rbd/image`.
//!
//! [`Nature`]: cenote_device::Nature
mod bucket;
mod claim;
mod closing;
mod dial;
pub mod disk;
mod error;
pub mod iscsi;
pub mod nbd;
mod process;
pub mod rbd;
mod requests;
mod secret;
mod session;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use cenote_device::place::NbdPlace;
use cenote_device::{Access, Device, DeviceError, OpenOptions, Place, Rack};
use cenote_runtime::Runtime;

use claim::Claim;
pub use dial::Dial;
pub use disk::ServerDisk;
pub use error::ServerError;
pub use rbd::{RbdDevice, RbdError};
pub use requests::DEADLINE;

/// A machine that has just closed a disk gives its lock back a moment later.
const GIVING_BACK: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);

/// Opens a place. A simulated machine has those in its [`Rack`], remote ones under their paths in labels.
///
/// An NBD server has no locks: whether another machine uses the disk can't be seen from opening it. An image
/// of RBD is opened for writing under its lock, and a disk of an iSCSI target under a reservation. This
/// process uses either once at a time (`claim`).
///
/// # Errors
/// As [`cenote_device::open`]; a server or cluster that can't be reached, or refuses; a lock that another
/// client has.
pub async fn open(
    place: &Place,
    options: OpenOptions,
    runtime: &Runtime,
) -> Result<Arc<dyn Device>, DeviceError> {
    let begun = runtime.now();
    loop {
        match open_once(place, options, runtime).await {
            Err(DeviceError::Locked { .. }) if !options.takes_over && runtime.now() - begun < GIVING_BACK => {
                runtime.sleep(PAUSE).await;
            }
            opened => return opened,
        }
    }
}

async fn open_once(
    place: &Place,
    options: OpenOptions,
    runtime: &Runtime,
) -> Result<Arc<dyn Device>, DeviceError> {
    match place {
        Place::Path(path) => cenote_device::open(path, options, runtime).await,
        Place::Nbd(_) | Place::Iscsi(_) | Place::Rbd(_) | Place::S3(_)
            if runtime.part::<Rack>().is_some() =>
        {
            cenote_device::open(&place.in_labels(), options, runtime).await
        }
        Place::Nbd(nbd) => open_nbd(place, nbd, options, runtime).await,
        Place::Iscsi(disk) => iscsi::open_at(place, disk, options, runtime).await,
        Place::Rbd(image) => rbd::open(place, image, options, runtime).await,
        Place::S3(s3) => bucket::open(place, s3, options, runtime).await,
    }
}

async fn open_nbd(
    place: &Place,
    nbd: &NbdPlace,
    options: OpenOptions,
    runtime: &Runtime,
) -> Result<Arc<dyn Device>, DeviceError> {
    let name: Arc<str> = place.to_string().into();
    let failed = |error: ServerError| DeviceError::Open {
        path: name.clone(),
        source: Arc::new(std::io::Error::other(error)),
    };
    let server = dial::Server::of(nbd, runtime).await.map_err(failed)?;
    let read_only = options.access == Access::ReadOnly;
    let claim = if read_only { None } else { Some(Claim::take(place, runtime).await?) };
    let opened = nbd::open(name.clone(), nbd.export.clone(), Arc::new(server), read_only, runtime);
    Ok(Arc::new(opened.await.map_err(failed)?.at(place.clone(), claim)))
}
