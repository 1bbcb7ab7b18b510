//! Object sets that take changes.
//!
//! Idea: a [`LiveObjset`] is the last tree on disk and up to two layers over it ([`layer`]): that of the group that is
//! being written, and that of the open group. [`LiveObjset::view`] is an ordinary [`Objset`] that shows all three, so everything that
//! reads object sets reads this one. Changes go through an [`Edit`], which belongs to a group.
//!
//! ```text
//!   view --> open layer --> syncing layer --> tree on disk
//!   freeze():   the open layer becomes the syncing one; a new one opens
//!   synced():   the new tree takes the place of the old one and of the syncing layer
//! ```
//!
//! Who changes an object sees to it that nobody else changes the same object at the same time; different objects need no care.
//!
//! Source: the part of OpenZFS's `dbuf.c` and `dnode.c` that keeps dirty records; the mechanism is our own.

mod dirty;
mod edit;
mod in_place;
mod layer;
mod slots;
mod words;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use cenote_format::dnode::DnodeHead;
use cenote_format::units::{BlockId, DatasetId, ObjectId, Txg};
use parking_lot::{Mutex, RwLock};

use crate::error::Result;
use crate::objset::Objset;
use crate::zil::Log;
use slots::Slots;

pub(crate) use dirty::{Dirty, DirtyTotal};
pub use edit::{Edit, NewObject};
pub(crate) use in_place::{Blocks, Step};
pub(crate) use layer::{Changed, Layer, Shown};

/// An object set that takes changes. Cloning it costs one atomic increment.
#[derive(Clone)]
pub struct LiveObjset(Arc<Inner>);

struct Inner {
    dataset: DatasetId,
    dirty: DirtyTotal,
    state: RwLock<State>,
    slots: Mutex<Slots>,
    /// Where operations leave records; none in sets that are not open to change (the MOS, what is being made).
    log: OnceLock<Log>,
}

struct State {
    on_disk: Objset,
    syncing: Option<Arc<Layer>>,
    open: Arc<Layer>,
    /// The three together.
    view: Objset,
}

impl State {
    fn new(on_disk: Objset, syncing: Option<Arc<Layer>>, open: Arc<Layer>) -> State {
        let layers = std::iter::once(&open).chain(&syncing).cloned().collect();
        let view = on_disk.under(Layers(Some(layers)));
        State { on_disk, syncing, open, view }
    }
}

impl LiveObjset {
    /// An object set whose changes begin in group `txg`.
    pub fn new(on_disk: Objset, txg: Txg) -> LiveObjset {
        LiveObjset::counted(on_disk, txg, &DirtyTotal::default())
    }

    /// The same, with what has changed counted in a sum.
    pub(crate) fn counted(on_disk: Objset, txg: Txg, dirty: &DirtyTotal) -> LiveObjset {
        let dataset = on_disk.dataset_id();
        let state = RwLock::new(State::new(on_disk, None, Arc::new(Layer::new(txg, dirty))));
        let dirty = dirty.clone();
        LiveObjset(Arc::new(Inner { dataset, dirty, state, slots: Mutex::default(), log: OnceLock::new() }))
    }

    /// The dataset whose content it is; 0 for the MOS.
    pub fn dataset_id(&self) -> DatasetId {
        self.0.dataset
    }

    /// The set as it is now, changes included.
    pub fn view(&self) -> Objset {
        self.0.state.read().view.clone()
    }

    /// The set as the last group on disk left it.
    pub fn on_disk(&self) -> Objset {
        self.0.state.read().on_disk.clone()
    }

    /// Where operations leave records of what they did, if they should.
    pub fn log(&self) -> Option<&Log> {
        self.0.log.get()
    }

    /// The log that operations leave records in from now on; the first one stays.
    pub(crate) fn set_log(&self, log: Log) {
        // Another that opened it at the same time may have been faster: what both found is the same.
        drop(self.0.log.set(log));
    }

    /// Makes durable what was done to an object, or to all, and all that happened to names. Not under a hold. See [`crate::zil`].
    ///
    /// # Errors
    /// Neither the log nor a group could be written.
    pub async fn commit(&self, object: Option<ObjectId>) -> Result<()> {
        match self.log() {
            Some(log) => log.commit(self, object).await,
            None => Err(self.view().damaged(ObjectId(0), "is not open to change")),
        }
    }

