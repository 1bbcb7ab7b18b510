//! Changing objects in the open txg.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::dnode::{DN_MAX_NBLKPTR, DnodeHead, ObjectType};
use cenote_format::units::{BlockId, DatasetId, ObjectId, Txg};
use cenote_pool::write::StoredBlock;

use crate::error::{DatasetError, Result};
use crate::live::in_place::Blocks;
use crate::live::layer::{Changed, Layer, Shown};
use crate::live::{LiveObjset, slots};
use crate::object::SPILL_BLOCK;
use crate::objset::Objset;

/// `zfs_default_ibs`: indirect blocks of 128 KiB.
const DEFAULT_INDIRECT_BLOCK_SHIFT: u8 = 17;

/// Properties of a new object.
#[derive(Debug, Clone)]
pub struct NewObject {
    /// Type of its content.
    pub object_type: ObjectType,
    /// Block size: a multiple of 512.
    pub block_bytes: u32,
    /// Type of its bonus.
    pub bonus_type: ObjectType,
    /// The bonus.
    pub bonus: Bytes,
    /// Slots of its dnode.
    pub slots: u8,
    /// log2 of the size of its indirect blocks.
    pub indirect_block_shift: u8,
    /// Its dnode has room for the pointer to a spill block.
    pub spills: bool,
}

impl NewObject {
    /// The smallest blocks and no bonus.
    pub fn of(object_type: ObjectType) -> NewObject {
        let (bonus_type, bonus) = (ObjectType::NONE, Bytes::new());
        NewObject {
            object_type,
            block_bytes: 512,
            bonus_type,
            bonus,
            slots: 1,
            indirect_block_shift: DEFAULT_INDIRECT_BLOCK_SHIFT,
            spills: false,
        }
    }

    /// Sets the block size.
    pub fn block_bytes(self, block_bytes: u32) -> NewObject {
        NewObject { block_bytes, ..self }
    }

    /// Sets the bonus.
    pub fn bonus(self, bonus_type: ObjectType, bonus: impl Into<Bytes>) -> NewObject {
        NewObject { bonus_type, bonus: bonus.into(), ..self }
    }

    /// Sets the size of indirect blocks to `1 << shift`.
    pub fn indirect_block_shift(self, indirect_block_shift: u8) -> NewObject {
        NewObject { indirect_block_shift, ..self }
    }

    /// Keeps room in the dnode for the pointer to a spill block.
    pub fn spilling(self, spills: bool) -> NewObject {
        NewObject { spills, ..self }
    }

    /// Sets the slots of the dnode.
    pub fn slots(self, slots: u8) -> NewObject {
        NewObject { slots, ..self }
    }

    fn head(&self) -> DnodeHead {
        // Spare bonus space goes to block pointers, except for attributes, which may grow.
        let used_bytes = self.bonus.len() + if self.spills { BLKPTR_BYTES } else { 0 };
        let spare = DnodeHead::bonus_room(self.slots, 1).saturating_sub(used_bytes) / BLKPTR_BYTES;
        let blkptr_count = match self.bonus_type {
            ObjectType::SA => 1,
            _ => (1 + spare).min(DN_MAX_NBLKPTR.into()) as u8,
        };
        DnodeHead {
            object_type: self.object_type,
            bonus_type: self.bonus_type,
            bonus: self.bonus.clone(),
            rest: Bytes::new(),
            checksum_id: 0,
            compression_id: 0,
            flags: 0,
            indirect_block_shift: self.indirect_block_shift,
            blkptr_count,
            slots: self.slots,
            data_block_bytes: self.block_bytes,
            max_block_id: BlockId(0),
        }
    }
}

/// Edits an object set in one txg.
#[derive(Debug, Clone)]
pub struct Edit {
    live: LiveObjset,
    pub(super) layer: Arc<Layer>,
}

impl Edit {
    pub(super) fn new(live: LiveObjset, layer: Arc<Layer>) -> Edit {
        Edit { live, layer }
    }

    /// The txg of the changes.
    pub fn txg(&self) -> Txg {
        self.layer.txg
    }

    /// The set with these changes.
    pub fn view(&self) -> Objset {
        self.live.view()
    }

    pub(super) fn on_disk(&self) -> Objset {
        self.live.on_disk()
    }

    /// Changes of this set in the txg.
    pub fn changes(&self) -> u64 {
        self.layer.changes()
    }

