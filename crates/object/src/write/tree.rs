//! Writing an object's changed blocks, bottom up.
//!
//! Idea: blocks are never overwritten, so a new data block needs a new indirect block above it, and so on up
//! to the dnode. Level by level: write the changed blocks, and put their pointers into the blocks above. All
//! blocks of a level are in flight at once, with the reads before their writes.
//!
//! ```text
//!   dnode     [p0' p1]                     made by the writer of the blocks of dnodes
//!   level 1   [....][.x'.]                 read, patched, written
//!   level 0          d'                    written data, freed ranges
//! ```
//!
//! A tree that grew gets new levels on top: the dnode's old pointers become the first entries of the new
//! indirect block. It never loses levels. An indirect block with nothing but holes is a hole itself.
//!
//! Source: OpenZFS `dnode_sync.c`, `dbuf.c` (`dbuf_sync_list`, `dbuf_write_ready`); levels here follow from
//! the last block's number when the tree is written, not when it is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr, BlockIdentity};
use cenote_format::bytes::{Endian, Writer, is_zero};
use cenote_format::dnode::{DnodeHead, DnodeTree, ObjectType};
use cenote_format::units::{BlockId, Lsize, ObjectId};

use crate::error::Result;
use crate::live::layer::{Changed, Foreign, Shown};
use crate::object::{Object, SPILL_BLOCK};
use crate::objset::used_dnodes;
use crate::write::batches::{all, in_batches};
use crate::write::sink::{BlockSink, NewBlock};

/// Enough to pay for a task and to be neighbours on disk.
const BLOCKS_PER_TASK: usize = 16;
/// Each is 32 times as large in memory as on disk.
const INDIRECTS_PER_TASK: usize = 8;

/// Returns the new tree. `old` is the object on disk, unless freed since.
pub(super) async fn write_tree(
    sink: &impl BlockSink,
    object: ObjectId,
    head: &DnodeHead,
    old: Option<&Object>,
    mut changed: Changed,
    least_levels: u8,
) -> Result<DnodeTree> {
    let old_tree = old.map(|old| old.dnode().tree()).unwrap_or_default();
    let (sink, head, old) = (sink.clone(), head.clone(), old.cloned());
    let writer = Arc::new(TreeWriter { sink, object, head, old, old_tree });
    let mut updates = Updates::new();
    let stored_spill = changed.clones.remove(&SPILL_BLOCK);
    for (&start, &end) in &changed.punched {
        writer.free_range(start, end, &changed, &mut updates).await?;
    }
    writer.share(changed.clones, &mut updates).await?;
    writer.write_data(changed.blocks, &mut updates).await?;
    let (sink, head, old_tree) = (&writer.sink, &writer.head, &writer.old_tree);
    let levels = old_tree.levels.max(levels_needed(head)).max(least_levels);
    for level in 1..levels {
        updates = writer.write_level(level, updates).await?;
    }
    let blkptrs = writer.top(levels, updates);
    let spill = match changed.spill {
        None => old_tree.spill,
        Some(spill) => writer.write_spill(spill, stored_spill).await?,
    };
    let used_bytes = old_tree.used_bytes.saturating_add_signed(sink.used_bytes());
    Ok(DnodeTree { levels, blkptrs, spill, used_bytes })
}

fn levels_needed(head: &DnodeHead) -> u8 {
    let fanout_shift = head.fanout_shift();
    let reach = |levels: u8| {
        let top = u64::from(head.blkptr_count);
        let shift = fanout_shift * u32::from(levels - 1);
        if shift >= top.leading_zeros() { u64::MAX } else { top << shift }
    };
    (1..=u8::MAX).find(|&levels| reach(levels) > head.max_block_id.0).unwrap_or(u8::MAX)
}

struct TreeWriter<S> {
    sink: S,
    object: ObjectId,
    head: DnodeHead,
    old: Option<Object>,
    old_tree: DnodeTree,
}

