//! What was written, as a commit finds it: in the blocks that it went into.
//!
//! Idea: of a long write the log would have to hold the bytes once more; instead the whole block that they
//! went into is written as data are, compressed and encrypted, and the record leads there. The tree does not:
//! when its txg is written, the block is written anew with all that came meanwhile, and this one is freed
//! in the same txg.
//!
//! Only writes of whole blocks: who replays a block puts all of it in place, and OpenZFS then takes a file to
//! reach to the block's end if it ended in it before. What is left of other long writes goes into records.
//!
//! Source: OpenZFS `dmu.c` (`dmu_sync_late_arrival`), `zfs_vnops.c` (`zfs_get_data`). What OpenZFS can often
//! do, to make the block part of the tree at once, is not done here.

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::BlockId;
use cenote_object::live::Shown;
use cenote_object::write::{BlockSink, NewBlock};
use cenote_object::{DatasetError, LiveObjset, Result};

use crate::engine::Engine;
use crate::store::sink::PoolSink;
use crate::zil::log::Log;
use crate::zil::records::WriteNote;

/// What was written.
pub(crate) enum Content {
    InBlock(Blkptr),
    Here(Bytes),
}

impl Log {
    /// What a range that was written holds now. `None`: it was cut off meanwhile, or the object is gone.
    pub(crate) async fn content(
        &self,
        engine: &Engine,
        live: &LiveObjset,
        written: &WriteNote,
    ) -> Result<Option<Content>> {
        let content = self.find_content(engine, live, written).await?;
        Ok(content.filter(|_| self.0.records.lock().is_there(written)))
    }

    async fn find_content(
        &self,
        engine: &Engine,
        live: &LiveObjset,
        written: &WriteNote,
    ) -> Result<Option<Content>> {
        let WriteNote { object: id, block_bytes, .. } = *written;
        let (start, len) = (written.range.start, written.range.end - written.range.start);
        let (block, skip) = (BlockId(start / block_bytes), (start % block_bytes) as usize);
        let goes_apart = written.is_apart && len == block_bytes;
        if !goes_apart {
            // As a rule its txg is in memory. Copied, lest the next write to the block should have to copy
            // all of it.
            if let Shown::Data(data) = live.shown(id, block)
                && data.len() as u64 == block_bytes
            {
                let piece = &data[skip..skip + len as usize];
                return Ok(Some(Content::Here(Bytes::copy_from_slice(piece))));
            }
        }
        let Some(policy) = engine.policy_of(self.0.dataset) else { return Ok(None) };
        let hold = engine.hold().await?;
        let object = match live.view().object(id).await {
            Err(DatasetError::NoObject { .. }) => return Ok(None),
            opened => opened?,
        };
        if !goes_apart || len != object.block_bytes() {
            return Ok(Some(Content::Here(object.read(start, len as usize).await?)));
        }
        let head = object.dnode().head();
        let (data, _) = object.read_block(block).await?;
        let sink = PoolSink::new(&engine.apart_from_tree(&hold), &policy);
        let bp = sink
            .write(NewBlock {
                object: id,
                object_type: head.object_type,
                level: 0,
                block,
                data,
                old: Blkptr::HOLE,
                fill: 1,
                checksum_id: head.checksum_id,
                compression_id: head.compression_id,
            })
            .await?;
        self.0.chain.lock().add_data(bp, hold.txg());
        Ok(Some(Content::InBlock(bp)))
    }
}
