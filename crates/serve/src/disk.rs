//! A served volume as a disk, independent of the protocol.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cenote_disk::{Disk, Errno, Failure};
use cenote_fs::{FsError, Refusal};
use cenote_object::DatasetError;
use futures::FutureExt;
use futures::future::BoxFuture;

use cenote_host::cancel::Cancel;
use cenote_host::pools::Pools;
use cenote_host::volumes::{Noted, ServedVolume, Unserved};

/// An open volume with the interface of the protocols.
pub struct ServedDisk(ServedVolume);

impl ServedDisk {
    /// Opens a volume for a client.
    ///
    /// # Errors
    /// No such volume, or it is not served.
    pub async fn open(
        pools: &Pools,
        name: &str,
        who: &str,
        cancel: &Cancel,
    ) -> Result<Arc<ServedDisk>, Unserved> {
        Ok(Arc::new(ServedDisk(ServedVolume::open(pools, name, who, cancel).await?)))
    }

    /// The same for a registered client.
    ///
    /// # Errors
    /// As [`ServedDisk::open`].
    pub async fn open_noted(noted: Arc<Noted>, name: &str) -> Result<Arc<ServedDisk>, Unserved> {
        Ok(Arc::new(ServedDisk(ServedVolume::open_noted(noted, name).await?)))
    }

    /// The volume itself.
    pub fn volume(&self) -> &ServedVolume {
        &self.0
    }
}

impl Disk for ServedDisk {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.0.block_bytes().try_into().unwrap_or(u32::MAX)
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Failure>> {
        self.0.read(range).map(told).boxed()
    }

    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), Failure>> {
        self.0.write(offset, data).map(told).boxed()
    }

    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.0.zero(range).map(told).boxed()
    }

    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.0.discard(range).map(told).boxed()
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.0.flush().map(told).boxed()
    }

    fn prefetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        // The data stays in the cache.
        self.0.read(range).map(|done| told(done).map(drop)).boxed()
    }

    fn extent(&self, range: Range<u64>) -> BoxFuture<'_, Result<(bool, u64), Failure>> {
        self.0.extent(range).map(told).boxed()
    }
}

fn told<T>(done: Result<T, FsError>) -> Result<T, Failure> {
    done.map_err(|error| failure(&error))
}

/// Maps an error to the client's failure code.
pub fn failure(error: &FsError) -> Failure {
    let errno = match error {
        FsError::Dataset(DatasetError::NoSpace { .. } | DatasetError::OverQuota { .. }) => Errno::NoSpace,
        FsError::Dataset(DatasetError::Stopped { .. }) => Errno::Shutdown,
        error if error.refusal() == Some(Refusal::NoSpace) => Errno::NoSpace,
        _ => Errno::Io,
    };
    Failure::new(errno, error.to_string())
}

/// Maps a refused volume to the client's failure code.
pub fn refused(error: &Unserved) -> Failure {
    let errno = match error {
        Unserved::Hidden { .. } | Unserved::Key { .. } => Errno::Perm,
        Unserved::Unknown { .. } | Unserved::Kind { .. } => Errno::Invalid,
        _ => Errno::Io,
    };
    Failure::new(errno, error.to_string())
}
