//! The receiver of blocks of an object set being written.

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_pool::Pool;
use cenote_pool::write::StoredBlock;

use crate::error::Result;
use crate::object::SPILL_BLOCK;

/// A block to be written.
#[derive(Debug)]
pub struct NewBlock {
    /// Its object.
    pub object: ObjectId,
    /// Type of its content.
    pub object_type: ObjectType,
    /// Level in the object's tree; 0: data.
    pub level: u8,
    /// Number at that level.
    pub block: BlockId,
    /// Its content.
    pub data: Bytes,
    /// The block it replaces.
    pub old: Blkptr,
    /// Blocks with content at or below it, or dnodes in it.
    pub fill: u64,
    /// The object's own choice; 0: the dataset's.
    pub checksum_id: u8,
    /// The object's own choice; 0: the dataset's.
    pub compression_id: u8,
    /// Whether its content is that of `old`, whose logical birth it keeps.
    pub keeps_birth: bool,
    /// Whether it is stored anew even if its content is that of `old`.
    pub moves: bool,
}

impl NewBlock {
    /// Whether it is not content of a file or volume.
    pub fn is_metadata(&self) -> bool {
        self.level > 0 || self.object_type.is_metadata() || self.block == SPILL_BLOCK
    }
}

/// Stores the blocks of one object set in one txg, and accounts for births and deaths. Cheap to clone.
pub trait BlockSink: Clone + Send + Sync + 'static {
    /// The pool.
    fn pool(&self) -> &Pool;

    /// The txg.
    fn txg(&self) -> Txg;

    /// A sink for another object with its own space count, until [`BlockSink::object_is_written`] or
    /// [`BlockSink::object_is_given_up`].
    fn for_object(&self) -> Self;

    /// For the same object, without counting space.
    fn uncounted(&self) -> Self;

    /// Bytes born less bytes dead.
    fn used_bytes(&self) -> i64;

    /// Writes a block in place of `old`.
    fn write(&self, new: NewBlock) -> impl Future<Output = Result<Blkptr>> + Send;

    /// Writes a block as received, in place of `old`.
    fn write_stored(&self, new: NewBlock, block: StoredBlock) -> impl Future<Output = Result<Blkptr>> + Send;

    /// Adds an owner to a data block, in place of `old`.
    fn share(
        &self,
        bp: &Blkptr,
        to: (ObjectId, BlockId),
        old: &Blkptr,
    ) -> impl Future<Output = Result<Blkptr>> + Send;

    /// Drops a block.
    fn kill(&self, bp: &Blkptr);

    /// Its dead blocks may be freed.
    fn object_is_written(&self) -> impl Future<Output = Result<()>> + Send;

    /// Its births are dead, its deaths void.
    fn object_is_given_up(&self);

    /// The hole that replaces `old`.
    fn hole(&self, old: &Blkptr) -> Blkptr;
}
