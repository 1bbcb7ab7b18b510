//! What operations leave in memory until their group is on disk.
//!
//! Bytes that were written are not kept: they lie in the blocks that they went into, and a commit takes them from there, as they are by then. What
//! came later to the same place is then in the log a little early; replay writes it again.
//!
//! Memory: counted as changes are, and bounded with them.
//!
//! Source: OpenZFS `zil.c` (`zil_itx_assign`, `zil_async_to_sync`, `zil_remove_async`, `zil_clean`), `zfs_log.c` (`WR_NEED_COPY`).

use std::collections::BTreeMap;
use std::ops::Range;

use cenote_format::units::{ObjectId, Txg};
use cenote_format::zil::record::Operation;

use crate::live::{Dirty, DirtyTotal};

/// What an operation leaves.
pub(super) enum Note {
    /// A record, as it will be written.
    Said(Box<Operation>),
    /// That bytes were written.
    Written(Written),
}

/// Bytes were written to an object, within one of its blocks.
pub(super) struct Written {
    pub(super) object: ObjectId,
    pub(super) range: Range<u64>,
    /// Bytes of the object's blocks at that time.
    pub(super) block_bytes: u64,
    /// If the block was written whole, it goes to a place of its own and not into the log.
    pub(super) is_apart: bool,
}

impl Note {
    /// As [`Operation::late_object`].
    fn late_object(&self) -> Option<ObjectId> {
        match self {
            Note::Written(written) => Some(written.object),
            Note::Said(operation) => operation.late_object(),
        }
    }

    /// Bytes of memory.
    fn bytes(&self) -> u64 {
        let said = match self {
            Note::Said(operation) => size_of::<Operation>() + operation.encoded_bytes(),
            Note::Written(_) => 0,
        };
        (size_of::<Note>() + said) as u64
    }
}

impl Written {
    /// Takes what was written right behind it in the same block.
    fn join(&mut self, next: &Written) -> bool {
        let follows = self.range.end == next.range.start
            && !self.range.end.is_multiple_of(self.block_bytes)
            && (self.block_bytes, self.is_apart) == (next.block_bytes, next.is_apart);
        if follows {
            self.range.end = next.range.end;
        }
        follows
    }
}

/// Notes by group.
pub(super) struct Records {
    groups: BTreeMap<Txg, OfGroup>,
    /// The last group with something that no record says.
    unsaid: Txg,
    total: DirtyTotal,
}

struct OfGroup {
    /// To be written with the next commit, in this order.
    ordered: Vec<Note>,
    /// To be written when their object is committed.
    waiting: BTreeMap<ObjectId, Vec<Note>>,
    dirty: Dirty,
}

impl Drop for OfGroup {
    fn drop(&mut self) {
        self.dirty.settle();
    }
}

impl Records {
    /// None yet; what they take is counted in a sum.
    pub(super) fn new(total: DirtyTotal) -> Records {
        Records { groups: BTreeMap::new(), unsaid: Txg(0), total }
    }

    pub(super) fn append(&mut self, txg: Txg, note: Note) {
        let new = || OfGroup { ordered: Vec::new(), waiting: BTreeMap::new(), dirty: Dirty::of(&self.total) };
        let group = self.groups.entry(txg).or_insert_with(new);
        let list = match note.late_object() {
            Some(object) => group.waiting.entry(object).or_default(),
            None => &mut group.ordered,
        };
        if let (Some(Note::Written(last)), Note::Written(next)) = (list.last_mut(), &note)
            && last.join(next)
        {
            return;
        }
        group.dirty.replace(0, note.bytes());
        list.push(note);
    }

    pub(super) fn cannot_say(&mut self, txg: Txg) {
        self.unsaid = self.unsaid.max(txg);
    }

    /// The last group with something that only that group itself can make durable.
    pub(super) fn unsaid(&self) -> Txg {
        self.unsaid
    }

    /// What waits with an object, or with any, is to be written with the next commit.
    pub(super) fn release(&mut self, object: Option<ObjectId>) {
        for group in self.groups.values_mut() {
            let released = match object {
                Some(object) => group.waiting.remove(&object).unwrap_or_default(),
                None => std::mem::take(&mut group.waiting).into_values().flatten().collect(),
            };
            group.ordered.extend(released);
        }
    }

    pub(super) fn forget(&mut self, object: ObjectId) {
        self.groups.values_mut().for_each(|group| _ = group.waiting.remove(&object));
    }

    pub(super) fn drop_through(&mut self, txg: Txg) {
        self.groups = self.groups.split_off(&Txg(txg.0 + 1));
    }

    /// Whether anything is to be written that group `synced` does not cover.
    pub(super) fn has_any(&self, synced: Txg) -> bool {
        self.groups.iter().any(|(txg, group)| *txg > synced && !group.ordered.is_empty())
    }

    /// What is to be written and not covered by group `synced`, in order.
    pub(super) fn take(&mut self, synced: Txg) -> Vec<(Txg, Note)> {
        self.drop_through(synced);
        let of_group = |(&txg, group): (&Txg, &mut OfGroup)| {
            std::mem::take(&mut group.ordered).into_iter().map(move |note| (txg, note))
        };
        self.groups.iter_mut().flat_map(of_group).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(range: Range<u64>) -> Note {
        Note::Written(Written { object: ObjectId(7), range, block_bytes: 100, is_apart: false })
    }

    fn ranges(records: &mut Records) -> Vec<Range<u64>> {
        records.release(None);
        let range = |(_, note)| match note {
            Note::Written(written) => Some(written.range),
            Note::Said(_) => None,
        };
        records.take(Txg(0)).into_iter().filter_map(range).collect()
    }

    #[test]
    fn writes_that_follow_one_another_in_a_block_are_one_note() {
        let mut records = Records::new(DirtyTotal::default());
        for start in (50..150).step_by(10).chain([10, 20, 40]) {
            records.append(Txg(3), written(start..start + 10));
        }
        assert_eq!(ranges(&mut records), [50..100, 100..150, 10..30, 40..50]);
        // What was taken for a commit stays as it is.
        records.append(Txg(3), written(50..60));
        assert_eq!(ranges(&mut records).first(), Some(&(50..60)));
    }

    #[test]
    fn notes_count_as_changes_until_their_group_is_on_disk() {
        let total = DirtyTotal::default();
        let mut records = Records::new(total.clone());
        records.append(Txg(3), written(0..10));
        let one = total.bytes();
        assert!(one > 0);
        records.append(Txg(3), written(10..20));
        assert_eq!(total.bytes(), one);
        records.append(Txg(4), written(10..20));
        records.append(Txg(4), written(10..20));
        assert_eq!(total.bytes(), 3 * one);
        records.drop_through(Txg(3));
        assert_eq!(total.bytes(), 2 * one);
        drop(records);
        assert_eq!(total.bytes(), 0);
    }
}
