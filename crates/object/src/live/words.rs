//! Objects that are arrays of words, and packed nvlists.

use bytes::{Bytes, BytesMut};
use cenote_boxed::boxed;
use cenote_format::dnode::ObjectType;
use cenote_format::nvlist::Nvlist;
use cenote_format::units::{BlockId, ObjectId};
use cenote_format::zap::swap_words;

use crate::error::Result;
use crate::live::Edit;

impl Edit {
    /// Writes words from word `first` on.
    ///
    /// # Errors
    /// No such object; unreadable block.
    #[boxed]
    pub async fn write_words(&self, object: ObjectId, first: u64, words: &[u64]) -> Result<()> {
        let view = self.view();
        let per_block = view.dnode(object).await?.data_block_bytes as usize / 8;
        if per_block == 0 {
            return Err(self.damaged(object, "has blocks without room"));
        }
        let mut rest = words;
        let mut at = first;
        while !rest.is_empty() {
            let (block, skip) = (BlockId(at / per_block as u64), (at % per_block as u64) as usize);
            let (here, others) = rest.split_at(rest.len().min(per_block - skip));
            self.in_place(object, swap_words, |blocks| {
                // A write at a block's start is the whole block.
                if here.len() == per_block {
                    blocks.put(block, BytesMut::zeroed(per_block * 8));
                }
                let places = blocks.get_mut(block)?.as_chunks_mut::<8>().0.iter_mut();
                places.skip(skip).zip(here).for_each(|(place, word)| *place = word.to_ne_bytes());
                Ok(())
            })
            .await?;
            at += here.len() as u64;
            rest = others;
        }
        Ok(())
    }

    /// Writes an nvlist as an object's content (`DMU_OT_PACKED_NVLIST`), its size in the bonus.
    ///
    /// # Errors
    /// No such object.
    #[boxed]
    pub async fn write_nvlist(&self, object: ObjectId, list: &Nvlist) -> Result<()> {
        let dnode = self.view().dnode(object).await?;
        let packed = list.encode();
        let size = Bytes::copy_from_slice(&(packed.len() as u64).to_ne_bytes());
        let block_bytes = (dnode.data_block_bytes as usize).max(1);
        let blocks = packed.len().div_ceil(block_bytes);
        let mut padded = packed;
        padded.resize(blocks * block_bytes, 0);
        self.write(object, 0, padded.into()).await?;
        let had = dnode.max_block_id.0.saturating_add(1);
        self.punch(object, BlockId(blocks as u64), had.saturating_sub(blocks as u64)).await?;
        self.set_bonus(object, ObjectType::PACKED_NVLIST_SIZE, size).await
    }

    /// Sets as many words of the bonus as it had: it may be of an older form.
    ///
    /// # Errors
    /// No such object.
    #[boxed]
    pub async fn set_bonus_words(&self, object: ObjectId, words: &[u64]) -> Result<()> {
        let dnode = self.view().dnode(object).await?;
        let kept = dnode.bonus().len() / 8;
        let bonus: Vec<u8> = words.iter().take(kept).flat_map(|word| word.to_ne_bytes()).collect();
        self.set_bonus(object, dnode.bonus_type, bonus.into()).await
    }
}
