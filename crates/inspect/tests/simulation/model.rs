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

    /// An operation of one of these groups has made the pool what it is. Of a group that is known for sure only the last
    /// state is kept: no cut shows another.
    pub fn note(&mut self, earliest: Txg, latest: Txg, world: &World) {
        let last = self.states.last_mut().expect("it begins with one");
        if last.world == *world {
            // Nothing was changed: such a group may never be written.
        } else if earliest == latest && (last.earliest, last.latest) == (earliest, latest) {
            last.world = world.clone();
        } else {
            self.states.push(State { earliest, latest, world: world.clone() });
        }
    }

    /// The number of the last state.
    pub fn last(&self) -> usize {
        self.states.len() - 1
    }

    /// What the pool may be as group `txg` left it if state `acknowledged` is on disk: most of the time one thing. Nothing, if what
    /// was acknowledged is lost.
    pub fn at(&self, txg: Txg, acknowledged: usize) -> Vec<&World> {
        let sure = self.states.iter().rposition(|state| state.latest <= txg).unwrap_or(0);
        let possible = self.states[sure.max(acknowledged)..].iter().take_while(|state| state.earliest <= txg);
        possible.map(|state| &state.world).collect()
    }
}
