//! The dnodes of given objects, read in disk order.
//!
//! Idea: many object numbers (the entries of a thousand directories, say) fall into few blocks of the meta
//! dnode when sorted. These are read together, neighbours on disk at once, and each is opened once for all
//! its dnodes. A scan passes by once; a listing of a directory keeps the blocks, because its reader will ask
//! for more of the same objects.

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::{DNODE_MIN_BYTES, Dnode};
use cenote_format::units::{BlockId, ObjectId};
use cenote_pool::PoolError;

use crate::error::{DatasetError, Result};
use crate::objset::{META_DNODE_OBJECT, Objset, slots_of};

/// A dnode with the pointer to its block: the place and time of its last write.
#[derive(Debug)]
pub struct Gathered<'a> {
    /// The object.
    pub object: ObjectId,
    /// Its dnode.
    pub dnode: Result<Dnode>,
    /// The block of dnodes; a hole if not found.
    pub block: &'a Blkptr,
}

/// Blocks of dnodes read at once: as stored some 2 MiB, at most 8. They are decoded one by one.
const MOST_BLOCKS: usize = 512;

/// Whether a block stays in the cache, of which so many dnodes out of so many are wanted now.
type Keep = fn(u64, u64) -> bool;

/// Closer blocks share one walk of the indirect blocks.
const NEAR_BLOCKS: u64 = 64;

impl Objset {
    /// Reads the dnodes of `objects`, which must be sorted, and passes each to `each`.
    #[boxed]
    pub async fn gather(&self, objects: &[ObjectId], each: &mut (dyn FnMut(Gathered<'_>) + Send)) {
        // If most of its dnodes are wanted now, a block is hardly wanted again.
        self.gather_keeping(objects, |wanted, of| wanted < of / 2, each).await;
    }

    /// The dnodes of objects, in the order given, with changes not on disk. Missing blocks are read together,
    /// and cached.
    #[boxed]
    pub async fn dnodes_of(&self, objects: &[ObjectId]) -> Vec<Result<Dnode>> {
        let (mut found, mut below): (Vec<Option<Result<Dnode>>>, _) = (Vec::new(), Vec::new());
        for (place, &object) in objects.iter().enumerate() {
            let changed = self.layers.touches(object);
            found.push(if changed { Some(self.dnode(object).await) } else { None });
            if !changed {
                below.push((object, place));
            }
        }
        below.sort_unstable();
        let sorted: Vec<ObjectId> = below.iter().map(|(object, _)| *object).collect();
        let mut places = below.iter().map(|(_, place)| *place);
        let mut each = |gathered: Gathered<'_>| {
            if let Some(place) = places.next() {
                found[place] = Some(gathered.dnode);
            }
        };
        self.gather_keeping(&sorted, |_, _| true, &mut each).await;
        let or_none = |(dnode, &object): (Option<_>, _)| dnode.unwrap_or_else(|| Err(self.no_object(object)));
        found.into_iter().zip(objects).map(or_none).collect()
    }

    async fn gather_keeping(
        &self,
        objects: &[ObjectId],
        keep: Keep,
        each: &mut (dyn FnMut(Gathered<'_>) + Send),
    ) {
        debug_assert!(objects.is_sorted());
        let per_block = self.meta().map_or(0, |meta| meta.block_bytes() / DNODE_MIN_BYTES as u64);
        if per_block == 0 {
            for &object in objects {
                each(Gathered { object, dnode: Err(self.no_object(object)), block: &Blkptr::HOLE });
            }
            return;
        }
        // Groups by block; as many at once as memory allows.
        let groups: Vec<&[ObjectId]> = objects.chunk_by(|a, b| a.0 / per_block == b.0 / per_block).collect();
        for groups in groups.chunks(MOST_BLOCKS) {
            self.gather_groups(groups, per_block, keep, each).await;
        }
    }

    async fn gather_groups(
        &self,
        groups: &[&[ObjectId]],
        per_block: u64,
        keep: Keep,
        each: &mut (dyn FnMut(Gathered<'_>) + Send),
    ) {
        let ids: Vec<u64> = groups.iter().map(|group| group[0].0 / per_block).collect();
        let pointers = self.dnode_block_pointers(&ids).await;
        let mut requests = Vec::with_capacity(ids.len());
        let mut wanted_again = Vec::with_capacity(ids.len());
        for ((&id, group), bp) in ids.iter().zip(groups).zip(&pointers) {
            if let Ok(bp) = bp
                && !bp.is_hole()
            {
                requests.push((*bp, self.context(META_DNODE_OBJECT, 0, BlockId(id))));
                wanted_again.push(keep(group.len() as u64, per_block));
            }
        }
        let keep = |index: usize| wanted_again.get(index).copied().unwrap_or(true);
        let mut rest = groups.iter().zip(&pointers);
        // Passes on groups up to and including that of `block`.
        let mut hand_on = |mut block: Option<Result<Bytes, PoolError>>| {
            for (group, pointer) in rest.by_ref() {
                let (bp, found) = match pointer {
                    Err(error) => (&Blkptr::HOLE, Err(error.clone())),
                    Ok(bp) if bp.is_hole() => (&Blkptr::HOLE, Ok(None)),
                    Ok(bp) => (bp, block.take().transpose().map_err(DatasetError::from)),
                };
                let mut known = 0;
                for &object in *group {
                    let dnode = match &found {
                        Err(error) => Err(error.clone()),
                        Ok(None) => Err(self.no_object(object)),
                        Ok(Some(bytes)) => {
                            self.dnode_in(bytes, &mut known, (object.0 % per_block) as usize, object, bp)
                        }
                    };
                    each(Gathered { object, dnode, block: bp });
                }
                if !bp.is_hole() {
                    return;
                }
            }
        };
        let mut each = |block| hand_on(Some(block));
        self.cache().read_each(self.pool(), requests, self.caching().get(), &keep, &mut each).await;
        hand_on(None);
    }

    /// The dnode at `slot`; an error if the slot is inside a larger one. `known`, a slot at or before it
    /// where a dnode begins or that is free, is advanced.
    pub(super) fn dnode_in(
        &self,
        block: &Bytes,
        known: &mut usize,
        slot: usize,
        object: ObjectId,
        bp: &Blkptr,
    ) -> Result<Dnode> {
        while *known < slot {
            *known += block.get(*known * DNODE_MIN_BYTES..).map_or(1, slots_of);
        }
        let start = slot * DNODE_MIN_BYTES;
        if object.0 == 0 || *known != slot || start >= block.len() {
            return Err(self.no_object(object));
        }
        let dnode = Dnode::decode(block.slice(start..), bp.endian()).map_err(|e| self.format(object, e))?;
        dnode.ok_or_else(|| self.no_object(object))
    }

    /// `ids` are sorted and distinct.
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
