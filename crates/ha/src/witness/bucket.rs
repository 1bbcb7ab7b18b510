//! A witness in an S3 object store: an object for each register, replaced if its ETag is the one seen.

use std::sync::Arc;

use bytes::Bytes;
use cenote_bucket::{Created, S3, S3Target, Store, StoreError, probe};
use cenote_device::place::S3Place;
use cenote_runtime::Runtime;

use super::{Asking, Seen, Tag, Witness, WitnessError, Written, file_of};

/// Registers in an object store.
pub struct BucketWitness {
    store: Arc<dyn Store>,
    runtime: Runtime,
}

impl BucketWitness {
    /// Registers in this store.
    pub fn new(store: Arc<dyn Store>, runtime: &Runtime) -> BucketWitness {
        BucketWitness { store, runtime: runtime.clone() }
    }

    /// # Errors
    /// No usable credentials or certificates.
    pub(super) async fn connect(place: &S3Place, runtime: &Runtime) -> Result<BucketWitness, WitnessError> {
        let target = S3Target {
            bucket: place.bucket.clone(),
            prefix: place.prefix.clone(),
            endpoint: place.endpoint.clone(),
            region: place.region.clone(),
        };
        let store = S3::new(&target, runtime).await.map_err(|error| WitnessError(error.to_string()))?;
        Ok(BucketWitness::new(Arc::new(store), runtime))
    }
}

fn failed(error: StoreError) -> WitnessError {
    WitnessError(error.to_string())
}

impl Witness for BucketWitness {
    fn check(&self) -> Asking<()> {
        let (store, runtime) = (self.store.clone(), self.runtime.clone());
        Box::pin(async move { probe(store, &runtime).await.map_err(failed) })
    }

    fn read(&self, name: &str) -> Asking<Option<Seen>> {
        let reading = self.store.read_tagged(&file_of(name));
        Box::pin(async move {
            match reading.await {
                Ok((bytes, tag)) => Ok(Some(Seen { bytes, tag: Tag(tag.into()) })),
                Err(StoreError::Missing(_)) => Ok(None),
                Err(error) => Err(failed(error)),
            }
        })
    }

    fn write(&self, name: &str, before: Option<&Tag>, bytes: Bytes) -> Asking<Written> {
        let (key, body) = (file_of(name), vec![bytes]);
        let writing = match before {
            None => self.store.create(&key, body),
            Some(tag) => self.store.replace(&key, &tag.0, body),
        };
        Box::pin(async move {
            match writing.await.map_err(failed)? {
                Created::New { tag } if !tag.is_empty() => Ok(Written::Done(Tag(tag.into()))),
                Created::New { .. } => Err(WitnessError("the store answers without an ETag".into())),
                Created::Refused => Ok(Written::Changed),
            }
        })
    }
}
