//! Intent log records in memory, kept until their txg is on disk.
//!
//! Written data is not kept: a commit reads it from the file's blocks, as it is by then. A later write to the
//! same place thus enters the log early; replay writes it again. Truncated or freed bytes are in no block, so
//! their notes are dropped; a commit that took such a note checks `is_there`.
//!
//! Memory: counted and bounded as dirty data.
//!
//! Source: OpenZFS `zil.c` (`zil_itx_assign`, `zil_async_to_sync`, `zil_remove_async`, `zil_clean`),
//! `zfs_log.c` (`WR_NEED_COPY`). There, `zfs_get_data` drops bytes beyond the file's end at the time of the
//! commit, even if the truncation is not in the log.

use std::collections::BTreeMap;
use std::ops::Range;

use cenote_format::units::{ObjectId, Txg};
use cenote_format::zil::record::Operation;
use cenote_object::live::{Dirty, DirtyTotal};

pub(crate) enum Note {
    /// A record, ready to write.
    Said(Box<Operation>),
    WriteNote(WriteNote),
}

/// A write within one block of an object.
pub(crate) struct WriteNote {
    pub(crate) object: ObjectId,
    pub(crate) range: Range<u64>,
    /// The object's block size at that time.
    pub(crate) block_bytes: u64,
    /// A whole block goes to its own place, outside the log.
    pub(crate) is_apart: bool,
}

impl Note {
    fn late_object(&self) -> Option<ObjectId> {
        match self {
            Note::WriteNote(written) => Some(written.object),
            Note::Said(operation) => operation.late_object(),
        }
    }

    /// Whether later operations on other objects may depend on it. Flags and projects decide which names a
    /// file may gain or lose, so their records keep their place among those of names, even if the file is
    /// gone at the commit.
    fn is_for_others(&self) -> bool {
        let Note::Said(operation) = self else { return false };
        matches!(**operation, Operation::SetAttr { attrs: Some(_), .. })
    }

    fn bytes(&self) -> u64 {
        let said = match self {
            Note::Said(operation) => size_of::<Operation>() + operation.encoded_bytes(),
            Note::WriteNote(_) => 0,
        };
        (size_of::<Note>() + said) as u64
    }
}

impl WriteNote {
    /// Absorbs a write directly behind it in the same block.
    fn join(&mut self, next: &WriteNote) -> bool {
        let follows = self.range.end == next.range.start
            && !self.range.end.is_multiple_of(self.block_bytes)
            && (self.block_bytes, self.is_apart) == (next.block_bytes, next.is_apart);
        if follows {
            self.range.end = next.range.end;
        }
        follows
    }
}

pub(crate) struct Records {
    txgs: BTreeMap<Txg, OfTxg>,
    /// Last txg with a change that no record describes.
    unsaid: Txg,
    /// Objects whose data the current commit reads, and where they were cut.
    taken: BTreeMap<ObjectId, u64>,
    total: DirtyTotal,
}

struct OfTxg {
    /// For the next commit, in this order.
    ordered: Vec<Note>,
    /// Also for the next commit, each before the ordered note of that index.
    released: BTreeMap<ObjectId, Vec<(usize, Vec<Note>)>>,
    /// Written only when their object is committed.
    waiting: BTreeMap<ObjectId, Vec<Note>>,
    dirty: Dirty,
}

impl OfTxg {
    fn notes_of(&mut self, object: ObjectId) -> impl Iterator<Item = &mut Vec<Note>> {
        let released = self.released.get_mut(&object).into_iter().flatten().map(|(_, notes)| notes);
        released.chain(self.waiting.get_mut(&object))
    }

    fn take(&mut self) -> impl Iterator<Item = Note> + use<> {
        let released = std::mem::take(&mut self.released).into_values().flatten();
        let released =
            released.flat_map(|(place, notes)| notes.into_iter().map(move |note| ((place, false), note)));
        let ordered = std::mem::take(&mut self.ordered).into_iter().enumerate();
        let ordered = ordered.map(|(place, note)| ((place, true), note));
        let mut all: Vec<_> = released.chain(ordered).collect();
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, note)| note)
    }
}