    /// Makes an object under a free number.
    ///
    /// # Errors
    /// Unreadable dnodes.
    #[boxed]
    pub async fn create(&self, new: &NewObject) -> Result<ObjectId> {
        loop {
            let wanted = {
                let mut slots = self.live.0.slots.lock();
                if let Some(object) = slots.take(new.slots) {
                    drop(slots);
                    self.make(object, new);
                    return Ok(object);
                }
                slots.wanted(self.txg())
            };
            let (block, free) = slots::free_slots(&self.view(), wanted).await?;
            let mut slots = self.live.0.slots.lock();
            // A concurrent creation may have taken some.
            if slots.wanted(self.txg()) == wanted {
                slots.begin(wanted, block, free);
            }
        }
    }

    /// Makes an object under this number.
    ///
    /// # Errors
    /// The number is taken.
    #[boxed]
    pub async fn create_at(&self, object: ObjectId, new: &NewObject) -> Result<()> {
        match self.view().dnode(object).await {
            Err(DatasetError::NoObject { .. }) => {
                self.live.0.slots.lock().is_taken(object, new.slots);
                self.make(object, new);
                Ok(())
            }
            Ok(_) => Err(self.live.view().damaged(object, "is in use already")),
            Err(error) => Err(error),
        }
    }

    fn make(&self, object: ObjectId, new: &NewObject) {
        let make = |changed: &mut Changed| {
            *changed = Changed { head: Some(new.head()), fresh: true, ..Changed::default() };
        };
        self.layer.change(object, None, make);
    }

    /// Frees an object with all its blocks.
    ///
    /// # Errors
    /// No such object; unreadable indirect block.
    #[boxed]
    pub async fn destroy(&self, object: ObjectId) -> Result<()> {
        let dnode = self.view().dnode(object).await?;
        self.reach_all(object, 0..u64::MAX).await?;
        if self.live.dataset_id() != DatasetId(0) {
            self.live.0.slots.lock().is_freed(object, dnode.slots, self.txg());
        }
        let free = |changed: &mut Changed| *changed = Changed { fresh: true, ..Changed::default() };
        self.layer.change(object, None, free);
        Ok(())
    }

    /// Frees objects in a range, some thousands at most; returns where to continue.
    ///
    /// # Errors
    /// Unreadable dnodes or indirect blocks.
    #[boxed]
    pub async fn destroy_some(&self, range: Range<ObjectId>) -> Result<Option<ObjectId>> {
        let view = self.view();
        let mut found = BTreeSet::new();
        let mut next = None;
        let mut dnodes = view.dnodes_on_disk(range.start, range.end);
        if let Some(batch) = dnodes.next_batch().await {
            let batch = batch?;
            if let Some((_, error)) = batch.damaged.into_iter().next() {
                return Err(error);
            }
            found.extend(batch.dnodes.into_iter().map(|(object, _)| object));
            next = Some(dnodes.position()).filter(|next| *next < range.end);
        }
        // Few: a stream does not free the objects it makes.
        found.extend(view.layers().touched(range.start..next.unwrap_or(range.end)));
        for object in found {
            match self.destroy(object).await {
                Err(DatasetError::NoObject { .. }) => {}
                done => done?,
            }
        }
        Ok(next)
    }

    /// Writes bytes. A single whole block is taken without a copy. Several are copied: a slice of `data`
    /// would keep all in memory while cached.
    ///
    /// # Errors
    /// No such object; unreadable block.
    #[boxed]
    pub async fn write(&self, object: ObjectId, offset_bytes: u64, data: Bytes) -> Result<()> {
        let head = self.view().head(object).await?;
        let size = u64::from(head.data_block_bytes);
        if size == 0 {
            return Err(self.view().damaged(object, "has blocks of no size"));
        }
        if let Some(last_byte) = data.len().checked_sub(1) {
            let last = BlockId((offset_bytes + last_byte as u64) / size);
            self.reach(object, &head, BlockId(offset_bytes / size), last).await?;
        }
        let mut done = 0;
        while done < data.len() {
            let at = offset_bytes + done as u64;
            let (block, skip) = (BlockId(at / size), (at % size) as usize);
            let take = (size as usize - skip).min(data.len() - done);
            let piece = data.slice(done..done + take);
            if take == size as usize {
                let own = if take == data.len() { piece } else { Bytes::copy_from_slice(&piece) };
                self.put(object, head.clone(), block, own);
                self.layer.dirty().finished(size);
            } else if self.write_part(object, block, skip, &piece).await? {
                self.layer.dirty().finished(size);
            }
            done += take;
        }
        Ok(())
    }

