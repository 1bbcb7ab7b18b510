//! What a pool should hold: datasets and snapshots in memory, and how they were at the end of each group.
//!
//! Copies share what they have in common, so each operation may leave one.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_dataset::{ObjectId, Txg};
use cenote_fs::FileKind;

/// A file, by its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub kind: FileKind,
    pub permissions: u32,
    /// Bytes of a file, target of a link.
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
            Content::Files(_) => panic!("a file system is no volume"),
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
    /// Clones, and the snapshots that they depend on.
    pub origins: BTreeMap<String, String>,
}

/// How a pool was, operation by operation.
pub struct History {
    states: Vec<State>,
}

/// The pool after an operation.
struct State {
    /// The operation is in none before this group...
    earliest: Txg,
    /// ...and in all from this one on.
    latest: Txg,
    world: World,
}

impl History {
    /// Begins with a pool as it is on disk in a group.
    pub fn begin(txg: Txg, world: World) -> History {
        History { states: vec![State { earliest: txg, latest: txg, world }] }
    }

    /// An operation of one of these groups has made the pool what it is.
    pub fn note(&mut self, earliest: Txg, latest: Txg, world: &World) {
        // If nothing was changed, such a group may never be written.
        if self.states[self.last()].world != *world {
            self.states.push(State { earliest, latest, world: world.clone() });
        }
    }

    /// The number of the last state.
    pub fn last(&self) -> usize {
        self.states.len() - 1
    }

    pub fn world(&self, state: usize) -> &World {
        &self.states[state].world
    }

    /// What the pool may be as group `txg` left it if state `acknowledged` is on disk: most of the time one state. None, if what
    /// was acknowledged is lost.
    pub fn at(&self, txg: Txg, acknowledged: usize) -> std::ops::Range<usize> {
        let sure = self.states.iter().rposition(|state| state.latest <= txg).unwrap_or(0);
        let from = sure.max(acknowledged);
        let possible = self.states[from..].iter().take_while(|state| state.earliest <= txg);
        from..from + possible.count()
    }
}
