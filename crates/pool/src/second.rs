//! A second level: cache devices, as far as reading blocks knows of them.
//!
//! Idea: blocks lie there as they are stored in the pool. So what comes from there is verified, decrypted and
//! decompressed as if it came from the pool; if it is wrong or gone, the pool is read.

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use futures::future::BoxFuture;

/// Where stored blocks may be found before the pool is read.
pub trait SecondLevel: Send + Sync {
    /// Reads a block, if it is there: `psize` bytes, to be verified. `None`: it is not. To be asked once for
    /// each block that is wanted.
    fn read<'a>(&'a self, bp: &'a Blkptr) -> Option<BoxFuture<'a, Option<Bytes>>>;

    /// What was read did not match the pointer.
    fn reject(&self, bp: &Blkptr);

    /// A block was read from the pool, and verified.
    fn offer(&self, bp: &Blkptr, stored: &Bytes, offer: Offer);
}

/// What a block is that is offered to a second level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// It was read ahead: nobody has wanted it yet.
    pub is_ahead: bool,
    /// It lies on a special vdev.
    pub is_special: bool,
}

/// Whether a block that is read is offered to the second level.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Secondary {
    /// It is not.
    #[default]
    No,
    /// Somebody wants it.
    Demand,
    /// It is read ahead.
    Ahead,
}
