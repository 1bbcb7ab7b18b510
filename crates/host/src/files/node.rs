//! Node numbers, and the kernel's references to them.
//!
//! ```text
//!   bits 62..64    0: an object of the mounted dataset; the root is FUSE's node 1, and object 1
//!                     is never a file
//!                  1: bits 40..62 a snapshot (its dataset's number), bits 0..40 an object in it
//!                  2: counted; bits 0..6 are the object's
//!                  3: `.zfs`
//! ```
//!
//! Idea: a number is self-contained and survives a restart. So a node that the kernel has forgotten can still
//! be requested (by NFS); with the generation it identifies one file for ever.
//!
//! While the kernel holds a number, it stands for one file, identified by its generation. Requests carry no
//! generation: if that file is gone, the number is stale until the kernel drops it, and a new file with the
//! same object gets a counted number. So does an object with too many bits.
//!
//! Locking: each shard of the references has a lock, held for one look or change.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_format::units::{DatasetId, Guid, ObjectId};
use cenote_fuse::Node;
use parking_lot::{Mutex, MutexGuard};

const KIND_BITS: u32 = 62;
const SNAPSHOT: u64 = 1;
const COUNTED: u64 = 2;
const CONTROL: u64 = 3;
/// Bits of object and dataset numbers in a snapshot's nodes.
const OBJECT_BITS: u32 = 40;
const DATASET_BITS: u32 = KIND_BITS - OBJECT_BITS;
/// Shards by the lowest bits of numbers, which are the object's.
const SHARD_BITS: u32 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TreeId {
    /// The mounted dataset.
    Head,
    /// A snapshot below `.zfs`.
    Snapshot(DatasetId),
}

/// The meaning of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    File(TreeId, ObjectId),
    Control(Control),
}

/// Virtual directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// `.zfs`
    Zfs = 1,
    /// `.zfs/snapshot`
    Snapshot = 2,
    /// `.zfs/shares`
    Shares = 3,
}

impl Control {
    pub fn node(self) -> Node {
        Node(CONTROL << KIND_BITS | self as u64)
    }

    /// `ZFSCTL_INO_ROOT`, `ZFSCTL_INO_SNAPDIR`, `ZFSCTL_INO_SHARES`.
    pub fn ino(self) -> u64 {
        match self {
            Control::Zfs => 0x0000_ffff_ffff_ffff,
            Control::Snapshot => 0x0000_ffff_ffff_fffd,
            Control::Shares => 0x0000_ffff_ffff_fffe,
        }
    }
}

/// A file's usual number, even if another file still has it. `None`: too many bits.
pub fn number(tree: TreeId, object: ObjectId, root: ObjectId) -> Option<Node> {
    match tree {
        TreeId::Head if object == root => Some(Node::ROOT),
        TreeId::Head => Some(Node(object.0)).filter(|node| node.0 >> KIND_BITS == 0 && *node != Node::ROOT),
        TreeId::Snapshot(dataset) => {
            let fits = dataset.0 >> DATASET_BITS == 0 && object.0 >> OBJECT_BITS == 0;
            fits.then_some(Node(SNAPSHOT << KIND_BITS | dataset.0 << OBJECT_BITS | object.0))
        }
    }
}

/// A snapshot file's generation for the kernel, which keeps 32 bits of it: dataset numbers are reused.
pub fn generation_in(snapshot: Guid, generation: u64) -> u64 {
    // Any odd number with many bits; here 2^64 divided by the golden ratio.
    (snapshot.0 ^ generation).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// The kernel's references.
#[derive(Debug)]
pub struct References {
    root: ObjectId,
    shards: Box<[Mutex<Shard>]>,
    counted: AtomicU64,
    has_stale: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    held: HashMap<Node, Held>,
    /// Counted numbers of existing files.
    counted: HashMap<(TreeId, ObjectId), Node>,
}

/// A node that the kernel holds.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub tree: TreeId,
    pub object: ObjectId,
    pub generation: u64,
    references: u64,
    /// Unlinked: to be freed with the last reference.
    unlinked: bool,
    stale: bool,
}

impl Shard {
    fn node_of(&self, tree: TreeId, object: ObjectId, root: ObjectId) -> Option<Node> {
        if let Some(node) = self.counted.get(&(tree, object)) {
            return Some(*node);
        }
        number(tree, object, root).filter(|node| self.held.get(node).is_some_and(|held| !held.stale))
    }

    fn make_stale(&mut self, node: Node) {
        if let Some(held) = self.held.get_mut(&node) {
            (held.stale, held.unlinked) = (true, false);
            if self.counted.get(&(held.tree, held.object)) == Some(&node) {
                self.counted.remove(&(held.tree, held.object));
            }
        }
    }
}

impl References {
    /// Of a dataset with this root directory.
    pub fn new(root: ObjectId) -> References {
        let shards = (0..1 << SHARD_BITS).map(|_| Mutex::default()).collect();
        References { root, shards, counted: AtomicU64::new(0), has_stale: AtomicBool::new(false) }
    }