type Updates = BTreeMap<u64, Blkptr>;

impl<S: BlockSink> TreeWriter<S> {
    fn block(&self, level: u8, block: u64, data: Bytes, old: Blkptr, fill: u64) -> NewBlock {
        let object_type = self.head.object_type;
        let (checksum_id, compression_id) = (self.head.checksum_id, self.head.compression_id);
        let (object, block) = (self.object, BlockId(block));
        let (keeps_birth, moves) = (false, false);
        NewBlock {
            object,
            object_type,
            level,
            block,
            data,
            old,
            fill,
            checksum_id,
            compression_id,
            keeps_birth,
            moves,
        }
    }

    async fn old_pointer(&self, level: u8, block: u64) -> Result<Blkptr> {
        match &self.old {
            Some(old) => old.blkptr(level, BlockId(block)).await,
            None => Ok(Blkptr::HOLE),
        }
    }

    /// Blocks with new content are freed when that is written.
    async fn free_range(&self, start: u64, end: u64, changed: &Changed, updates: &mut Updates) -> Result<()> {
        let Some(old) = &self.old else { return Ok(()) };
        let mut next = start;
        while let Some((runs, after)) = old.next_pointers(next, end).await? {
            for run in runs {
                for (i, bp) in run.pointers?.into_iter().enumerate().filter(|(_, bp)| !bp.is_hole()) {
                    let block = run.first.0 + i as u64;
                    if changed.block(BlockId(block)) == Shown::Hole {
                        self.sink.kill(&bp);
                        updates.insert(block, self.sink.hole(&bp));
                    }
                }
            }
            next = after;
        }
        Ok(())
    }

    async fn share(
        self: &Arc<Self>,
        clones: BTreeMap<BlockId, Foreign>,
        updates: &mut Updates,
    ) -> Result<()> {
        let share = |(BlockId(block), foreign): (BlockId, Foreign)| {
            let writer = self.clone();
            async move {
                let old = writer.old_pointer(0, block).await?;
                let bp = match foreign {
                    Foreign::Shared(bp) => {
                        writer.sink.share(&bp, (writer.object, BlockId(block)), &old).await?
                    }
                    Foreign::Arrived(stored) => {
                        let fill = data_fill(writer.head.object_type, &stored.bytes);
                        let new = writer.block(0, block, stored.bytes.clone(), old, fill);
                        writer.sink.write_stored(new, stored).await?
                    }
                    Foreign::Rewritten { data, keeps_birth } => {
                        let fill = data_fill(writer.head.object_type, &data);
                        let new = writer.block(0, block, data, old, fill);
                        writer.sink.write(NewBlock { keeps_birth, moves: true, ..new }).await?
                    }
                };
                Ok((block, bp))
            }
        };
        let shared = in_batches(self.sink.pool().runtime(), clones, BLOCKS_PER_TASK, share);
        updates.extend(all(shared).await?);
        Ok(())
    }

    async fn write_data(
        self: &Arc<Self>,
        blocks: BTreeMap<BlockId, Bytes>,
        updates: &mut Updates,
    ) -> Result<()> {
        let write = |(BlockId(block), data): (BlockId, Bytes)| {
            let writer = self.clone();
            async move {
                let old = writer.old_pointer(0, block).await?;
                let fill = data_fill(writer.head.object_type, &data);
                Ok((block, writer.sink.write(writer.block(0, block, data, old, fill)).await?))
            }
        };
        let written = in_batches(self.sink.pool().runtime(), blocks, BLOCKS_PER_TASK, write);
        updates.extend(all(written).await?);
        Ok(())
    }

