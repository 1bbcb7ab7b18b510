//! The expected content of a pool: datasets and snapshots in memory, and their state at the end of each txg.
//!
//! Copies share parts, so one is kept for each operation.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_format::units::{ObjectId, Txg};
use cenote_fs::FileKind;

/// A file, by its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub kind: FileKind,
    pub permissions: u32,
    /// The bytes of a file, or the target of a link.
    pub content: Arc<Vec<u8>>,
    pub xattr: Option<Vec<u8>>,
    pub names: BTreeMap<Vec<u8>, ObjectId>,
    pub links: u64,
}

impl Node {
    pub fn new(kind: FileKind, permissions: u32) -> Node {
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        Node { kind, permissions, content: Arc::default(), xattr: None, names: BTreeMap::new(), links }
    }
}

/// All files of a file system, or the bytes of a volume.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    Files(Arc<BTreeMap<ObjectId, Node>>),
    Volume(Arc<Vec<u8>>),
}

impl Content {
    pub fn files(&mut self) -> &mut BTreeMap<ObjectId, Node> {
        match self {
            Content::Files(files) => Arc::make_mut(files),
            Content::Volume(_) => panic!("a volume has no files"),
        }
    }

    pub fn volume(&mut self) -> &mut Vec<u8> {
        match self {
            Content::Volume(bytes) => Arc::make_mut(bytes),
            Content::Files(_) => panic!("a file system is not a volume"),
        }
    }

    pub fn is_volume(&self) -> bool {
        matches!(self, Content::Volume(_))
    }
}

/// A pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    /// File systems and volumes, by name.
    pub heads: BTreeMap<String, Content>,
    /// Snapshots by name, `dataset@snapshot`.
    pub snapshots: BTreeMap<String, Content>,
    /// Clones, and the snapshots they depend on.
    pub origins: BTreeMap<String, String>,
}

/// The states of a pool, operation by operation.
pub struct History {
    states: Vec<ModelState>,
}

/// The pool after an operation.
struct ModelState {
    /// No earlier txg contains the operation...
    earliest: Txg,
    /// ...and this and all later ones do.
    latest: Txg,
    world: World,
}

impl History {
    /// Starts with a pool in its on-disk state as of a txg.
    pub fn begin(txg: Txg, world: World) -> History {
        History { states: vec![ModelState { earliest: txg, latest: txg, world }] }
    }

    /// Records the pool after an operation of one of these txgs.
    pub fn note(&mut self, earliest: Txg, latest: Txg, world: &World) {
        // If nothing changed, such a txg may never be synced.
        if self.states[self.last()].world != *world {
            self.states.push(ModelState { earliest, latest, world: world.clone() });
        }
    }

    /// The number of the last state.
    pub fn last(&self) -> usize {
        self.states.len() - 1
    }

    pub fn world(&self, state: usize) -> &World {
        &self.states[state].world
    }

    /// The possible states of the pool as of `txg`, if state `acknowledged` is on disk: usually one. Empty if
    /// an acknowledged state was lost.
    pub fn at(&self, txg: Txg, acknowledged: usize) -> std::ops::Range<usize> {
        let sure = self.states.iter().rposition(|state| state.latest <= txg).unwrap_or(0);
        let from = sure.max(acknowledged);
        let possible = self.states[from..].iter().take_while(|state| state.earliest <= txg);
        from..from + possible.count()
    }
}
