//! All dnodes of an object set in batches, in disk order within a batch.
//!
//! Idea: a window of the meta dnode's blocks is read at once, neighbours on disk together. Holes (freed
//! regions) and regions under unreadable indirect blocks are skipped at the highest level that shows them.
//!
//! Memory: one window of blocks.

use std::ops::Range;

use cenote_boxed::boxed;
use cenote_format::dnode::{DNODE_MIN_BYTES, Dnode};
use cenote_format::units::{BlockId, ObjectId};

use crate::error::{DatasetError, Result};
use crate::object::holes::{Region, RegionKind};
use crate::objset::{Objset, dnodes_of_block};

/// Blocks of dnodes read at once: 256 of 16 KiB, 4 MiB.
const WINDOW_BLOCKS: u64 = 256;

/// A batch of objects.
#[derive(Debug, Default)]
pub struct DnodeBatch {
    /// In order of their numbers.
    pub dnodes: Vec<(ObjectId, Dnode)>,
    /// Numbers with unreadable dnodes.
    pub damaged: Vec<(Range<ObjectId>, DatasetError)>,
}

/// An iteration over the objects of a set.
#[derive(Debug)]
pub struct Dnodes {
    objset: Objset,
    next: u64,
    end: u64,
}

impl Dnodes {
    pub(super) fn new(objset: Objset, from: ObjectId, to: ObjectId) -> Dnodes {
        let end = to.0.min(objset.last_object().0);
        Dnodes { objset, next: from.0.max(1), end }
    }

    pub(crate) fn position(&self) -> ObjectId {
        ObjectId(self.next)
    }

    /// `None` after the last; a batch may be empty.
    ///
    /// # Errors
    /// The tree can't be walked further; other errors are in the batch.
    #[boxed]
    pub async fn next_batch(&mut self) -> Option<Result<DnodeBatch>> {
        if self.next >= self.end {
            return None;
        }
        let batch = self.read_window().await;
        if batch.is_err() {
            self.next = self.end;
        }
        batch.transpose()
    }

    async fn read_window(&mut self) -> Result<Option<DnodeBatch>> {
        let Some(meta) = self.objset.meta() else { return Ok(None) };
        let per_block = u64::from(meta.dnode().data_block_bytes) / DNODE_MIN_BYTES as u64;
        if per_block == 0 {
            return Err(self.objset.damaged(crate::objset::META_DNODE_OBJECT, "has blocks of no size"));
        }
        let mut batch = DnodeBatch::default();
        let last = self.end.div_ceil(per_block);
        let found = meta.next_region(self.next / per_block).await.filter(|region| region.start < last);
        let Some(Region { start, end, kind }) = found else {
            self.next = self.end;
            return Ok(None);
        };
        let from = self.next;
        let range = match kind {
            RegionKind::Unreadable(error) if error.is_damage() => {
                let lost = start.saturating_mul(per_block).max(from)..end.min(last).saturating_mul(per_block);
                self.next = lost.end;
                batch.damaged.push((ObjectId(lost.start)..ObjectId(lost.end), error));
                return Ok(Some(batch));
            }
            RegionKind::Unreadable(error) => return Err(error),
            _ => start..last.min(start.saturating_add(WINDOW_BLOCKS)),
        };
        self.next = range.end.saturating_mul(per_block);

        let mut requests = Vec::new();
        let mut blocks = Vec::new();
        for run in meta.pointers(0, range).await {
            match run.pointers {
                Ok(pointers) => {
                    for (i, bp) in pointers.into_iter().enumerate().filter(|(_, bp)| !bp.is_hole()) {
                        let block = BlockId(run.first.0 + i as u64);
                        requests.push((bp, self.objset.context(crate::objset::META_DNODE_OBJECT, 0, block)));
                        blocks.push((block, bp.endian()));
                    }
                }
                Err(error) => batch.damaged.push((
                    ObjectId(run.first.0.saturating_mul(per_block))
                        ..ObjectId((run.first.0 + run.count).saturating_mul(per_block)),
                    error,
                )),
            }
        }
        let results = self.objset.read_dnode_blocks(requests).await;
        for ((block, endian), result) in blocks.into_iter().zip(results) {
            let base = block.0 * per_block;
            let bytes = match result {
                Ok(bytes) => bytes,
                Err(error) => {
                    batch.damaged.push((ObjectId(base)..ObjectId(base + per_block), error.into()));
                    continue;
                }
            };
            for (slot, dnode) in dnodes_of_block(&bytes, endian) {
                let object = ObjectId(base + slot as u64);
                match dnode {
                    _ if object.0 < from || object.0 >= self.end => {}
                    Ok(dnode) => batch.dnodes.push((object, dnode)),
                    Err(e) => {
                        let error = self.objset.format(object, e);
                        batch.damaged.push((object..ObjectId(object.0 + 1), error));
                    }
                }
            }
        }
        Ok(Some(batch))
    }
}
