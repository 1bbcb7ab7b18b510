//! The second level: cache devices, as seen by the read pipeline.
//!
//! Idea: cached blocks are stored, verified, decrypted and decompressed as in the pool, which is read if one
//! is wrong or gone.

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use futures::future::BoxFuture;

/// A cache of stored blocks, read before the pool.
pub trait SecondLevel: Send + Sync {
    /// Reads a block's `psize` bytes, unverified. Call it once per requested block.
    fn read<'a>(&'a self, bp: &'a Blkptr) -> Option<BoxFuture<'a, Option<Bytes>>>;

    /// The block did not match its pointer.
    fn reject(&self, bp: &Blkptr);

    /// Offers a verified block of the pool.
    fn offer(&self, bp: &Blkptr, stored: &Bytes, offer: Offer);
}

/// Properties of an offered block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Read ahead, not requested.
    pub is_ahead: bool,
    /// On a special vdev.
    pub is_special: bool,
}

/// How a read offers its block.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Secondary {
    /// Not offered.
    #[default]
    No,
    /// As requested.
    Demand,
    /// As read ahead.
    Ahead,
}