impl Drop for OfTxg {
    fn drop(&mut self) {
        self.dirty.settle();
    }
}

impl Records {
    /// `total` counts their memory.
    pub(crate) fn new(total: DirtyTotal) -> Records {
        Records { txgs: BTreeMap::new(), unsaid: Txg(0), taken: BTreeMap::new(), total }
    }

    pub(crate) fn append(&mut self, txg: Txg, note: Note) {
        let object = note.late_object();
        let is_for_others = note.is_for_others();
        if is_for_others {
            self.release(object);
        }
        let new = || OfTxg {
            ordered: Vec::new(),
            released: BTreeMap::new(),
            waiting: BTreeMap::new(),
            dirty: Dirty::of(&self.total),
        };
        let noted = self.txgs.entry(txg).or_insert_with(new);
        let list = match object {
            Some(object) if !is_for_others => noted.waiting.entry(object).or_default(),
            _ => &mut noted.ordered,
        };
        if let (Some(Note::WriteNote(last)), Note::WriteNote(next)) = (list.last_mut(), &note)
            && last.join(next)
        {
            return;
        }
        noted.dirty.replace(0, note.bytes());
        list.push(note);
    }

    pub(crate) fn cannot_say(&mut self, txg: Txg) {
        self.unsaid = self.unsaid.max(txg);
    }

    pub(crate) fn unsaid(&self) -> Txg {
        self.unsaid
    }

    /// Moves waiting notes of one object, or of all, to the next commit.
    pub(crate) fn release(&mut self, object: Option<ObjectId>) {
        for noted in self.txgs.values_mut() {
            let waiting = match object {
                Some(object) => noted.waiting.remove_entry(&object).into_iter().collect(),
                None => std::mem::take(&mut noted.waiting),
            };
            for (object, notes) in waiting {
                noted.released.entry(object).or_default().push((noted.ordered.len(), notes));
            }
        }
    }

    /// Drops writes beyond `size_bytes`, where the object is about to be cut.
    pub(crate) fn cut(&mut self, object: ObjectId, size_bytes: u64) {
        for notes in self.txgs.values_mut().flat_map(|noted| noted.notes_of(object)) {
            notes.retain_mut(|note| match note {
                Note::WriteNote(written) => {
                    written.range.end = written.range.end.min(size_bytes);
                    !written.range.is_empty()
                }
                Note::Said(_) => true,
            });
        }
        self.taken.entry(object).and_modify(|end| *end = size_bytes.min(*end));
    }

    /// The object's number may be reused.
    pub(crate) fn forget(&mut self, object: ObjectId) {
        for noted in self.txgs.values_mut() {
            noted.released.remove(&object);
            noted.waiting.remove(&object);
        }
        self.taken.entry(object).and_modify(|end| *end = 0);
    }

    pub(crate) fn drop_through(&mut self, txg: Txg) {
        self.txgs = self.txgs.split_off(&Txg(txg.0 + 1));
    }

    pub(crate) fn has_any(&self, synced: Txg) -> bool {
        let has_any = |noted: &OfTxg| !noted.ordered.is_empty() || !noted.released.is_empty();
        self.txgs.iter().any(|(txg, noted)| *txg > synced && has_any(noted))
    }

    /// Takes the notes that txg `synced` does not cover, in order.
    pub(crate) fn take(&mut self, synced: Txg) -> Vec<(Txg, Note)> {
        self.drop_through(synced);
        let of_txg = |(&txg, noted): (&Txg, &mut OfTxg)| noted.take().map(move |note| (txg, note));
        let all: Vec<(Txg, Note)> = self.txgs.iter_mut().flat_map(of_txg).collect();
        let written = all.iter().filter_map(|(_, note)| match note {
            Note::WriteNote(written) => Some((written.object, u64::MAX)),
            Note::Said(_) => None,
        });
        self.taken = written.collect();
        all
    }

