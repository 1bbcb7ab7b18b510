//! The witness: small registers with compare-and-swap, in a place that does not fail with a machine of the
//! pool.
//!
//! | address | register | fails with |
//! |---|---|---|
//! | `etcd://HOST:PORT[,...]/PREFIX` | a key, by its revision | most members of the cluster |
//! | `s3://BUCKET/PREFIX?...` | an object, by its ETag | the store |
//! | `/folder` | a file under a lock | the machine or server that has the folder |
//!
//! Trust: a swap succeeds only if nobody has swapped since, also among machines. S3 stores are probed for it
//! at the start. A folder of a network file system is as good as its locks.

mod bucket;
mod etcd;
mod folder;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::Place;
use cenote_runtime::Runtime;
use futures::future::BoxFuture;

pub use bucket::BucketWitness;
pub use etcd::EtcdWitness;
pub use folder::FolderWitness;

/// A request under way. Dropping it may leave it undone, done, or to be done later.
pub type Asking<T> = BoxFuture<'static, Result<T, WitnessError>>;

/// Names a content of a register. Every content has another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag(pub Arc<str>);

/// A register's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its bytes.
    pub bytes: Bytes,
    /// Its tag.
    pub tag: Tag,
}

/// The answer to a swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// It was made; the register has this tag.
    Done(Tag),
    /// The register has another tag, or exists; nothing was done.
    Changed,
}

/// Why a request failed. The register may have been swapped, or will be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the witness: {0}")]
pub struct WitnessError(pub String);

/// Registers with compare-and-swap.
pub trait Witness: Send + Sync + 'static {
    /// Makes sure that swaps can be relied on.
    fn check(&self) -> Asking<()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Reads a register, if it exists.
    fn read(&self, name: &str) -> Asking<Option<Seen>>;

    /// Swaps a register's content if it has this tag; `None`: makes it, if it does not exist.
    fn write(&self, name: &str, before: Option<&Tag>, bytes: Bytes) -> Asking<Written>;
}

/// Opens a witness by its address, for leases of this length. Nothing is asked yet.
///
/// # Errors
/// A malformed address; no credentials.
pub async fn open(
    address: &str,
    lease: Duration,
    runtime: &Runtime,
) -> Result<Arc<dyn Witness>, WitnessError> {
    // Two members can be asked in the time of a renewal.
    let answer = lease / 8;
    if let Some(rest) = address.strip_prefix("etcd://") {
        return Ok(Arc::new(EtcdWitness::new("http", rest, answer, runtime)?));
    }
    if let Some(rest) = address.strip_prefix("etcds://") {
        return Ok(Arc::new(EtcdWitness::new("https", rest, answer, runtime)?));
    }
    match Place::parse(address) {
        Ok(Place::S3(s3)) => Ok(Arc::new(BucketWitness::connect(&s3, runtime).await?)),
        Ok(Place::Path(path)) if path.is_absolute() => Ok(Arc::new(FolderWitness::new(&path, runtime))),
        _ => Err(WitnessError(format!(
            "'{address}' is none of etcd://HOST:PORT/PREFIX, s3://BUCKET/PREFIX and an absolute path"
        ))),
    }
}

/// The name of a register's file, object or key.
fn file_of(name: &str) -> String {
    // A pool's name has no slash.
    format!("{name}.lease")
}