    /// The meaning of a number; `None` if invalid.
    pub fn named(&self, node: Node) -> Option<Named> {
        let low = node.0 & !(u64::MAX << KIND_BITS);
        match (node.0 >> KIND_BITS, low) {
            _ if node == Node::ROOT => Some(Named::File(TreeId::Head, self.root)),
            (SNAPSHOT, low) => {
                let tree = TreeId::Snapshot(DatasetId(low >> OBJECT_BITS));
                Some(Named::File(tree, ObjectId(low & !(u64::MAX << OBJECT_BITS))))
            }
            (COUNTED, _) => {
                let shard = self.shard_of(node);
                shard.held.get(&node).map(|held| Named::File(held.tree, held.object))
            }
            (CONTROL, 1) => Some(Named::Control(Control::Zfs)),
            (CONTROL, 2) => Some(Named::Control(Control::Snapshot)),
            (CONTROL, 3) => Some(Named::Control(Control::Shares)),
            (CONTROL, _) => None,
            (_, object) => Some(Named::File(TreeId::Head, ObjectId(object))),
        }
    }

    fn shard_of(&self, node: Node) -> MutexGuard<'_, Shard> {
        self.shards[node.0 as usize % self.shards.len()].lock()
    }

    fn shard(&self, tree: TreeId, object: ObjectId) -> MutexGuard<'_, Shard> {
        self.shard_of(number(tree, object, self.root).unwrap_or(Node(object.0)))
    }

    /// Adds a reference to a file; returns its number.
    pub fn give(&self, tree: TreeId, object: ObjectId, generation: u64) -> Node {
        let mut shard = self.shard(tree, object);
        if let Some(node) = shard.node_of(tree, object, self.root)
            && let Some(held) = shard.held.get_mut(&node)
        {
            if held.generation == generation || node == Node::ROOT {
                held.references += 1;
                return node;
            }
            shard.make_stale(node);
            self.has_stale.store(true, Ordering::Release);
        }
        let first = Held { tree, object, generation, references: 1, unlinked: false, stale: false };
        if let Some(usual) = number(tree, object, self.root)
            && let Entry::Vacant(vacant) = shard.held.entry(usual)
        {
            vacant.insert(first);
            return usual;
        }
        let count = self.counted.fetch_add(1, Ordering::Relaxed);
        let of_shard = object.0 & !(u64::MAX << SHARD_BITS);
        let node = Node(COUNTED << KIND_BITS | count << SHARD_BITS | of_shard);
        shard.counted.insert((tree, object), node);
        shard.held.insert(node, first);
        node
    }

    /// Adds a reference to a virtual directory.
    pub fn give_control(&self, control: Control) -> Node {
        let (tree, object) = (TreeId::Head, ObjectId(0));
        let first = Held { tree, object, generation: 0, references: 0, unlinked: false, stale: false };
        self.shard_of(control.node()).held.entry(control.node()).or_insert(first).references += 1;
        control.node()
    }

    /// The number under which the kernel holds a file. It always holds the root.
    pub fn node_of(&self, tree: TreeId, object: ObjectId) -> Option<Node> {
        if tree == TreeId::Head && object == self.root {
            return Some(Node::ROOT);
        }
        self.shard(tree, object).node_of(tree, object, self.root)
    }

    pub fn is_known(&self, node: Node) -> bool {
        self.shard_of(node).held.get(&node).is_some_and(|held| held.references > 1)
    }

    /// Whether the kernel holds a node.
    pub fn holds(&self, node: Node) -> bool {
        self.shard_of(node).held.contains_key(&node)
    }

    /// Whether the kernel holds a removed file under this number.
    pub fn is_stale(&self, node: Node) -> bool {
        self.has_stale.load(Ordering::Acquire)
            && self.shard_of(node).held.get(&node).is_some_and(|held| held.stale)
    }

    /// Marks a node's file as gone, with nothing left to free.
    pub fn make_stale(&self, node: Node) {
        self.shard_of(node).make_stale(node);
        self.has_stale.store(true, Ordering::Release);
    }

    /// Drops references. Returns the object of the mounted dataset to free now.
    pub fn drop(&self, node: Node, count: u64) -> Option<ObjectId> {
        let mut shard = self.shard_of(node);
        let held = shard.held.get_mut(&node)?;
        held.references = held.references.saturating_sub(count);
        let held = Some(*held).filter(|held| held.references == 0)?;
        if shard.counted.get(&(held.tree, held.object)) == Some(&node) {
            shard.counted.remove(&(held.tree, held.object));
        }
        shard.held.remove(&node);
        held.unlinked.then_some(held.object)
    }

    /// Marks a file of the mounted dataset as unlinked. Returns whether the kernel holds it; otherwise free
    /// it now.
    pub fn keep(&self, object: ObjectId) -> bool {
        self.with(object, |held| held.unlinked = true)
    }

    /// A file of the mounted dataset has a name again.
    pub fn relink(&self, object: ObjectId) {
        self.with(object, |held| held.unlinked = false);
    }

    fn with(&self, object: ObjectId, change: impl FnOnce(&mut Held)) -> bool {
        let mut shard = self.shard(TreeId::Head, object);
        let node = shard.node_of(TreeId::Head, object, self.root);
        let held = node.and_then(|node| shard.held.get_mut(&node));
        held.map(change).is_some()
    }

    /// The kernel's references in a tree, without stale ones.
    pub fn of_tree(&self, tree: TreeId) -> Vec<(Node, Held)> {
        let is_control = |node: Node| node.0 >> KIND_BITS == CONTROL;
        let of_shard = |shard: &Mutex<Shard>| -> Vec<(Node, Held)> {
            let shard = shard.lock();
            let held = shard.held.iter().filter(|(_, held)| held.tree == tree && !held.stale);
            held.map(|(node, held)| (*node, *held)).filter(|(node, _)| !is_control(*node)).collect()
        };
        let mut nodes: Vec<(Node, Held)> = self.shards.iter().flat_map(of_shard).collect();
        nodes.sort_unstable_by_key(|(node, _)| *node);
        nodes
    }

    /// Drops all references. Returns the objects to free now.
    pub fn drop_all(&self) -> Vec<ObjectId> {
        let of_shard = |shard: &Mutex<Shard>| std::mem::take(&mut *shard.lock()).held;
        let held = self.shards.iter().flat_map(of_shard).map(|(_, held)| held);
        let mut unlinked: Vec<ObjectId> = held.filter(|held| held.unlinked).map(|held| held.object).collect();
        unlinked.sort_unstable();
        unlinked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: ObjectId = ObjectId(34);

    fn references() -> References {
        References::new(ROOT)
    }

    fn give(references: &References, object: u64, generation: u64) -> Node {
        references.give(TreeId::Head, ObjectId(object), generation)
    }

    #[test]
    fn numbers_go_both_ways() {
        let snapshot = |id| TreeId::Snapshot(DatasetId(id));
        let files = [(TreeId::Head, 34), (TreeId::Head, (1 << 48) - 1), (snapshot(1), 34)];
        for (tree, object) in files.into_iter().chain([(snapshot((1 << 22) - 1), (1 << 40) - 1)]) {
            let node = number(tree, ObjectId(object), ROOT).unwrap();
            assert_eq!(references().named(node), Some(Named::File(tree, ObjectId(object))));
        }
        assert_eq!(number(TreeId::Head, ROOT, ROOT), Some(Node::ROOT));
        for control in [Control::Zfs, Control::Snapshot, Control::Shares] {
            assert_eq!(references().named(control.node()), Some(Named::Control(control)));
        }
    }

    #[test]
    fn a_file_of_a_snapshot_whose_number_is_too_long_is_found_while_it_is_held() {
        let references = references();
        for (dataset, object) in [(1 << 22, 7), (5, 1 << 40), (u64::MAX, u64::MAX)] {
            let tree = TreeId::Snapshot(DatasetId(dataset));
            let node = references.give(tree, ObjectId(object), 1);
            assert_eq!(references.named(node), Some(Named::File(tree, ObjectId(object))));
            assert_eq!(references.give(tree, ObjectId(object), 1), node);
            references.drop(node, 2);
            assert_eq!(references.named(node), None);
        }
    }

    #[test]
    fn a_node_is_freed_once_with_its_last_reference() {
        let references = references();
        let node = give(&references, 77, 1);
        assert_eq!(give(&references, 77, 1), node);
        assert!(references.keep(ObjectId(77)), "it is held");
        assert_eq!(references.drop(node, 1), None);
        assert_eq!(references.drop(node, 1), Some(ObjectId(77)));
        assert_eq!(references.drop(node, 1), None, "once");
        assert!(!references.keep(ObjectId(77)), "nobody holds it");
    }

    #[test]
    fn a_number_that_is_held_never_becomes_another_file_s() {
        let references = references();
        let old = give(&references, 77, 1);
        references.make_stale(old);
        let new = give(&references, 77, 2);
        assert!(new != old && references.is_stale(old) && !references.is_stale(new));
        assert_eq!(references.named(new), Some(Named::File(TreeId::Head, ObjectId(77))));
        // The file was replaced without notice.
        let newer = give(&references, 77, 3);
        assert!(newer != new && references.is_stale(new));

        // A file keeps its number while held.
        references.drop(old, 1);
        assert_eq!(give(&references, 77, 3), newer);
        references.drop(newer, 2);
        assert_eq!(give(&references, 77, 3), old);
        assert!(!references.is_stale(old));
    }

    #[test]
    fn what_is_stale_is_neither_kept_nor_freed() {
        let references = references();
        let old = give(&references, 77, 1);
        references.keep(ObjectId(77));
        references.make_stale(old);
        assert!(!references.keep(ObjectId(77)));
        assert_eq!(references.drop(old, 1), None);
        assert!(references.of_tree(TreeId::Head).is_empty());
    }
}
