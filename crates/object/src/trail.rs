//! Guards of walks along references on disk: whatever a damaged or forged pool says, they come to an end.
//!
//! Idea: what a walk follows is a chain or a tree, so it meets everything once. What is met a second time is
//! damage, and is named as such instead of being followed for ever, or twice at every level.

use std::collections::HashSet;

use cenote_format::blkptr::Blkptr;
use cenote_format::units::ObjectId;

use crate::error::Result;
use crate::objset::Objset;

/// Objects that name one another: directories above, snapshots before, lists within lists.
#[derive(Debug)]
pub struct Trail {
    objset: Objset,
    what: &'static str,
    met: HashSet<ObjectId>,
}

impl Trail {
    /// A walk over `what`, objects of a set.
    pub fn new(objset: &Objset, what: &'static str) -> Trail {
        Trail { objset: objset.clone(), what, met: HashSet::new() }
    }

    /// The walk comes to an object.
    ///
    /// # Errors
    /// It has been there before.
    pub fn enter(&mut self, object: ObjectId) -> Result<()> {
        match self.met.insert(object) {
            true => Ok(()),
            false => Err(self.objset.damaged(object, format!("is met twice among {}", self.what))),
        }
    }
}

/// Blocks of pointers and of dnodes. They have one owner each; only data is shared within a tree.
///
/// Memory: some 12 bytes for each.
#[derive(Debug, Default)]
pub struct OpenedBlocks(HashSet<u64>);

impl OpenedBlocks {
    /// Whether a block is opened for the first time. An embedded one holds all that it leads to, so it has no
    /// second place.
    pub fn first(&mut self, bp: &Blkptr) -> bool {
        // Exact below 2^57 bytes a vdev and 2^16 vdevs.
        bp.dvas().next().is_none_or(|dva| self.0.insert(dva.vdev.0 << 48 ^ dva.offset_bytes >> 9))
    }
}
