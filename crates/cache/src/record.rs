//! What can be recorded of a cache: each block that somebody wanted, and each that a txg wrote.

use cenote_policy::{BlockId, Class};
use cenote_pool::Zbookmark;

/// Why a block was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Somebody reads it, and it was cached.
    Hit,
    /// Somebody reads it, and it was not.
    Miss,
    /// A txg has written it.
    Write,
}

/// Something that happened to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookUp {
    /// When, in nanoseconds since the pool's runtime began.
    pub now_ns: u64,
    /// The block, under the number by which policies know it.
    pub id: BlockId,
    /// Bytes of the block; of one that was not cached, as many as its pointer says.
    pub bytes: u32,
    /// What it holds.
    pub class: Class,
    /// What for.
    pub wish: Wish,
    /// Which block of which object.
    pub place: Zbookmark,
}
