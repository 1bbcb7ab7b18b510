//! All blocks of a version that were born after a group: what is to be freed with it.
//!
//! ```text
//!   head -> blocks of dnodes, and their tree -> each dnode's own tree        whatever is older than the group is left out, with all below
//! ```
//!
//! Memory: what one walk holds, and the dnodes of the blocks that it came by last.
//!
//! Source: OpenZFS `dmu_traverse.c`, as `dsl_destroy.c` uses it.

use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::DNODES_PER_BLOCK;
use cenote_format::units::{BlockId, ObjectId, Txg};

use crate::error::Result;
use crate::object::{Object, Visited, Walk};
use crate::objset::{
    GROUPUSED_OBJECT, META_DNODE_OBJECT, Objset, PROJECTUSED_OBJECT, USERUSED_OBJECT, dnodes_of_block,
};

/// A walk over the blocks of an object set.
pub(super) struct Blocks {
    objset: Objset,
    born_after: Txg,
    is_started: bool,
    /// The tree of the blocks of dnodes.
    meta: Option<Walk>,
    /// Objects whose trees are still to be walked.
    objects: Vec<Object>,
    current: Option<Walk>,
}

impl Blocks {
    pub(super) fn new(objset: Objset, born_after: Txg) -> Blocks {
        Blocks { objset, born_after, is_started: false, meta: None, objects: Vec::new(), current: None }
    }

    /// The next blocks; `None` after the last.
    ///
    /// # Errors
    /// What leads to further blocks can't be read.
    pub(super) async fn next_batch(&mut self) -> Result<Option<Vec<Blkptr>>> {
        if !std::mem::replace(&mut self.is_started, true) {
            return Ok(Some(self.start()));
        }
        if let Some(walk) = &mut self.current {
            match walk.next_batch().await {
                Some(batch) => return Ok(Some(pointers(batch)?.into_iter().map(|(_, _, bp)| bp).collect())),
                None => self.current = None,
            }
        }
        if let Some(object) = self.objects.pop() {
            self.current = Some(object.walk().born_after(self.born_after));
            return Ok(Some(Vec::new()));
        }
        let Some(meta) = &mut self.meta else { return Ok(None) };
        let Some(batch) = meta.next_batch().await else { return Ok(None) };
        let batch = pointers(batch)?;
        self.open_dnodes(&batch).await?;
        Ok(Some(batch.into_iter().map(|(_, _, bp)| bp).collect()))
    }

    fn start(&mut self) -> Vec<Blkptr> {
        let head = *self.objset.bp();
        if head.is_hole() || head.logical_birth() <= self.born_after {
            return Vec::new();
        }
        self.meta = self.objset.meta().map(|meta| meta.walk().born_after(self.born_after));
        let phys = self.objset.phys();
        let accounting = [
            (USERUSED_OBJECT, &phys.userused_dnode),
            (GROUPUSED_OBJECT, &phys.groupused_dnode),
            (PROJECTUSED_OBJECT, &phys.projectused_dnode),
        ];
        for (id, dnode) in accounting {
            self.objects.extend(dnode.clone().map(|dnode| Object::new(self.objset.clone(), id, dnode)));
        }
        vec![head]
    }

    /// Reads blocks of dnodes.
    async fn open_dnodes(&mut self, batch: &[Pointer]) -> Result<()> {
        let blocks: Vec<&Pointer> = batch.iter().filter(|(level, _, _)| *level == 0).collect();
        let context = |block| self.objset.context(META_DNODE_OBJECT, 0, block);
        let requests = blocks.iter().map(|(_, block, bp)| (*bp, context(*block))).collect();
        for ((_, block, bp), bytes) in blocks.into_iter().zip(self.objset.read_dnode_blocks(requests).await) {
            for (slot, dnode) in dnodes_of_block(&bytes?, bp.endian()) {
                let id = ObjectId(block.0 * DNODES_PER_BLOCK + slot as u64);
                let dnode = dnode.map_err(|e| self.objset.format(id, e))?;
                self.objects.push(Object::new(self.objset.clone(), id, dnode));
            }
        }
        Ok(())
    }
}

/// A block's level and place in its tree, and the pointer to it.
type Pointer = (u8, BlockId, Blkptr);

/// What can't be read is an error: what is below it would be neither freed nor missed.
fn pointers(batch: Vec<Visited>) -> Result<Vec<Pointer>> {
    let pointer = |visited| match visited {
        Visited::Block { level, block, bp } => Ok((level, block, bp)),
        Visited::Unreadable { error, .. } => Err(error),
    };
    batch.into_iter().map(pointer).collect()
}
