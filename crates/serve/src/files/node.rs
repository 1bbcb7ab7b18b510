//! The numbers of nodes, and which of them the kernel holds.
//!
//! ```text
//!   bits 48..64: the tree     0: the mounted dataset   1..0xfffe: a snapshot below .zfs   0xffff: .zfs
//!   bits  0..48: the object   the root is node 1, as FUSE wants it; object 1 is never a file
//! ```
//!
//! Idea: a number says all by itself, so a node that the kernel has forgotten can still be asked for (NFS
//! does).
//!
//! Locking: each shard of the references has a lock of its own, held for one look or change.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote_format::units::ObjectId;
use cenote_fuse::Node;
use parking_lot::Mutex;

const OBJECT_BITS: u32 = 48;
const SHARDS: usize = 64;

/// Which tree a node is in: 0 is the mounted dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u16);

impl TreeId {
    pub const HEAD: TreeId = TreeId(0);
    const CONTROL: TreeId = TreeId(u16::MAX);
}

/// What a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    File(TreeId, ObjectId),
    Control(Control),
}

/// Directories that are not on disk.
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
        Node(u64::from(TreeId::CONTROL.0) << OBJECT_BITS | self as u64)
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

/// The number of a file. `root` is the mounted dataset's.
pub fn number(tree: TreeId, object: ObjectId, root: ObjectId) -> Node {
    match tree {
        TreeId::HEAD if object == root => Node::ROOT,
        _ => Node(u64::from(tree.0) << OBJECT_BITS | object.0 & ((1 << OBJECT_BITS) - 1)),
    }
}

/// What a number stands for; `None`: nothing that was ever handed out.
pub fn named(node: Node, root: ObjectId) -> Option<Named> {
    let (tree, object) = ((node.0 >> OBJECT_BITS) as u16, node.0 & ((1 << OBJECT_BITS) - 1));
    match TreeId(tree) {
        _ if node == Node::ROOT => Some(Named::File(TreeId::HEAD, root)),
        TreeId::CONTROL => match object {
            1 => Some(Named::Control(Control::Zfs)),
            2 => Some(Named::Control(Control::Snapshot)),
            3 => Some(Named::Control(Control::Shares)),
            _ => None,
        },
        tree => Some(Named::File(tree, ObjectId(object))),
    }
}

/// How often the kernel holds each node.
#[derive(Debug)]
pub struct References {
    shards: Box<[Mutex<HashMap<Node, Held>>]>,
    /// Some node was stale once.
    has_stale: AtomicBool,
}

#[derive(Debug, Default)]
struct Held {
    references: u64,
    /// It has no names any more: to be freed with the last reference.
    unlinked: bool,
    /// What the kernel holds is gone: the tree is another one since. Until it is given the node anew.
    stale: bool,
}

impl References {
    pub fn new() -> References {
        References {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            has_stale: AtomicBool::new(false),
        }
    }

    fn shard(&self, node: Node) -> &Mutex<HashMap<Node, Held>> {
        &self.shards[node.0 as usize % SHARDS]
    }

    /// The kernel was given one more.
    pub fn add(&self, node: Node) {
        let mut shard = self.shard(node).lock();
        let held = shard.entry(node).or_default();
        held.references += 1;
        held.stale = false;
    }

    /// Whether the kernel holds something under this number that is gone.
    pub fn is_stale(&self, node: Node) -> bool {
        self.has_stale.load(Ordering::Acquire)
            && self.shard(node).lock().get(&node).is_some_and(|held| held.stale)
    }

    /// What the kernel holds under this number is gone: there is nothing to be freed with it.
    pub fn make_stale(&self, node: Node) {
        if let Some(held) = self.shard(node).lock().get_mut(&node) {
            (held.stale, held.unlinked) = (true, false);
            self.has_stale.store(true, Ordering::Release);
        }
    }

    /// The nodes of a tree that the kernel holds.
    pub fn of_tree(&self, tree: TreeId) -> Vec<Node> {
        let is_in = |node: &Node| match tree {
            TreeId::HEAD => node.0 >> OBJECT_BITS == 0,
            tree => node.0 >> OBJECT_BITS == u64::from(tree.0),
        };
        self.collect(|node, _| is_in(node))
    }

    /// The kernel drops some. Answers whether the node is to be freed now.
    pub fn drop(&self, node: Node, count: u64) -> bool {
        let mut shard = self.shard(node).lock();
        let Some(held) = shard.get_mut(&node) else { return false };
        held.references = held.references.saturating_sub(count);
        held.references == 0 && shard.remove(&node).is_some_and(|held| held.unlinked)
    }

    /// The node has lost its last name. Answers whether it is to be freed now.
    pub fn unlink(&self, node: Node) -> bool {
        match self.shard(node).lock().get_mut(&node) {
            Some(held) => {
                held.unlinked = true;
                false
            }
            None => true,
        }
    }

    /// The node has a name again.
    pub fn relink(&self, node: Node) {
        if let Some(held) = self.shard(node).lock().get_mut(&node) {
            held.unlinked = false;
        }
    }

    /// Nodes without names that the kernel still holds.
    pub fn unlinked(&self) -> Vec<Node> {
        self.collect(|_, held| held.unlinked)
    }

    fn collect(&self, is_meant: impl Fn(&Node, &Held) -> bool) -> Vec<Node> {
        let of_shard = |shard: &Mutex<HashMap<Node, Held>>| -> Vec<Node> {
            shard.lock().iter().filter(|(node, held)| is_meant(node, held)).map(|(node, _)| *node).collect()
        };
        let mut nodes: Vec<Node> = self.shards.iter().flat_map(of_shard).collect();
        nodes.sort_unstable();
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        let root = ObjectId(34);
        for (tree, object) in [(0, 34), (0, 35), (1, 34), (0xfffe, (1 << 48) - 1)] {
            let node = number(TreeId(tree), ObjectId(object), root);
            assert_eq!(named(node, root), Some(Named::File(TreeId(tree), ObjectId(object))));
        }
        assert_eq!(number(TreeId::HEAD, root, root), Node::ROOT);
        for control in [Control::Zfs, Control::Snapshot, Control::Shares] {
            assert_eq!(named(control.node(), root), Some(Named::Control(control)));
        }
    }

    #[test]
    fn a_node_is_freed_once_with_its_last_reference() {
        let (references, node) = (References::new(), Node(77));
        references.add(node);
        references.add(node);
        assert!(!references.unlink(node), "it is held");
        assert!(!references.drop(node, 1));
        assert_eq!(references.unlinked(), [node]);
        assert!(references.drop(node, 1));
        assert!(!references.drop(node, 1), "once");
        assert!(references.unlink(node), "nobody holds it");
    }
}
