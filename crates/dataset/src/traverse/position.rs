//! Resumable position of a traversal in an object set.
//!
//! ```text
//!   root -> meta dnode's tree -> block of dnodes -> object 1's tree, object 2's tree, ... -> next block
//!                                                       ^ position: the first block that is not visited
//! ```
//!
//! Idea: blocks are visited in OpenZFS's order: parents before children, objects by number. All blocks before
//! the position have been visited, and possibly some after it.
//!
//! Source: OpenZFS `zio.c` (`zbookmark_compare`, `zbookmark_subtree_completed`).

use cenote_format::dnode::DNODES_PER_BLOCK;
use cenote_format::units::{BlockId, ObjectId};
use cenote_object::dead_tree::leaves_before;
use cenote_object::object::SPILL_BLOCK;
use cenote_object::objset::META_DNODE_OBJECT;
use cenote_pool::Zbookmark;

/// First accounting object. These come last and are visited again.
const ACCOUNTING: u64 = 1 << 63;

/// A level-0 block; all blocks before it have been visited. The default is the beginning.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Object.
    pub object: ObjectId,
    /// Block in the object.
    pub block: BlockId,
}

impl Position {
    /// Position before a block; `fanout_shift` is that of its object's indirect blocks.
    pub(super) fn at(place: &Zbookmark, fanout_shift: u8) -> Position {
        let first = leaves_before(place.block.0, place.level, fanout_shift);
        match place.object {
            META_DNODE_OBJECT => {
                Position { object: ObjectId(first.saturating_mul(DNODES_PER_BLOCK)), block: BlockId(0) }
            }
            object if object.0 >= ACCOUNTING => Position { object: ObjectId(ACCOUNTING), block: BlockId(0) },
            object => Position { object, block: BlockId(first) },
        }
    }

    /// Whether a block and its whole subtree precede the position.
    pub(super) fn is_past(&self, place: &Zbookmark, fanout_shift: u8) -> bool {
        let end = leaves_before(place.block.0.saturating_add(1), place.level, fanout_shift);
        match place.object {
            META_DNODE_OBJECT => end.saturating_mul(DNODES_PER_BLOCK) <= self.object.0,
            object if object.0 >= ACCOUNTING => false,
            object if object != self.object => object < self.object,
            _ => place.block != SPILL_BLOCK && end <= self.block.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(object: u64, level: u8, block: u64) -> Zbookmark {
        Zbookmark { object: ObjectId(object), level, block: BlockId(block), ..Zbookmark::default() }
    }

    #[test]
    fn what_was_visited_lies_before_and_what_is_next_does_not() {
        // Object 70 is done below block 1,024: one indirect block of 1,024 pointers.
        let position = Position::at(&place(70, 1, 1), 10);
        assert_eq!(position, Position { object: ObjectId(70), block: BlockId(1024) });
        for past in [place(69, 0, 5000), place(70, 1, 0), place(70, 0, 1023), place(0, 0, 1)] {
            assert!(position.is_past(&past, 10), "{past}");
        }
        // Its dnode block, indirect blocks above it, accounting.
        for ahead in [place(70, 1, 1), place(70, 2, 0), place(71, 0, 0), place(0, 0, 2), place(0, 1, 0)] {
            assert!(!position.is_past(&ahead, 10), "{ahead}");
        }
        let accounting = Position::at(&place(u64::MAX, 0, 2), 10);
        assert!(accounting.is_past(&place(u64::MAX / 2, 0, 9), 10));
        assert!(!accounting.is_past(&place(u64::MAX - 1, 0, 0), 10));
        let dnodes = Position::at(&place(0, 0, 3), 10);
        assert_eq!(dnodes.object, ObjectId(96));
        assert!(!Position::default().is_past(&place(0, 0, 0), 10));
    }
}
