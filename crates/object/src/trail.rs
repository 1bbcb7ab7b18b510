//! Guards against cycles on disk: walks end even in a damaged or forged pool.
//!
//! Idea: a walk follows a chain or a tree, so it meets everything once. A second time is damage, which is
//! reported instead of followed.

use std::collections::HashSet;

use cenote_format::blkptr::Blkptr;
use cenote_format::units::ObjectId;

use crate::error::Result;
use crate::objset::Objset;

/// Objects that name one another: parents, earlier snapshots, nested lists.
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

    /// Enters an object.
    ///
    /// # Errors
    /// Met before.
    pub fn enter(&mut self, object: ObjectId) -> Result<()> {
        match self.met.insert(object) {
            true => Ok(()),
            false => Err(self.objset.damaged(object, format!("is met twice among {}", self.what))),
        }
    }
}

/// Blocks with pointers or dnodes, which have one owner each; only data is shared within a tree.
///
/// Memory: some 12 bytes for each.
#[derive(Debug, Default)]
pub struct OpenedBlocks(HashSet<u64>);

impl OpenedBlocks {
    /// An embedded block has no address and counts as new.
    pub fn first(&mut self, bp: &Blkptr) -> bool {
        // Exact below 2^57 bytes a vdev and 2^16 vdevs.
        bp.dvas().next().is_none_or(|dva| self.0.insert(dva.vdev.0 << 48 ^ dva.offset_bytes >> 9))
    }
}
