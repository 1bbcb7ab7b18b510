//! Opens disks in S3 object stores.
//!
//! Idea: a store has locks of its own kind (the fence of `cenote_bucket`), but a machine that takes a disk
//! over stops the other one's pool. So this process uses a disk once at a time (`claim`), and takes it over
//! only with its first change.

use std::sync::Arc;

use cenote_bucket::{Counts, LogDevice, Options, S3, S3Target};
use cenote_device::place::S3Place;
use cenote_device::{Access, Device, DeviceError, OpenOptions, Place};
use cenote_runtime::Runtime;

use crate::claim::Claim;

pub(crate) async fn open(
    place: &Place,
    s3: &S3Place,
    options: OpenOptions,
    runtime: &Runtime,
) -> Result<Arc<dyn Device>, DeviceError> {
    let name: Arc<str> = place.to_string().into();
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| DeviceError::Open {
        path: name.clone(),
        source: Arc::new(std::io::Error::other(error)),
    };
    let target = S3Target {
        bucket: s3.bucket.clone(),
        prefix: s3.prefix.clone(),
        endpoint: s3.endpoint.clone(),
        region: s3.region.clone(),
    };
    let store = S3::new(&target, runtime).await.map_err(|error| failed(error.into()))?;
    let read_only = options.access == Access::ReadOnly;
    let claim = if read_only { None } else { Some(Claim::take(place, runtime).await?) };
    let mut options = Options { read_only, create_bytes: s3.size_bytes, ..Options::new(name.clone()) };
    // The disk exists when its address is used again.
    let address = Place::S3(S3Place { size_bytes: None, ..s3.clone() });
    options.counts = Counts::of_disk(&name);
    options.nature.address = Some(address.into());
    options.nature.domain = Some(store.host().into());
    // Without TLS, machines between here and the store could change data.
    options.others_may_write = !store.is_private();
    let opened = LogDevice::open(Arc::new(store), options, runtime, claim).await;
    Ok(Arc::new(opened.map_err(|error| failed(error.into()))?))
}
