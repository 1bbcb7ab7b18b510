//! Object sets that take changes.
//!
//! Idea: a [`LiveObjset`] is the last tree on disk and up to two layers over it ([`layer`]): of the syncing
//! and of the open txg. [`LiveObjset::view`] is an ordinary [`Objset`] that shows all three, so that readers
//! need no special case. Changes go through an [`Edit`], which belongs to a txg.
//!
//! ```text
//!   view --> open layer --> syncing layer --> tree on disk
//!   freeze():   the open layer becomes the syncing one; a new one opens
//!   synced():   the new tree replaces the old one and the syncing layer
//! ```
//!
//! Callers serialize changes of the same object; different objects need no care.
//!
//! Source: the dirty records of OpenZFS's `dbuf.c` and `dnode.c`; the mechanism is our own.

mod dirty;
mod edit;
pub(crate) mod in_place;
pub(crate) mod layer;
pub(crate) mod layers;
mod reach;
mod slots;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_format::units::{BlockId, DatasetId, ObjectId, Txg};
use parking_lot::{Mutex, RwLock};

use crate::live::slots::Slots;
use crate::objset::Objset;
use crate::traffic::Traffic;

pub use dirty::{Dirty, DirtyTotal};
pub use edit::{Edit, NewObject};
pub use layer::{Layer, Shown};
use layers::Layers;

/// An object set that takes changes; cheap to clone.
#[derive(Clone)]
pub struct LiveObjset(Arc<LiveInner>);

struct LiveInner {
    dataset: DatasetId,
    dirty: DirtyTotal,
    state: RwLock<LiveState>,
    slots: Mutex<Slots>,
    /// See [`LiveObjset::lend`].
    lent: AtomicU64,
}

struct LiveState {
    on_disk: Objset,
    syncing: Option<Arc<Layer>>,
    open: Arc<Layer>,
    /// The three together.
    view: Objset,
}

impl LiveState {
    fn new(on_disk: Objset, syncing: Option<Arc<Layer>>, open: Arc<Layer>) -> LiveState {
        let layers = std::iter::once(&open).chain(&syncing).cloned().collect();
        let view = on_disk.under(Layers::of(layers));
        LiveState { on_disk, syncing, open, view }
    }
}

impl LiveObjset {
    /// Changes begin in txg `txg`.
    pub fn new(on_disk: Objset, txg: Txg) -> LiveObjset {
        LiveObjset::counted(on_disk, txg, &DirtyTotal::default())
    }

    /// [`LiveObjset::new`] with dirty data counted in `dirty`.
    pub fn counted(on_disk: Objset, txg: Txg, dirty: &DirtyTotal) -> LiveObjset {
        let (dataset, on_disk) = (on_disk.dataset_id(), on_disk.not_keeping());
        let state = RwLock::new(LiveState::new(on_disk, None, Arc::new(Layer::new(txg, dirty))));
        let dirty = dirty.clone();
        let (slots, lent) = (Mutex::default(), AtomicU64::new(0));
        LiveObjset(Arc::new(LiveInner { dataset, dirty, state, slots, lent }))
    }

    /// Its dataset; 0 for the MOS.
    pub fn dataset_id(&self) -> DatasetId {
        self.0.dataset
    }

    /// The set with all changes. Its state on disk stays whole while the view is held.
    pub fn view(&self) -> Objset {
        self.kept(|state| &state.view)
    }

    /// Whether it is written as it came from a raw stream, without its key.
    pub fn is_raw(&self) -> bool {
        self.0.state.read().view.raw().is_some()
    }

    /// Statistics of its users.
    pub fn traffic(&self) -> Arc<Traffic> {
        self.0.state.read().view.traffic().clone()
    }

    /// The set as of the last txg on disk, kept whole while held.
    pub fn on_disk(&self) -> Objset {
        self.kept(|state| &state.on_disk)
    }

    fn kept(&self, which: impl Fn(&LiveState) -> &Objset) -> Objset {
        // Under one lock, so that the tree is no newer than its kept blocks.
        which(&self.0.state.read()).keeping_now()
    }

    /// Edits the open txg, which the caller holds.
    pub fn edit(&self) -> Edit {
        Edit::new(self.clone(), self.0.state.read().open.clone())
    }

    /// A block in its layers.
    pub fn shown(&self, object: ObjectId, block: BlockId) -> Shown {
        self.view().layers().block(object, block)
    }

    /// Whether there are other clones of this handle.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Bytes of changes in memory.
    pub fn dirty_bytes(&self) -> u64 {
        let state = self.0.state.read();
        state.open.dirty().bytes() + state.syncing.as_ref().map_or(0, |layer| layer.dirty().bytes())
    }

    /// Whether the open txg has changes.
    pub fn is_dirty(&self) -> bool {
        !self.0.state.read().open.is_empty()
    }

    /// Notes that another object set gets blocks of this one in the held txg `txg`. They are counted only
    /// when that txg is on disk, so this set must not be destroyed or replaced before.
    pub fn lend(&self, txg: Txg) {
        self.0.lent.fetch_max(txg.0, Ordering::AcqRel);
    }

    /// Last txg of [`LiveObjset::lend`], or 0.
    pub fn last_lent(&self) -> Txg {
        Txg(self.0.lent.load(Ordering::Acquire))
    }

    /// Assigns further changes to txg `txg`, if none yet.
    pub fn relabel(&self, txg: Txg) {
        let mut state = self.0.state.write();
        if state.open.is_empty() {
            let open = Arc::new(Layer::new(txg, &self.0.dirty));
            *state = LiveState::new(state.on_disk.clone(), state.syncing.clone(), open);
        }
    }

    /// Closes the open layer and opens one for txg `next`. No edit and no sync may be under way.
    pub fn freeze(&self, next: Txg) -> Arc<Layer> {
        let mut state = self.0.state.write();
        debug_assert!(state.syncing.is_none());
        let frozen = state.open.clone();
        let open = Arc::new(Layer::new(next, &self.0.dirty));
        *state = LiveState::new(state.on_disk.clone(), Some(frozen.clone()), open);
        frozen
    }

    /// Replaces the frozen layer by `tree`, which is on disk.
    pub fn synced(&self, tree: Objset) {
        let mut state = self.0.state.write();
        state.syncing.iter().for_each(|layer| layer.dirty().settle());
        *state = LiveState::new(tree, None, state.open.clone());
    }
}

impl Drop for LiveInner {
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
