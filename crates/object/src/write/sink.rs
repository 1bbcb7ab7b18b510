//! What takes the blocks of an object set while it is written.

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
    /// What it holds.
    pub object_type: ObjectType,
    /// Its level in the object's tree; 0: data.
    pub level: u8,
    /// Its number at that level.
    pub block: BlockId,
    /// Its content.
    pub data: Bytes,
    /// The block that it replaces.
    pub old: Blkptr,
    /// Blocks with content at or below it, or dnodes in it.
    pub fill: u64,
    /// The object's own choice; 0: the dataset's.
    pub checksum_id: u8,
    /// The object's own choice; 0: the dataset's.
    pub compression_id: u8,
}

impl NewBlock {
    /// Whether it is anything but the content of a file or volume.
    pub fn is_metadata(&self) -> bool {
        self.level > 0 || self.object_type.is_metadata() || self.block == SPILL_BLOCK
    }
}

/// Stores the blocks of one object set in one txg, and accounts for what is born and dies. Cloning it is
/// cheap.
pub trait BlockSink: Clone + Send + Sync + 'static {
    /// The pool that is written to.
    fn pool(&self) -> &Pool;

    /// The txg that is written.
    fn txg(&self) -> Txg;

    /// The same for another object, whose space is counted by itself. It ends with one of
    /// [`BlockSink::object_is_written`] and [`BlockSink::object_is_given_up`].
    fn for_object(&self) -> Self;

    /// The same for the same object, with space that is not counted for it.
    fn uncounted(&self) -> Self;

    /// Bytes of the object born less those dead so far.
    fn used_bytes(&self) -> i64;

    /// Writes a block; what it replaces is dead.
    fn write(&self, new: NewBlock) -> impl Future<Output = Result<Blkptr>> + Send;

    /// Writes a block as it came; what it replaces is dead.
    fn write_stored(&self, new: NewBlock, block: StoredBlock) -> impl Future<Output = Result<Blkptr>> + Send;

    /// A block that is on disk gets one more owner, a data block of an object; what it replaces is dead.
    fn share(
        &self,
        bp: &Blkptr,
        to: (ObjectId, BlockId),
        old: &Blkptr,
    ) -> impl Future<Output = Result<Blkptr>> + Send;

    /// A block is not referred to any more.
    fn kill(&self, bp: &Blkptr);

    /// All blocks of this sink's object are written: those that died may be free.
    fn object_is_written(&self) -> impl Future<Output = Result<()>> + Send;

    /// The object stays as it is on disk: what was born is dead, what died is not.
    fn object_is_given_up(&self);

    /// What replaces `old` where nothing is left.
    fn hole(&self, old: &Blkptr) -> Blkptr;
}
