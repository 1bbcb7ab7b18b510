//! What reads found wrong, until somebody sees to it: places with a bad copy or column, to be written again;
//! and blocks that nobody has whole, to be noted in the error log.
//!
//! Idea: a read only notes the place. When it is seen to, the tree may have changed; so whoever does that
//! looks there what the block is now, and verifies it anew. Nothing is noted of a pool that is only read, nor
//! of intent logs, which end with blocks that were never written. A block that may have been freed while it
//! was read is suspect: no leaf has been blamed, and if it is still part of the tree, it is judged then.
//!
//! What a txg had to leave as it was, because it could not be read, is told in words ([`Pool::take_aside`]).
//! Space that stays allocated so is of two kinds: a *leak* is in nobody's account any more, and the txg
//! charges `$LEAK` for it ([`Pool::take_leaked_bytes`]); what is in no list any more is still in its
//! dataset's account.
//!
//! Memory: [`MOST`] places of each kind. What is left out is found again by the next read, or by a scrub.
//!
//! Locking: one lock for each kind, held for one look or change.

use crate::check::Check;
use crate::mismatch::Mismatch;
use crate::pool::Pool;
use crate::zbookmark::Zbookmark;
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::errlog::BlockBookmark;
use cenote_format::units::{BlockId, DatasetId, ObjectId, Txg};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// The most places of each kind.
const MOST: usize = 10_000;
/// The level of an object set's root.
const ROOT_LEVEL: i64 = -1;
/// Of trees that belong to no dataset any more.
const NOBODY: DatasetId = DatasetId(u64::MAX);

/// The most events that wait to be told.
const MOST_ASIDE: usize = 1000;

/// What reads of a pool found wrong.
#[derive(Default)]
pub(crate) struct Wrong {
    aside: Mutex<Vec<String>>,
    leaked_bytes: AtomicU64,
    bad: Mutex<BTreeSet<BlockBookmark>>,
    suspect: Mutex<BTreeSet<BlockBookmark>>,
    lost: Mutex<BTreeMap<BlockBookmark, Txg>>,
}

impl Pool {
    /// Places where a copy or column is not what it should be, as far as reads have met them since the last
    /// call.
    pub fn take_bad(&self) -> BTreeSet<BlockBookmark> {
        std::mem::take(&mut *self.wrong().bad.lock())
    }

    /// Places of blocks that were wrong and may have been freed, likewise.
    pub fn take_suspect(&self) -> BTreeSet<BlockBookmark> {
        std::mem::take(&mut *self.wrong().suspect.lock())
    }

    /// Blocks that could not be read, with their births, likewise.
    pub fn take_lost(&self) -> BTreeMap<BlockBookmark, Txg> {
        std::mem::take(&mut *self.wrong().lost.lock())
    }

    /// An object of a dataset can be read, but lacks what its users were promised: the error log names it.
    pub fn note_lacking(&self, dataset: DatasetId, object: ObjectId) {
        let place = BlockBookmark { dataset, object, level: 0, block: BlockId(0) };
        let mut lost = self.wrong().lost.lock();
        if lost.len() < MOST {
            lost.insert(place, Txg(0));
        }
    }

    /// A txg went on without something: an object that stays as it is on disk, or space that stays allocated.
    pub fn note_aside(&self, what: String) {
        let mut aside = self.wrong().aside.lock();
        if aside.len() < MOST_ASIDE {
            aside.push(what);
        }
    }

    /// Space that nobody has any more, and nobody is charged for, stays allocated. `bytes` are as datasets
    /// count them, without parity.
    pub fn note_leak(&self, bytes: u64, why: &dyn std::fmt::Display) {
        self.wrong().leaked_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.note_unlisted(bytes, why);
    }

    /// Space that will not be freed when nobody has it any more. Until its dataset goes, that is charged.
    pub fn note_unlisted(&self, bytes: u64, why: &dyn std::fmt::Display) {
        self.note_aside(format!("{bytes} bytes of a block that was to be freed stay allocated: {why}"));
    }

    /// What was noted so since the last call.
    pub fn take_aside(&self) -> Vec<String> {
        std::mem::take(&mut *self.wrong().aside.lock())
    }

    /// Bytes that have leaked since the last call.
    pub fn take_leaked_bytes(&self) -> u64 {
        self.wrong().leaked_bytes.swap(0, Ordering::Relaxed)
    }

    /// Whether reads have met anything that nobody has seen to yet.
    pub fn has_found_wrong(&self) -> bool {
        let Wrong { bad, suspect, lost, .. } = self.wrong();
        !bad.lock().is_empty() || !suspect.lock().is_empty() || !lost.lock().is_empty()
    }

    /// A block could be read, but not all that there is of it is what it should be.
    pub(crate) fn note_bad(&self, bp: &Blkptr, place: Zbookmark, meaning: Mismatch) {
        let Some(place) = self.bookmark(bp, place) else { return };
        let noted = match meaning {
            Mismatch::Damage => &self.wrong().bad,
            Mismatch::MayBeReused => &self.wrong().suspect,
            Mismatch::EndOfLog => return,
        };
        let mut noted = noted.lock();
        if noted.len() < MOST {
            noted.insert(place);
        }
    }

    /// A block could not be read.
    pub(crate) fn note_lost(&self, bp: &Blkptr, place: Zbookmark, meaning: Mismatch) {
        if meaning != Mismatch::Damage {
            return self.note_bad(bp, place, meaning);
        }
        let Some(place) = self.bookmark(bp, place) else { return };
        let mut lost = self.wrong().lost.lock();
        if lost.len() < MOST {
            lost.insert(place, bp.allocation_birth());
        }
    }

    fn bookmark(&self, bp: &Blkptr, place: Zbookmark) -> Option<BlockBookmark> {
        let is_root = bp.object_type() == ObjectType::OBJSET;
        let is_log = !bp.is_gang() && matches!(Check::of(bp, self.salt()), Ok(Check::Embedded { .. }));
        // Who reads a block without an owner says nothing of the place.
        let is_nowhere = place == Zbookmark::default() && bp.object_type() != ObjectType::DNODE && !is_root;
        if is_log || is_nowhere || place.dataset == NOBODY || !self.found().is_writable() {
            return None;
        }
        let Zbookmark { dataset, object, level, block } = place;
        let level = if is_root { ROOT_LEVEL } else { i64::from(level) };
        Some(BlockBookmark { dataset, object, level, block })
    }
}
