//! Data of logged writes, read from the file's blocks at commit.
//!
//! Idea: copying long writes into the log would write them twice in full. Instead, the whole block is written
//! like data, compressed and encrypted, and the record points to it. The tree does not: its txg writes the
//! block anew with later changes, and frees this one.
//!
//! Only writes of whole blocks do so: replay puts the whole block in place, and OpenZFS then extends a file
//! that ended within it to its end. Other parts of long writes go into records.
//!
//! Source: OpenZFS `dmu.c` (`dmu_sync_late_arrival`), `zfs_vnops.c` (`zfs_get_data`). OpenZFS can often make
//! the block part of the tree at once; that is not done here.

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

pub(crate) enum Content {
    InBlock(Blkptr),
    Here(Bytes),
}

impl Log {
    /// `None`: it was truncated, or the object is gone.
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
            // Usually its txg is in memory. A slice would make the next write copy the whole block.
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
                keeps_birth: false,
                moves: false,
            })
            .await?;
        self.0.chain.lock().add_data(bp, hold.txg());
        Ok(Some(Content::InBlock(bp)))
    }
}
