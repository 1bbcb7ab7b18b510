//! Changing an object's blocks in place.
//!
//! Idea: tables change a few bytes at a time, often of several blocks together. They change the open layer's
//! blocks in place. A missing block is copied up when first changed in the txg.
//!
//! A change is a closure run under the layer's lock. When it needs a block not in memory it stops, the block
//! is read, and it runs again. So **a step requests all blocks it needs before it changes any**, and finished
//! steps must be valid and be recognized on the next run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cenote_format::FormatError;
use cenote_format::bytes::Endian;
use cenote_format::dnode::DnodeHead;
use cenote_format::units::{BlockId, ObjectId};

use crate::error::{DatasetError, Result};
use crate::live::Edit;
use crate::live::layer::{Changed, WriteRun};
use crate::zap::micro_index::MicroIndex;

#[derive(Debug)]
pub(crate) enum Stop {
    Missing(Range<u64>),
    /// Damage.
    Format(FormatError),
}

impl From<FormatError> for Stop {
    fn from(error: FormatError) -> Stop {
        Stop::Format(error)
    }
}

pub(crate) type Step<T> = std::result::Result<T, Stop>;

pub(crate) struct Blocks<'a> {
    changed: &'a mut Changed,
    /// From below, where the layer has none.
    below: &'a mut BTreeMap<BlockId, Bytes>,
    /// Taken out of the layer for writing: few.
    open: Vec<(BlockId, BytesMut)>,
}

impl Blocks<'_> {
    pub(crate) fn get(&self, block: BlockId) -> Step<&[u8]> {
        if let Some((_, open)) = self.open.iter().find(|(id, _)| *id == block) {
            return Ok(open);
        }
        let found = self.changed.blocks.get(&block).or_else(|| self.below.get(&block));
        found.map(|bytes| &bytes[..]).ok_or(Stop::Missing(block.0..block.0 + 1))
    }

    /// A block to keep.
    pub(crate) fn bytes(&self, block: BlockId) -> Step<Bytes> {
        let shared = self.changed.blocks.get(&block).or_else(|| self.below.get(&block));
        match shared {
            Some(bytes) if self.open.iter().all(|(id, _)| *id != block) => Ok(bytes.clone()),
            _ => self.get(block).map(Bytes::copy_from_slice),
        }
    }

    /// Requires blocks in memory.
    pub(crate) fn need(&self, range: Range<u64>) -> Step<()> {
        let is_missing = |id: u64| self.get(BlockId(id)).is_err();
        if range.clone().any(is_missing) { Err(Stop::Missing(range)) } else { Ok(()) }
    }

    /// A block for writing; zeros beyond the end.
    pub(crate) fn get_mut(&mut self, block: BlockId) -> Step<&mut [u8]> {
        let at = match self.open.iter().position(|(id, _)| *id == block) {
            Some(at) => at,
            None => {
                let here = self.changed.blocks.get_mut(&block).map(std::mem::take);
                let bytes = here.or_else(|| self.below.remove(&block));
                let bytes = bytes.ok_or(Stop::Missing(block.0..block.0 + 1))?;
                // Reuses the memory unless a reader holds it.
                self.put(block, bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..])));
                self.open.len() - 1
            }
        };
        Ok(&mut self.open[at].1)
    }

    /// May lie beyond the end.
    pub(crate) fn put(&mut self, block: BlockId, bytes: BytesMut) {
        self.open.retain(|(id, _)| *id != block);
        self.open.push((block, bytes));
        if let Some(head) = self.head() {
            head.max_block_id = head.max_block_id.max(block);
        }
    }

    pub(crate) fn punch(&mut self, range: Range<u64>) {
        self.open.retain(|(id, _)| !range.contains(&id.0));
        self.changed.punch(range);
    }

    /// `None` only if freed meanwhile.
    pub(crate) fn head(&mut self) -> Option<&mut DnodeHead> {
        self.changed.head.as_mut()
    }

    pub(crate) fn run(&mut self) -> &mut WriteRun {
        &mut self.changed.run
    }

    pub(crate) fn index(&mut self) -> &mut Option<Arc<MicroIndex>> {
        &mut self.changed.index
    }
}

impl Drop for Blocks<'_> {
    fn drop(&mut self) {
        for (block, bytes) in self.open.drain(..) {
            self.changed.clones.remove(&block);
            self.changed.blocks.insert(block, bytes.freeze());
        }
    }
}

impl Edit {
    /// See the module on writing `change`. `swap` converts a block of the other byte order.
    ///
    /// # Errors
    /// No such object; unreadable block; damage found by `change`.
    pub(crate) async fn in_place<T>(
        &self,
        object: ObjectId,
        swap: fn(&mut [u8]),
        mut change: impl FnMut(&mut Blocks<'_>) -> Step<T>,
    ) -> Result<T> {
        let mut below = BTreeMap::new();
        let mut current = None;
        loop {
            if current.is_none() && !self.layer.has_head(object) {
                current = Some(self.view().head(object).await?);
            }
            let outcome = self.layer.change(object, current.clone(), |changed| {
                change(&mut Blocks { changed, below: &mut below, open: Vec::new() })
            });
            match outcome {
                Ok(answer) => return Ok(answer),
                Err(Stop::Format(error)) => return Err(self.view().format(object, error)),
                Err(Stop::Missing(range)) => {
                    let opened = self.view().object(object).await?;
                    for block in range.map(BlockId).filter(|id| !below.contains_key(id)).collect::<Vec<_>>() {
                        let (mut bytes, endian) = opened.read_block(block).await?;
                        if endian != Endian::NATIVE {
                            let mut swapped = BytesMut::from(&bytes[..]);
                            swap(&mut swapped);
                            bytes = swapped.freeze();
                        }
                        below.insert(block, bytes);
                    }
                }
            }
        }
    }

    /// A damage error.
    pub fn damaged(&self, object: ObjectId, why: &str) -> DatasetError {
        self.view().damaged(object, why)
    }
}