    /// Writes the indirect blocks of `level` above `updates`.
    async fn write_level(self: &Arc<Self>, level: u8, updates: Updates) -> Result<Updates> {
        let shift = self.head.fanout_shift();
        let mut parents: BTreeMap<u64, Vec<(usize, Blkptr)>> = BTreeMap::new();
        if level == self.old_tree.levels && self.old_tree.blkptrs.iter().any(is_known) {
            // The dnode's pointers move into the first block of the new level, births of holes included.
            parents.entry(0).or_default();
        }
        for (child, bp) in updates {
            parents.entry(child >> shift).or_default().push(((child & ((1 << shift) - 1)) as usize, bp));
        }
        let write = |(parent, children): (u64, Vec<(usize, Blkptr)>)| {
            let writer = self.clone();
            async move { Ok((parent, writer.write_indirect(level, parent, children).await?)) }
        };
        let written = in_batches(self.sink.pool().runtime(), parents, INDIRECTS_PER_TASK, write);
        Ok(all(written).await?.into_iter().collect())
    }

    async fn write_indirect(&self, level: u8, parent: u64, children: Vec<(usize, Blkptr)>) -> Result<Blkptr> {
        let (old_bp, mut block) = self.old_indirect(level, parent).await?;
        for (index, bp) in children {
            put_pointer(&mut block, index, &bp);
        }
        if pointers(&block).all(|bp| bp.is_hole()) {
            self.sink.kill(&old_bp);
            let is_new_level = level >= self.old_tree.levels;
            return Ok(if is_new_level { self.hole_above(level, &block) } else { self.sink.hole(&old_bp) });
        }
        let fill = pointers(&block).map(|bp| bp.fill()).sum::<u64>();
        self.sink.write(self.block(level, parent, block.freeze(), old_bp, fill)).await
    }

    /// As old as the youngest hole below.
    fn hole_above(&self, level: u8, block: &[u8]) -> Blkptr {
        match pointers(block).filter(is_known).map(|bp| bp.logical_birth()).max() {
            None => Blkptr::HOLE,
            Some(birth) => Blkptr::hole(&BlockIdentity {
                lsize: Lsize(block.len() as u64),
                object_type: self.head.object_type,
                level,
                birth,
            }),
        }
    }

    /// As it was, in native byte order.
    async fn old_indirect(&self, level: u8, parent: u64) -> Result<(Blkptr, BytesMut)> {
        let mut block = BytesMut::zeroed(1 << self.head.indirect_block_shift);
        if level >= self.old_tree.levels {
            if level == self.old_tree.levels && parent == 0 {
                for (index, bp) in self.old_tree.blkptrs.iter().enumerate() {
                    put_pointer(&mut block, index, bp);
                }
            }
            return Ok((Blkptr::HOLE, block));
        }
        let bp = self.old_pointer(level, parent).await?;
        match &self.old {
            Some(old) if !bp.is_hole() => {
                let bytes = old.read_indirect(level, BlockId(parent), &bp).await?;
                if bp.endian() == Endian::NATIVE && bytes.len() <= block.len() {
                    block[..bytes.len()].copy_from_slice(&bytes);
                } else {
                    for (index, raw) in bytes.chunks_exact(BLKPTR_BYTES).enumerate() {
                        let child = Blkptr::decode(raw, bp.endian()).map_err(|e| old.format(e))?;
                        put_pointer(&mut block, index, &child);
                    }
                }
            }
            // A hole with a birth passes it on to its parts.
            _ if bp.logical_birth().0 != 0 => {
                let below = if level == 1 { self.head.data_block_bytes.into() } else { block.len() as u64 };
                let child = hole_below(&bp, Lsize(below));
                for index in 0..block.len() / BLKPTR_BYTES {
                    put_pointer(&mut block, index, &child);
                }
            }
            _ => {}
        }
        Ok((bp, block))
    }

    fn top(&self, levels: u8, updates: Updates) -> Vec<Blkptr> {
        let mut blkptrs = vec![Blkptr::HOLE; self.head.blkptr_count.into()];
        if levels == self.old_tree.levels {
            for (slot, old) in blkptrs.iter_mut().zip(&self.old_tree.blkptrs) {
                *slot = *old;
            }
        }
        for (index, bp) in updates {
            if let Some(slot) = blkptrs.get_mut(index as usize) {
                *slot = bp;
            }
        }
        blkptrs
    }

