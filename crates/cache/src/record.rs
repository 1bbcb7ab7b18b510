//! Records of a cache: each block requested by a reader or written by a txg.

use cenote_policy::{BlockId, Class};
use cenote_pool::Zbookmark;

/// The reason of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// A read of a cached block.
    Hit,
    /// A read of a missing block.
    Miss,
    /// A write by a txg.
    Write,
}

/// A look-up or write of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookUp {
    /// Nanoseconds since the start of the pool's runtime.
    pub now_ns: u64,
    /// The block's number for policies.
    pub id: BlockId,
    /// Bytes of the block; if missing, according to its pointer.
    pub bytes: u32,
    /// Its class.
    pub class: Class,
    /// The reason.
    pub wish: Wish,
    /// Its object and block number.
    pub place: Zbookmark,
}
