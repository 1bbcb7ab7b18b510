//! A served volume is a disk, whatever protocol serves it.

use std::ops::Range;

use bytes::Bytes;
use cenote_disk::{Disk, Errno, Failure};
use cenote_fs::{FsError, Refusal};
use cenote_object::DatasetError;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::volumes::{ServedVolume, Unserved};

impl Disk for ServedVolume {
    fn size_bytes(&self) -> u64 {
        self.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes().try_into().unwrap_or(u32::MAX)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only()
    }

    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Failure>> {
        self.read(range).map(told).boxed()
    }

    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), Failure>> {
        self.write(offset, data).map(told).boxed()
    }

    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.zero(range).map(told).boxed()
    }

    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        self.discard(range).map(told).boxed()
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.flush().map(told).boxed()
    }

    fn prefetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>> {
        // What is read stays in the cache.
        self.read(range).map(|done| told(done).map(drop)).boxed()
    }

    fn extent(&self, range: Range<u64>) -> BoxFuture<'_, Result<(bool, u64), Failure>> {
        self.extent(range).map(told).boxed()
    }
}

fn told<T>(done: Result<T, FsError>) -> Result<T, Failure> {
    done.map_err(|error| failure(&error))
}

/// What a client is told of an error.
pub(crate) fn failure(error: &FsError) -> Failure {
    let errno = match error {
        FsError::Dataset(DatasetError::NoSpace { .. } | DatasetError::OverQuota { .. }) => Errno::NoSpace,
        FsError::Dataset(DatasetError::Stopped { .. }) => Errno::Shutdown,
        error if error.refusal() == Some(Refusal::NoSpace) => Errno::NoSpace,
        _ => Errno::Io,
    };
    Failure::new(errno, error.to_string())
}

/// What a client is told of a volume that it can't have.
pub(crate) fn refused(error: &Unserved) -> Failure {
    let errno = match error {
        Unserved::Hidden { .. } | Unserved::Key { .. } => Errno::Perm,
        Unserved::Unknown { .. } | Unserved::Kind { .. } => Errno::Invalid,
        _ => Errno::Io,
    };
    Failure::new(errno, error.to_string())
}