    /// A hand to change it with in the open group, which the caller holds open.
    pub fn edit(&self) -> Edit {
        Edit::new(self.clone(), self.0.state.read().open.clone())
    }

    /// Whether anybody has a hand on it besides the one who asks.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Bytes of changes in memory.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        let state = self.0.state.read();
        state.open.dirty().bytes() + state.syncing.as_ref().map_or(0, |layer| layer.dirty().bytes())
    }

    /// Whether the open group has changed anything.
    pub fn is_dirty(&self) -> bool {
        !self.0.state.read().open.is_empty()
    }

    /// Changes from now on belong to group `txg`. There may be none yet.
    pub(crate) fn relabel(&self, txg: Txg) {
        let mut state = self.0.state.write();
        if state.open.is_empty() {
            let open = Arc::new(Layer::new(txg, &self.0.dirty));
            *state = State::new(state.on_disk.clone(), state.syncing.clone(), open);
        }
    }

    /// Closes the open layer for syncing and opens one for group `next`. Nobody may be editing, and no sync be under way.
    pub(crate) fn freeze(&self, next: Txg) -> Arc<Layer> {
        let mut state = self.0.state.write();
        debug_assert!(state.syncing.is_none());
        let frozen = state.open.clone();
        let open = Arc::new(Layer::new(next, &self.0.dirty));
        *state = State::new(state.on_disk.clone(), Some(frozen.clone()), open);
        frozen
    }

    /// The frozen layer is on disk: `tree` holds it.
    pub(crate) fn synced(&self, tree: Objset) {
        let mut state = self.0.state.write();
        state.syncing.iter().for_each(|layer| layer.dirty().settle());
        *state = State::new(tree, None, state.open.clone());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state.syncing.iter().chain([&state.open]).for_each(|layer| layer.dirty().settle());
    }
}

impl std::fmt::Debug for LiveObjset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LiveObjset({})", self.0.dataset)
    }
}

/// Layers over a tree, the newest first.
#[derive(Clone, Default)]
pub(crate) struct Layers(Option<Arc<[Arc<Layer>]>>);

impl Layers {
    fn all(&self) -> &[Arc<Layer>] {
        self.0.as_deref().unwrap_or_default()
    }

    /// What they show of a block.
    pub(crate) fn block(&self, object: ObjectId, block: BlockId) -> Shown {
        let answers = self.all().iter().map(|layer| layer.block(object, block));
        answers.into_iter().find(|shown| *shown != Shown::Below).unwrap_or(Shown::Below)
    }

    /// An object's head as the newest layer has it, and whether anything of the tree on disk belongs to it; `None`: no layer knows it.
    pub(crate) fn object(&self, object: ObjectId) -> Option<Changed> {
        let mut known = self.all().iter().filter_map(|layer| layer.object(object));
        let newest = known.next()?;
        let fresh = newest.fresh || known.any(|older| older.fresh);
        Some(Changed { fresh, ..newest })
    }

    /// An object's head, or that it is freed; `None`: no layer knows it.
    pub(crate) fn head(&self, object: ObjectId) -> Option<Option<DnodeHead>> {
        self.all().iter().find_map(|layer| layer.head(object))
    }

    /// An object's spill block: the content, or that there is none; `None`: no layer knows.
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

    /// Whether any layer knows an object.
    pub(crate) fn touches(&self, object: ObjectId) -> bool {
        self.all().iter().any(|layer| layer.touches(object))
    }

    /// The first block from `from` on of which any layer shows something.
    pub(crate) fn next_change(&self, object: ObjectId, from: BlockId) -> Option<BlockId> {
        self.all().iter().filter_map(|layer| layer.next_change(object, from)).min()
    }

    /// Objects among `range` that layers know.
    pub(crate) fn touched(&self, range: std::ops::Range<ObjectId>) -> Vec<ObjectId> {
        self.all().iter().flat_map(|layer| layer.touched(range.clone())).collect()
    }
}
