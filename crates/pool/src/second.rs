//! The second level: cache devices, as seen by the read pipeline.
//!
//! Idea: cached blocks are stored as in the pool. They are verified, decrypted and decompressed the same way;
//! if one is wrong or gone, the pool is read.

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use futures::future::BoxFuture;

/// A cache of stored blocks, read before the pool.
pub trait SecondLevel: Send + Sync {
    /// Reads a cached block: `psize` bytes, to be verified. Call it once per requested block.
    fn read<'a>(&'a self, bp: &'a Blkptr) -> Option<BoxFuture<'a, Option<Bytes>>>;

    /// Reports that the cached block did not match its pointer.
    fn reject(&self, bp: &Blkptr);

    /// Offers a verified block that was read from the pool.
    fn offer(&self, bp: &Blkptr, stored: &Bytes, offer: Offer);
}

/// Properties of a block offered to a second level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// It was read ahead, not requested.
    pub is_ahead: bool,
    /// It lies on a special vdev.
    pub is_special: bool,
}

/// Whether a block that is read is offered to the second level.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Secondary {
    /// Not offered.
    #[default]
    No,
    /// Offered as requested.
    Demand,
    /// Offered as read ahead.
    Ahead,
}