    /// Copies the block once a txg, then changes it in place. Returns whether it was written from start to
    /// end.
    async fn write_part(&self, object: ObjectId, block: BlockId, skip: usize, piece: &[u8]) -> Result<bool> {
        let write = |blocks: &mut Blocks<'_>| {
            let bytes = blocks.get_mut(block)?;
            let (size, part) = (bytes.len(), skip..skip + piece.len());
            bytes[part.clone()].copy_from_slice(piece);
            *blocks.index() = None;
            Ok(blocks.run().goes_on_with(block, part) == (0..size))
        };
        self.in_place(object, |_| {}, write).await
    }

    /// Writes a whole block.
    ///
    /// # Errors
    /// No such object; another block size; unreadable indirect block.
    #[boxed]
    pub async fn write_block(&self, object: ObjectId, block: BlockId, data: Bytes) -> Result<()> {
        let head = self.view().head(object).await?;
        if data.len() != head.data_block_bytes as usize {
            return Err(self.view().damaged(object, "has blocks of another size than what is written"));
        }
        self.reach(object, &head, block, block).await?;
        self.put(object, head, block, data);
        Ok(())
    }

    /// Writes blocks on disk again in this txg, unchanged; those of a layer are being written anyway. With
    /// `keeps_birth`, their logical births stay. The caller excludes other changes of these blocks.
    ///
    /// # Errors
    /// No such object; unreadable block.
    #[boxed]
    pub async fn rewrite(&self, object: ObjectId, blocks: Range<u64>, keeps_birth: bool) -> Result<()> {
        let Some(last) = blocks.end.checked_sub(1).filter(|last| *last >= blocks.start) else {
            return Ok(());
        };
        let view = self.view();
        let (head, opened) = (view.head(object).await?, view.object(object).await?);
        self.reach(object, &head, BlockId(blocks.start), BlockId(last)).await?;
        for block in opened.read_blocks(blocks).await {
            let Some(data) = block.data? else { continue };
            if view.layers().block(object, block.id) != Shown::Below {
                continue;
            }
            self.layer.change(object, Some(head.clone()), |changed| {
                changed.rewrite(block.id, data, keeps_birth);
            });
        }
        Ok(())
    }

    /// Writes an object's dnode on disk again in this txg, unchanged, with the others of its block.
    ///
    /// # Errors
    /// No such object.
    #[boxed]
    pub async fn touch(&self, object: ObjectId) -> Result<()> {
        self.change_head(object, |_| ()).await
    }

    fn put(&self, object: ObjectId, current: DnodeHead, block: BlockId, data: Bytes) {
        self.layer.change(object, Some(current), |changed| changed.put(block, data));
    }

    /// Replaces blocks from `first` on by shares of blocks on disk, or holes. These must be data that this
    /// set can read, with an owner until the txg is written.
    ///
    /// # Errors
    /// As [`Edit::write_block`].
    #[boxed]
    pub async fn share_blocks(&self, object: ObjectId, first: BlockId, blocks: &[Blkptr]) -> Result<()> {
        let head = self.view().head(object).await?;
        let is_other_size = |bp: &Blkptr| bp.lsize().0 != u64::from(head.data_block_bytes);
        if blocks.iter().filter(|bp| !bp.is_hole()).any(is_other_size) {
            return Err(self.view().damaged(object, "has blocks of another size than what it is to share"));
        }
        let Some(last) = (blocks.len() as u64).checked_sub(1) else { return Ok(()) };
        self.reach(object, &head, first, BlockId(first.0.saturating_add(last))).await?;
        let pool = self.live.on_disk().pool().clone();
        let lacking = blocks.iter().filter(|bp| pool.lacking().may_lack(bp)).map(|bp| bp.psize().0);
        let lacking_bytes: u64 = lacking.sum();
        self.layer.change(object, Some(head), |changed| {
            changed.lacking_bytes += lacking_bytes;
            for (block, bp) in (first.0..).zip(blocks) {
                match bp.is_hole() {
                    true => changed.punch(block..block + 1),
                    false => changed.share(BlockId(block), *bp),
                }
            }
        });
        Ok(())
    }

    /// Writes a whole block as received: compressed or encrypted.
    ///
    /// # Errors
    /// As [`Edit::write_block`].
    #[boxed]
    pub async fn write_stored(&self, object: ObjectId, block: BlockId, stored: StoredBlock) -> Result<()> {
        let head = self.view().head(object).await?;
        if stored.lsize.0 != u64::from(head.data_block_bytes) {
            return Err(self.view().damaged(object, "has blocks of another size than what is written"));
        }
        self.reach(object, &head, block, block).await?;
        self.layer.change(object, Some(head), |changed| changed.arrive(block, stored));
        Ok(())
    }

    /// Sets the spill block as received.
    ///
    /// # Errors
    /// No such object.
    #[boxed]
    pub async fn set_stored_spill(&self, object: ObjectId, stored: StoredBlock) -> Result<()> {
        self.change_head(object, |changed| {
            changed.spill = Some(Some(stored.bytes.clone()));
            changed.arrive(SPILL_BLOCK, stored);
        })
        .await
    }

    /// Sets an object's head and least levels as in the source pool, in a set written without its key.
    /// `is_new` drops everything of the number's earlier object.
    ///
    /// # Errors
    /// No such object, unless new.
    #[boxed]
    pub async fn put_head(&self, object: ObjectId, head: DnodeHead, levels: u8, is_new: bool) -> Result<()> {
        if is_new {
            self.live.0.slots.lock().is_taken(object, head.slots);
            let make = |changed: &mut Changed| {
                let head = Some(head);
                *changed = Changed { head, fresh: true, least_levels: levels, ..Changed::default() };
            };
            self.layer.change(object, None, make);
            return Ok(());
        }
        self.change_head(object, |changed| {
            changed.head = Some(head);
            changed.least_levels = levels;
        })
        .await
    }

    /// Frees whole blocks.
    ///
    /// # Errors
    /// No such object; unreadable indirect block.
    #[boxed]
    pub async fn punch(&self, object: ObjectId, first: BlockId, count: u64) -> Result<()> {
        let end = first.0.saturating_add(count);
        self.reach_all(object, first.0..end).await?;
        self.change_head(object, |changed| changed.punch(first.0..end)).await
    }

    /// Sets the bonus.
    ///
    /// # Errors
    /// No such object.
    #[boxed]
    pub async fn set_bonus(&self, object: ObjectId, bonus_type: ObjectType, bonus: Bytes) -> Result<()> {
        self.change_head(object, |changed| {
            if let Some(head) = &mut changed.head {
                (head.bonus_type, head.bonus) = (bonus_type, bonus);
            }
        })
        .await
    }

    /// Changes an object's type, not its content.
    ///
    /// # Errors
    /// No such object.
    #[boxed]
    pub async fn set_type(&self, object: ObjectId, object_type: ObjectType) -> Result<()> {
        self.change_head(object, |changed| {
            if let Some(head) = &mut changed.head {
                head.object_type = object_type;
            }
        })
        .await
    }

    /// Sets or removes the spill block.
    ///
    /// # Errors
    /// No such object; its dnode has no room for the pointer.
    #[boxed]
    pub async fn set_spill(&self, object: ObjectId, spill: Option<Bytes>) -> Result<()> {
        let (view, is_set) = (self.view(), spill.is_some());
        let head = view.head(object).await?;
        let room_bytes = DnodeHead::bonus_room(head.slots.max(1), head.blkptr_count);
        if is_set && head.bonus.len() + head.rest.len() + BLKPTR_BYTES > room_bytes {
            return Err(view.damaged(object, "its dnode has no room for a spill block"));
        }
        drop(view);
        self.change_head(object, |changed| changed.spill = Some(spill)).await
    }

    /// Changes the block size of an object of at most one block.
    ///
    /// # Errors
    /// Several blocks; unreadable block.
    #[boxed]
    pub async fn set_block_bytes(&self, object: ObjectId, block_bytes: u32) -> Result<()> {
        let opened = self.view().object(object).await?;
        if opened.dnode().max_block_id.0 > 0 {
            return Err(opened.damaged("has several blocks: their size can't change"));
        }
        let has_data = opened.next_data_block(BlockId(0)).await?.is_some();
        let (old, _) = opened.read_block(BlockId(0)).await?;
        self.change_head(object, |changed| {
            if let Some(head) = &mut changed.head {
                head.data_block_bytes = block_bytes;
            }
            if has_data {
                changed.put(BlockId(0), crate::object::fit(old, block_bytes as usize));
            }
        })
        .await
    }

    /// Sets an object's own compression and checksum; 0: the dataset's.
    ///
    /// # Errors
    /// No such object.
    #[boxed]
    pub async fn set_storage(&self, object: ObjectId, checksum_id: u8, compression_id: u8) -> Result<()> {
        self.change_head(object, |changed| {
            if let Some(head) = &mut changed.head {
                (head.checksum_id, head.compression_id) = (checksum_id, compression_id);
            }
        })
        .await
    }

    async fn change_head(&self, object: ObjectId, change: impl FnOnce(&mut Changed)) -> Result<()> {
        let current = self.view().head(object).await?;
        self.layer.change(object, Some(current), change);
        Ok(())
    }
}