    async fn write_spill(&self, spill: Option<Bytes>, stored: Option<Foreign>) -> Result<Option<Blkptr>> {
        let old = self.old_tree.spill.unwrap_or_default();
        let Some(data) = spill else {
            self.sink.kill(&old);
            return Ok(None);
        };
        let order =
            NewBlock { object_type: self.head.bonus_type, ..self.block(0, SPILL_BLOCK.0, data, old, 1) };
        Ok(Some(match stored {
            Some(Foreign::Arrived(stored)) => self.sink.write_stored(order, stored).await?,
            _ => self.sink.write(order).await?,
        }))
    }
}

/// Frees all blocks that can be found; returns the first error.
pub(super) async fn free_tree(sink: &impl BlockSink, object: &Object) -> Result<()> {
    let (mut walk, mut lost) = (object.walk(), None);
    while let Some(batch) = walk.next_batch().await {
        for visited in batch {
            match visited {
                crate::object::Visited::Block { bp, .. } => sink.kill(&bp),
                crate::object::Visited::Unreadable { error, .. } => lost = lost.or(Some(error)),
            }
        }
    }
    lost.map_or(Ok(()), Err)
}

/// Fill count of a data block: 1, or its dnodes.
fn data_fill(object_type: ObjectType, data: &[u8]) -> u64 {
    match object_type {
        ObjectType::DNODE => used_dnodes(data),
        _ => 1,
    }
}

/// Whether it has a block or a hole's birth.
fn is_known(bp: &Blkptr) -> bool {
    !bp.is_hole() || bp.logical_birth().0 != 0
}

fn hole_below(parent: &Blkptr, child_lsize: Lsize) -> Blkptr {
    let identity = BlockIdentity {
        lsize: child_lsize,
        object_type: parent.object_type(),
        level: parent.level().saturating_sub(1),
        birth: parent.logical_birth(),
    };
    Blkptr::hole(&identity)
}

/// All but the holes that always were, most of a block of a small object set.
fn pointers(block: &[u8]) -> impl Iterator<Item = Blkptr> + '_ {
    let (pointers, _) = block.as_chunks::<BLKPTR_BYTES>();
    let used = pointers.iter().filter(|raw| !is_zero(&raw[..]));
    used.map(|raw| Blkptr::decode(raw, Endian::NATIVE).unwrap_or_default())
}

fn put_pointer(block: &mut BytesMut, index: usize, bp: &Blkptr) {
    let mut w = Writer::new(Endian::NATIVE);
    bp.write(&mut w);
    if let Some(slot) = block.get_mut(index * BLKPTR_BYTES..(index + 1) * BLKPTR_BYTES) {
        slot.copy_from_slice(&w.finish());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_format::dnode::ObjectType;

    #[test]
    fn trees_are_as_high_as_their_last_block_needs() {
        let head = |max_block_id, blkptr_count| DnodeHead {
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            bonus_type: ObjectType::NONE,
            bonus: Bytes::new(),
            rest: Bytes::new(),
            checksum_id: 0,
            compression_id: 0,
            flags: 0,
            indirect_block_shift: 17,
            blkptr_count,
            slots: 1,
            data_block_bytes: 512,
            max_block_id: BlockId(max_block_id),
        };
        let cases = [(0, 1, 1), (1, 1, 2), (2, 3, 1), (3, 3, 2), (1023, 1, 2), (1024, 1, 3), (3072, 3, 3)];
        for (max_block_id, blkptr_count, levels) in cases {
            assert_eq!(levels_needed(&head(max_block_id, blkptr_count)), levels, "{max_block_id}");
        }
        assert_eq!(levels_needed(&head(1 << 60, 1)), 8);
    }
}
