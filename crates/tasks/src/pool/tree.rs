//! Edits the vdev tree: puts a vdev above another, or removes one with a single child left.
//!
//! ```text
//!   put_above        a                 ->  mirror | replacing | spare -> a
//!   take_out_parent  mirror -> a       ->  a
//! ```
//!
//! Fields of top-level vdevs (space maps, ashift, class ...) stay at the top; they are unset below, so moving
//! them is harmless there.
//!
//! Source: OpenZFS `vdev.c` (`vdev_add_parent`, `vdev_remove_parent`, `vdev_top_transfer`).

use cenote_format::label::{VdevConfig, VdevKind};
use cenote_format::units::{Guid, ObjectId};

/// A vdev's parent.
pub(crate) fn parent_of(vdev: &VdevConfig, child: Guid) -> Option<&VdevConfig> {
    vdev.walk().find(|vdev| vdev.children.iter().any(|one| one.guid == child))
}

/// A vdev's parent, mutable.
pub(crate) fn parent_mut(vdev: &mut VdevConfig, child: Guid) -> Option<&mut VdevConfig> {
    if vdev.children.iter().any(|one| one.guid == child) {
        return Some(vdev);
    }
    vdev.children.iter_mut().find_map(|below| parent_mut(below, child))
}

/// The top-level vdev that is or contains this one.
pub(crate) fn top_of(root: &VdevConfig, guid: Guid) -> Option<&VdevConfig> {
    root.children.iter().find(|top| top.walk().any(|vdev| vdev.guid == guid))
}

/// Whether a vdev's leaves are copies of each other.
pub(crate) fn holds_copies(kind: &VdevKind) -> bool {
    matches!(kind, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare)
}

/// Puts a new vdev in this one's place, with this one as its only child.
pub(crate) fn put_above(vdev: &mut VdevConfig, kind: VdevKind, guid: Guid) {
    let above = VdevConfig {
        ashift: vdev.ashift,
        asize_bytes: vdev.asize_bytes,
        class: vdev.class,
        metaslab_array: vdev.metaslab_array,
        metaslab_shift: vdev.metaslab_shift,
        top_zap: vdev.top_zap,
        non_allocating: vdev.non_allocating,
        create_txg: vdev.create_txg,
        ..VdevConfig::new(kind, vdev.id, guid)
    };
    let below = VdevConfig {
        id: 0,
        ashift: 0,
        asize_bytes: 0,
        class: Default::default(),
        metaslab_array: ObjectId(0),
        metaslab_shift: 0,
        top_zap: ObjectId(0),
        non_allocating: false,
        ..std::mem::replace(vdev, above)
    };
    vdev.children.push(below);
}

/// Replaces a vdev with its only child. At the top the child takes over the guid: labels left on a detached
/// disk then name this vdev.
pub(crate) fn take_out_parent(vdev: &mut VdevConfig, is_top: bool) {
    let Some(child) = vdev.children.pop() else { return };
    *vdev = VdevConfig {
        guid: if is_top { vdev.guid } else { child.guid },
        id: vdev.id,
        ashift: vdev.ashift,
        asize_bytes: vdev.asize_bytes,
        class: vdev.class,
        metaslab_array: vdev.metaslab_array,
        metaslab_shift: vdev.metaslab_shift,
        top_zap: vdev.top_zap,
        non_allocating: vdev.non_allocating,
        create_txg: vdev.create_txg,
        ..child
    };
}

/// Numbers children by position.
pub(crate) fn number(children: &mut [VdevConfig]) {
    (0..).zip(children).for_each(|(id, child)| child.id = id);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(id: u64, guid: u64) -> VdevConfig {
        VdevConfig::new(VdevKind::File, id, Guid(guid))
    }

    #[test]
    fn what_is_put_above_a_disk_and_taken_out_again_leaves_it_as_it_was() {
        let mut root = VdevConfig::new(VdevKind::Root, 0, Guid(1));
        let top = VdevConfig { ashift: 12, metaslab_shift: 24, asize_bytes: 1 << 30, ..leaf(0, 2) };
        let raidz = VdevConfig {
            children: vec![leaf(0, 4), VdevConfig { offline: true, ..leaf(1, 5) }],
            ..VdevConfig::new(VdevKind::Raidz, 1, Guid(3))
        };
        root.children = vec![top, raidz];
        for (guid, is_top) in [(2, true), (5, false)] {
            let before = root.clone();
            let parent = parent_mut(&mut root, Guid(guid)).unwrap();
            let at = parent.children.iter().position(|one| one.guid == Guid(guid)).unwrap();
            let vdev = &mut parent.children[at];
            put_above(vdev, VdevKind::Replacing, Guid(9));
            assert_eq!((vdev.id, vdev.offline), (at as u64, false), "its place, and nothing of its state");
            assert_eq!((vdev.children[0].ashift, vdev.children[0].id), (0, 0));
            take_out_parent(vdev, is_top);
            // At the top, the remaining and the detached leaf must have labels of one vdev.
            assert_eq!(vdev.guid, if is_top { Guid(9) } else { Guid(guid) });
            vdev.guid = Guid(guid);
            assert_eq!(root, before);
        }
        assert_eq!(parent_of(&root, Guid(5)).map(|vdev| vdev.guid), Some(Guid(3)));
        assert_eq!(top_of(&root, Guid(5)).map(|vdev| vdev.id), Some(1));
    }
}
