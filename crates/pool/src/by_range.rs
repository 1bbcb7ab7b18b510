//! Work on ranges of vdevs and leaves, blind to the blocks in them: rebuilds, removals, passes over free
//! space.
//!
//! Idea: space maps tell the ranges, so a disk is read and written in its own order. Their content cannot be
//! verified.

mod rebuild;
mod removal;
pub(crate) mod unused;

use crate::pool::Pool;

/// Ranges of a pool's vdevs.
#[derive(Clone, Copy)]
pub struct ByRange<'a>(&'a Pool);

impl Pool {
    /// Work on ranges, blind to blocks.
    pub fn by_range(&self) -> ByRange<'_> {
        ByRange(self)
    }
}
