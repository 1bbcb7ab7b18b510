//! Defers the writing of a txg's metadata: addresses are assigned at once, the blocks written when the trees
//! are complete.
//!
//! ```text
//!   data      allocated and written
//!   metadata  allocated, kept here  --again in a later sync pass--> replaces the kept version
//!                    |
//!                    '-- the trees are complete, or much is kept --> all is written at once
//! ```
//!
//! Idea: a parent needs its child's pointer, not its child on disk. A txg has some forty dependent steps
//! (levels of trees, passes over the MOS). Deferred, they wait for the disk once, and blocks rewritten in
//! several passes are written once. Reads find kept blocks here.
//!
//! A copy whose write fails is left behind if there is another. If none can be written, the block cannot
//! move, because its parent has its address: the pool waits (`suspend`), or the txg fails. New addresses are
//! on writable vdevs.
//!
//! Memory: [`LATER_BYTES_MAX`] as stored, and one block for each writer that waits.
//!
//! Locking: one mutex, taken once per block, never across an await. `writing` serialises writers, so that a
//! block's newer version is written last.
//!
//! Source: OpenZFS `zio.c` (`zio_wait_for_children`: a parent waits until its children are *ready*).

pub(crate) mod blocks;

use super::place::Placing;
use super::{Prepared, TxgWrites, WriteProps, Written};
use crate::alloc::Allocator;
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::vdev::write::NotWritten;
use crate::zbookmark::Zbookmark;
use blocks::Block;
use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{Psize, Txg};
use futures::{StreamExt, stream};

const LATER_BYTES_MAX: u64 = 32 << 20;
const WRITES_AT_ONCE: usize = 1024;

impl TxgWrites<'_> {
    /// Prepares a block and allocates its addresses, as [`Pool::write`]; [`TxgWrites::finish`] writes it, at
    /// the latest.
    ///
    /// # Errors
    /// Those of [`Pool::write`].
    #[boxed]
    pub async fn later(
        &self,
        space: &Allocator,
        data: Bytes,
        props: &WriteProps,
        txg: Txg,
    ) -> Result<Written> {
        let (bp, stored) = match self.prepare(data, props, txg).await? {
            Prepared::Written(written) => return Ok(written),
            Prepared::Block { bp, stored } => (bp, stored),
        };
        let previous = &props.previous;
        if self.0.may_overwrite(&bp, Psize(stored.len() as u64), props, txg) && !previous.is_gang() {
            let bp = bp.with_dvas(&previous.dvas().collect::<Vec<_>>());
            self.0.keep(&bp, stored, props.place, txg).await?;
            return Ok(Written { bp, keeps_place: true });
        }
        let mut placing = Placing::new(self.0, space, props, (&bp, Psize(stored.len() as u64)), txg);
        placing.avoid_all(self.0.tree().vdevs().unwritable());
        match placing.allocate(stored.len(), placing.copies) {
            Ok(dvas) => {
                let bp = bp.with_dvas(&dvas);
                self.0.keep(&bp, stored, props.place, txg).await?;
                Ok(Written { bp, keeps_place: false })
            }
            // As a gang, or on fewer vdevs.
            Err(_) => self.store(space, bp, &stored, props, txg).await,
        }
    }

    /// Writes the kept blocks of a txg. Afterwards the devices' misses of it are known.
    ///
    /// # Errors
    /// [`PoolError::NotWritten`]: no copy of a block can be written, and the pool does not wait (`suspend`).
    pub async fn finish(&self, txg: Txg) -> Result<()> {
        self.0.write_if_more_than(0, txg).await
    }

    /// Makes all blocks durable, or notes the devices that failed to: the txg can still record them.
    ///
    /// # Errors
    /// Too few devices have the blocks, and the pool does not wait for them (`suspend`).
    pub async fn flush(&self, txg: Txg) -> Result<()> {
        self.0.flush_tree(txg).await
    }
}

impl Pool {
    pub(crate) fn is_all_written(&self) -> bool {
        self.retained().later.blocks.lock().is_empty()
    }

    /// A block not on disk yet, as it will be stored.
    pub(crate) fn kept(&self, bp: &Blkptr) -> Option<Bytes> {
        self.retained().later.blocks.lock().get(bp)
    }

    async fn keep(&self, bp: &Blkptr, stored: Bytes, place: Zbookmark, txg: Txg) -> Result<()> {
        let bytes = self.retained().later.blocks.lock().keep(bp, stored, place);
        if bytes <= LATER_BYTES_MAX {
            return Ok(());
        }
        self.write_if_more_than(LATER_BYTES_MAX, txg).await
    }

    async fn write_if_more_than(&self, bytes: u64, txg: Txg) -> Result<()> {
        let _alone = self.retained().later.writing.lock().await;
        let blocks = self.retained().later.blocks.lock().all_if_more_than(bytes);
        let mut writes = stream::iter(blocks)
            .map(|block| async move { self.write_copies_that_can_be(&block, txg).await.map(|()| block) })
            .buffer_unordered(WRITES_AT_ONCE);
        let mut failed = None;
        while let Some(written) = writes.next().await {
            match written {
                Ok(block) => self.retained().later.blocks.lock().written(&block),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// One success is enough.
    async fn write_copies_that_can_be(&self, block: &Block, txg: Txg) -> Result<()> {
        let Block { dvas, stored, place, .. } = block;
        let mut tries = self.begin_tries();
        loop {
            let failures = match self.write_copies(dvas, stored, txg, self.for_block(txg)).await {
                Ok(()) => break,
                Err(failures) => failures,
            };
            if failures.len() < dvas.len() {
                break;
            }
            let Some(NotWritten { vdev, why }) = failures.into_iter().next_back() else { break };
            self.wait_out(&mut tries, txg, PoolError::NotWritten { place: *place, vdev, why }).await?;
        }
        self.end_tries(tries);
        Ok(())
    }
}
