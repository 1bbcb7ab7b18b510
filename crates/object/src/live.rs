//! Object sets that take changes.
//!
//! Idea: a [`LiveObjset`] is the last tree on disk and up to two layers over it ([`layer`]): that of the
//! txg that is being written, and that of the open txg. [`LiveObjset::view`] is an ordinary [`Objset`]
//! that shows all three, so everything that reads object sets reads this one. Changes go through an [`Edit`],
//! which belongs to a txg.
//!
//! ```text
//!   view --> open layer --> syncing layer --> tree on disk
//!   freeze():   the open layer becomes the syncing one; a new one opens
//!   synced():   the new tree takes the place of the old one and of the syncing layer
//! ```
//!
//! Who changes an object sees to it that nobody else changes the same object at the same time; different
//! objects need no care.
//!
//! Source: the part of OpenZFS's `dbuf.c` and `dnode.c` that keeps dirty records; the mechanism is our own.

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

/// An object set that takes changes. Cloning it costs one atomic increment.
#[derive(Clone)]
pub struct LiveObjset(Arc<LiveInner>);

struct LiveInner {
    dataset: DatasetId,
    dirty: DirtyTotal,
    state: RwLock<LiveState>,
    slots: Mutex<Slots>,
    /// The last txg in which another object set got blocks of this one; 0 if none did.
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
    /// An object set whose changes begin in txg `txg`.
    pub fn new(on_disk: Objset, txg: Txg) -> LiveObjset {
        LiveObjset::counted(on_disk, txg, &DirtyTotal::default())
    }

    /// The same, with what has changed counted in a sum.
    pub fn counted(on_disk: Objset, txg: Txg, dirty: &DirtyTotal) -> LiveObjset {
        let (dataset, on_disk) = (on_disk.dataset_id(), on_disk.not_keeping());
        let state = RwLock::new(LiveState::new(on_disk, None, Arc::new(Layer::new(txg, dirty))));
        let dirty = dirty.clone();
        let (slots, lent) = (Mutex::default(), AtomicU64::new(0));
        LiveObjset(Arc::new(LiveInner { dataset, dirty, state, slots, lent }))
    }

    /// The dataset whose content it is; 0 for the MOS.
    pub fn dataset_id(&self) -> DatasetId {
        self.0.dataset
    }

    /// The set as it is now, changes included. What it is on disk stays whole while the view is held.
    pub fn view(&self) -> Objset {
        self.kept(|state| &state.view)
    }

    /// What its users do.
    pub fn traffic(&self) -> Arc<Traffic> {
        self.0.state.read().view.traffic().clone()
    }

    /// The set as the last txg on disk left it; it stays whole likewise.
    pub fn on_disk(&self) -> Objset {
        self.kept(|state| &state.on_disk)
    }

    fn kept(&self, which: impl Fn(&LiveState) -> &Objset) -> Objset {
        // Together, so that no later tree is looked at than is kept.
        which(&self.0.state.read()).keeping_now()
    }

    /// A hand to change it with in the open txg, which the caller holds open.
    pub fn edit(&self) -> Edit {
        Edit::new(self.clone(), self.0.state.read().open.clone())
    }

    /// What its layers show of a block.
    pub fn shown(&self, object: ObjectId, block: BlockId) -> Shown {
        self.view().layers().block(object, block)
    }

    /// Whether anybody has a hand on it besides the one who asks.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Bytes of changes in memory.
    pub fn dirty_bytes(&self) -> u64 {
        let state = self.0.state.read();
        state.open.dirty().bytes() + state.syncing.as_ref().map_or(0, |layer| layer.dirty().bytes())
    }

    /// Whether the open txg has changed anything.
    pub fn is_dirty(&self) -> bool {
        !self.0.state.read().open.is_empty()
    }

    /// In txg `txg`, which the caller holds open, another object set gets blocks of this one. Until that txg
    /// is on disk nobody has counted them, so this set must not be destroyed or replaced before.
    pub fn lend(&self, txg: Txg) {
        self.0.lent.fetch_max(txg.0, Ordering::AcqRel);
    }

    /// The last txg that [`LiveObjset::lend`] was told of; 0 if none.
    pub fn last_lent(&self) -> Txg {
        Txg(self.0.lent.load(Ordering::Acquire))
    }

    /// Changes from now on belong to txg `txg`. There may be none yet.
    pub fn relabel(&self, txg: Txg) {
        let mut state = self.0.state.write();
        if state.open.is_empty() {
            let open = Arc::new(Layer::new(txg, &self.0.dirty));
            *state = LiveState::new(state.on_disk.clone(), state.syncing.clone(), open);
        }
    }

    /// Closes the open layer for syncing and opens one for txg `next`. Nobody may be editing, and no sync
    /// be under way.
    pub fn freeze(&self, next: Txg) -> Arc<Layer> {
        let mut state = self.0.state.write();
        debug_assert!(state.syncing.is_none());
        let frozen = state.open.clone();
        let open = Arc::new(Layer::new(next, &self.0.dirty));
        *state = LiveState::new(state.on_disk.clone(), Some(frozen.clone()), open);
        frozen
    }

    /// The frozen layer is on disk: `tree` holds it.
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
