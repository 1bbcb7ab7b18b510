//! The dnodes of a given set of objects, read in disk order.
//!
//! Idea: whoever has many object numbers at once (the entries of a thousand directories, say) should not look them up
//! one by one. Sorted, they fall into few blocks of the meta dnode; those are read together, neighbours on disk at
//! once, and each block is opened once for all the dnodes wanted of it.

use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::{DNODE_MIN_BYTES, Dnode};
use cenote_format::units::{BlockId, ObjectId};

use super::{META_DNODE_OBJECT, Objset, is_start_of_dnode};
use crate::error::{DatasetError, Result};

/// A dnode, and the pointer to the block that holds it: where the object's metadata lies and when it was last written.
#[derive(Debug)]
pub struct Gathered {
    /// The object.
    pub object: ObjectId,
    /// Its dnode.
    pub dnode: Result<Dnode>,
    /// The block of dnodes; a hole if it could not be found.
    pub block: Blkptr,
}

/// Blocks of dnodes in memory at once: 512 of 16 KiB, 8 MiB.
const MOST_BLOCKS: usize = 512;

/// How far apart two wanted blocks may be to be found with one walk of the indirect blocks.
const NEAR_BLOCKS: u64 = 64;

impl Objset {
    /// The dnodes of `objects`, which must be sorted. Calls `each` once for every number, in order.
    pub async fn gather(&self, objects: &[ObjectId], mut each: impl FnMut(Gathered)) {
        debug_assert!(objects.is_sorted());
        let per_block = self.meta().map_or(0, |meta| meta.block_bytes() / DNODE_MIN_BYTES as u64);
        if per_block == 0 {
            for &object in objects {
                each(Gathered { object, dnode: Err(self.no_object(object)), block: Blkptr::HOLE });
            }
            return;
        }
        // Groups of objects in one block; then as many groups at once as memory allows.
        let groups: Vec<&[ObjectId]> = objects.chunk_by(|a, b| a.0 / per_block == b.0 / per_block).collect();
        for groups in groups.chunks(MOST_BLOCKS) {
            self.gather_groups(groups, per_block, &mut each).await;
        }
    }

    async fn gather_groups(&self, groups: &[&[ObjectId]], per_block: u64, each: &mut impl FnMut(Gathered)) {
        let ids: Vec<u64> = groups.iter().map(|group| group[0].0 / per_block).collect();
        let pointers = self.dnode_block_pointers(&ids).await;
        let mut requests = Vec::with_capacity(ids.len());
        let mut wanted_again = Vec::with_capacity(ids.len());
        for ((&id, group), bp) in ids.iter().zip(groups).zip(&pointers) {
            if let Ok(bp) = bp
                && !bp.is_hole()
            {
                requests.push((*bp, self.context(META_DNODE_OBJECT, 0, BlockId(id))));
                // A block of which most dnodes are wanted now will hardly be wanted again.
                wanted_again.push((group.len() as u64) < per_block / 2);
            }
        }
        let keep = |index: usize| wanted_again.get(index).copied().unwrap_or(true);
        let mut blocks = self.cache().read_many(self.pool(), requests, keep).await.into_iter();
        for (group, pointer) in groups.iter().zip(pointers) {
            let block = match pointer {
                Ok(bp) if bp.is_hole() => Ok(None),
                Ok(bp) => match blocks.next() {
                    Some(Ok(bytes)) => Ok(Some((bp, bytes))),
                    Some(Err(error)) => Err(DatasetError::from(error)),
                    None => Ok(None),
                },
                Err(error) => Err(error),
            };
            for &object in *group {
                each(match &block {
                    Err(error) => Gathered { object, dnode: Err(error.clone()), block: Blkptr::HOLE },
                    Ok(None) => Gathered { object, dnode: Err(self.no_object(object)), block: Blkptr::HOLE },
                    Ok(Some((bp, bytes))) => {
                        let slot = (object.0 % per_block) as usize;
                        Gathered { object, dnode: self.dnode_in(bytes, slot, object, bp), block: *bp }
                    }
                });
            }
        }
    }

    /// The dnode that begins at `slot` of a block.
    fn dnode_in(&self, block: &bytes::Bytes, slot: usize, object: ObjectId, bp: &Blkptr) -> Result<Dnode> {
        let start = slot * DNODE_MIN_BYTES;
        if object.0 == 0 || start >= block.len() || !is_start_of_dnode(block, slot) {
            return Err(self.no_object(object));
        }
        let dnode = Dnode::decode(block.slice(start..), bp.endian()).map_err(|e| self.format(object, e))?;
        dnode.ok_or_else(|| self.no_object(object))
    }

    /// Pointers to blocks of the meta dnode; `ids` are sorted and distinct.
    async fn dnode_block_pointers(&self, ids: &[u64]) -> Vec<Result<Blkptr>> {
        let Some(meta) = self.meta() else { return ids.iter().map(|_| Ok(Blkptr::HOLE)).collect() };
        let mut found = Vec::with_capacity(ids.len());
        for near in ids.chunk_by(|a, b| b - a <= NEAR_BLOCKS) {
            let (first, last) = (near[0], near[near.len() - 1]);
            let runs = meta.pointers(0, first..last + 1).await;
            let mut runs = runs.iter().peekable();
            for &id in near {
                while runs.next_if(|run| run.first.0 + run.count <= id).is_some() {}
                found.push(match runs.peek() {
                    Some(run) if run.first.0 <= id => match &run.pointers {
                        Ok(pointers) => {
                            Ok(pointers.get((id - run.first.0) as usize).copied().unwrap_or_default())
                        }
                        Err(error) => Err(error.clone()),
                    },
                    _ => Ok(Blkptr::HOLE),
                });
            }
        }
        found
    }
}