    /// Whether a taken note's data is still in the blocks.
    pub(crate) fn is_there(&self, written: &WriteNote) -> bool {
        self.taken.get(&written.object).is_none_or(|&end| written.range.end <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use cenote_format::zil::attr::LogAttrs;

    fn written(range: Range<u64>) -> Note {
        Note::WriteNote(WriteNote { object: ObjectId(7), range, block_bytes: 100, is_apart: false })
    }

    fn ranges(records: &mut Records) -> Vec<Range<u64>> {
        records.release(None);
        let range = |(_, note)| match note {
            Note::WriteNote(written) => Some(written.range),
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
        // Taken notes stay as they are.
        records.append(Txg(3), written(50..60));
        assert_eq!(ranges(&mut records).first(), Some(&(50..60)));
    }

    #[test]
    fn what_was_released_is_written_before_what_came_later() {
        let name = || Note::Said(Operation::Unknown { txtype: 99, payload: Bytes::new() }.into());
        let mut records = Records::new(DirtyTotal::default());
        for start in [0, 10, 20] {
            records.append(Txg(3), written(100 * start..100 * start + 10));
            records.release(Some(ObjectId(7)));
            records.append(Txg(3), name());
        }
        records.append(Txg(3), written(5000..5010));
        let start = |(_, note)| match note {
            Note::WriteNote(written) => Some(written.range.start),
            Note::Said(_) => None,
        };
        let order: Vec<_> = records.take(Txg(0)).into_iter().map(start).collect();
        assert_eq!(order, [Some(0), None, Some(1000), None, Some(2000), None]);
    }

    #[test]
    fn a_change_of_flags_keeps_its_place_even_if_its_file_is_gone() {
        let flags = || LogAttrs { requested: vec![1], attrs: 0, crtime: [0; 2], scanstamp: [0; 32] };
        let chattr = |attrs| Operation::SetAttr {
            object: ObjectId(7),
            mask: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            size_bytes: 0,
            atime: [0; 2],
            mtime: [0; 2],
            attrs,
            domains: Vec::new(),
        };
        let remove =
            Operation::Remove { is_directory: false, directory: ObjectId(1), name: Bytes::from_static(b"f") };
        let mut records = Records::new(DirtyTotal::default());
        records.append(Txg(3), Note::Said(chattr(None).into()));
        records.append(Txg(3), Note::Said(chattr(Some(flags())).into()));
        records.append(Txg(3), Note::Said(chattr(None).into()));
        records.append(Txg(3), Note::Said(remove.clone().into()));
        records.forget(ObjectId(7));
        let said = |(_, note)| match note {
            Note::Said(operation) => Some(*operation),
            Note::WriteNote(_) => None,
        };
        let order: Vec<_> = records.take(Txg(0)).into_iter().filter_map(said).collect();
        assert_eq!(order, [chattr(Some(flags())), remove]);
    }

    #[test]
    fn what_was_cut_off_was_not_written() {
        let mut records = Records::new(DirtyTotal::default());
        for start in [0, 100, 200] {
            records.append(Txg(3), written(start..start + 50));
        }
        records.release(Some(ObjectId(7)));
        records.append(Txg(4), written(300..350));
        records.cut(ObjectId(8), 0);
        records.cut(ObjectId(7), 120);
        records.append(Txg(4), written(110..130));
        assert_eq!(ranges(&mut records), [0..50, 100..120, 110..130]);
        records.append(Txg(4), written(110..130));
        records.forget(ObjectId(7));
        assert_eq!(ranges(&mut records), [0..0; 0]);
    }

    #[test]
    fn a_commit_hears_of_what_was_cut_off_since_it_began() {
        let whole = |range| WriteNote { object: ObjectId(7), range, block_bytes: 100, is_apart: false };
        let mut records = Records::new(DirtyTotal::default());
        let taken = |records: &mut Records| {
            records.append(Txg(3), written(0..50));
            assert_eq!(ranges(records).len(), 1);
            assert!(records.is_there(&whole(0..50)));
        };
        taken(&mut records);
        records.cut(ObjectId(7), 50);
        records.forget(ObjectId(8));
        assert!(records.is_there(&whole(0..50)));
        records.cut(ObjectId(7), 49);
        assert!(!records.is_there(&whole(0..50)) && records.is_there(&whole(0..49)));
        records.cut(ObjectId(7), 100);
        assert!(!records.is_there(&whole(0..50)));
        taken(&mut records);
        records.forget(ObjectId(7));
        assert!(!records.is_there(&whole(0..1)));
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
