//! The layers over a tree on disk, combined.

use std::sync::Arc;

use bytes::Bytes;
use cenote_format::dnode::DnodeHead;
use cenote_format::units::{BlockId, ObjectId};

use crate::live::layer::{Changed, Layer, Shown};

/// Layers, the newest first.
#[derive(Clone, Default)]
pub(crate) struct Layers(Option<Arc<[Arc<Layer>]>>);

impl Layers {
    pub(super) fn of(newest_first: Arc<[Arc<Layer>]>) -> Layers {
        Layers(Some(newest_first))
    }

    fn all(&self) -> &[Arc<Layer>] {
        self.0.as_deref().unwrap_or_default()
    }

    pub(crate) fn block(&self, object: ObjectId, block: BlockId) -> Shown {
        let answers = self.all().iter().map(|layer| layer.block(object, block));
        answers.into_iter().find(|shown| *shown != Shown::Below).unwrap_or(Shown::Below)
    }

    /// The newest changes; `fresh` if any layer hides the tree.
    pub(crate) fn object(&self, object: ObjectId) -> Option<Changed> {
        let mut known = self.all().iter().filter_map(|layer| layer.object(object));
        let newest = known.next()?;
        let fresh = newest.fresh || known.any(|older| older.fresh);
        Some(Changed { fresh, ..newest })
    }

    /// `Some(None)`: freed; `None`: unchanged.
    pub(crate) fn head(&self, object: ObjectId) -> Option<Option<DnodeHead>> {
        self.all().iter().find_map(|layer| layer.head(object))
    }

    /// `Some(None)`: none; `None`: unchanged.
    pub(crate) fn spill(&self, object: ObjectId) -> Option<Option<Bytes>> {
        for changed in self.all().iter().filter_map(|layer| layer.object(object)) {
            if changed.spill.is_some() {
                return changed.spill;
            }
            if changed.fresh {
                return Some(None);
            }
        }
        None
    }

    pub(crate) fn touches(&self, object: ObjectId) -> bool {
        self.all().iter().any(|layer| layer.touches(object))
    }

    pub(crate) fn touches_blocks(&self, object: ObjectId) -> bool {
        self.all().iter().any(|layer| layer.touches_blocks(object))
    }

    pub(crate) fn next_change(&self, object: ObjectId, from: BlockId) -> Option<BlockId> {
        self.all().iter().filter_map(|layer| layer.next_change(object, from)).min()
    }

    /// End of the hole at `block`.
    pub(crate) fn hole_end(&self, object: ObjectId, block: BlockId) -> u64 {
        let mut end = u64::MAX;
        for layer in self.all() {
            if layer.block(object, block) == Shown::Hole {
                return end.min(layer.hole_end(object, block));
            }
            end = end.min(layer.next_change(object, block).map_or(u64::MAX, |next| next.0));
        }
        block.0
    }

    pub(crate) fn touched(&self, range: std::ops::Range<ObjectId>) -> Vec<ObjectId> {
        self.all().iter().flat_map(|layer| layer.touched(range.clone())).collect()
    }
}
