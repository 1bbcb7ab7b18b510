//! Records faults met by reads, for later handling: blocks with a bad copy or column, to be rewritten, and
//! unreadable blocks, for the error log.
//!
//! Idea: a read only notes the place. The handler verifies the block there by then. Nothing is noted for a
//! pool only read, nor for intent logs, which end with unwritten blocks. A block that may have been freed
//! during the read is suspect: no leaf is blamed, and it is judged later, if still in the tree.
//!
//! A txg reports the objects and space that it left alone because of unreadable blocks
//! ([`ReadErrors::take_aside`]). Such space is either a *leak*, in no account, which the txg charges to
//! `$LEAK` ([`ReadErrors::take_leaked_bytes`]); or it is in no list, but still in its dataset's account.
//!
//! Memory: [`MOST`] places of each kind. Dropped ones are found again by the next read, or by a scrub.
//!
//! Locking: one lock for each kind, held for one access.

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

/// Most places of each kind.
const MOST: usize = 10_000;
/// The level of an object set's root.
const ROOT_LEVEL: i64 = -1;
/// Trees of no dataset any more.
const NOBODY: DatasetId = DatasetId(u64::MAX);

const MOST_ASIDE: usize = 1000;

/// Faults that wait for their handlers.
#[derive(Default)]
pub struct ReadErrors {
    aside: Mutex<Vec<String>>,
    leaked_bytes: AtomicU64,
    bad: Mutex<BTreeSet<BlockBookmark>>,
    suspect: Mutex<BTreeSet<BlockBookmark>>,
    lost: Mutex<BTreeMap<BlockBookmark, Txg>>,
}

impl ReadErrors {
    /// Takes the places of bad copies and columns met since the last call.
    pub fn take_bad(&self) -> BTreeSet<BlockBookmark> {
        std::mem::take(&mut *self.bad.lock())
    }

    /// Takes the places of wrong blocks that may have been freed.
    pub fn take_suspect(&self) -> BTreeSet<BlockBookmark> {
        std::mem::take(&mut *self.suspect.lock())
    }

    /// Takes the unreadable blocks, with their births.
    pub fn take_lost(&self) -> BTreeMap<BlockBookmark, Txg> {
        std::mem::take(&mut *self.lost.lock())
    }

    /// Notes a readable but incomplete object for the error log.
    pub fn note_lacking(&self, dataset: DatasetId, object: ObjectId) {
        let place = BlockBookmark { dataset, object, level: 0, block: BlockId(0) };
        let mut lost = self.lost.lock();
        if lost.len() < MOST {
            lost.insert(place, Txg(0));
        }
    }

    /// Notes a tolerated loss: an object left as it is on disk, or space left allocated.
    pub fn note_aside(&self, what: String) {
        let mut aside = self.aside.lock();
        if aside.len() < MOST_ASIDE {
            aside.push(what);
        }
    }

    /// Notes leaked space, in bytes without parity.
    pub fn note_leak(&self, bytes: u64, why: &dyn std::fmt::Display) {
        self.leaked_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.note_unlisted(bytes, why);
    }

    /// Notes space that will not be freed with its block, but is charged to its dataset.
    pub fn note_unlisted(&self, bytes: u64, why: &dyn std::fmt::Display) {
        self.note_aside(format!("{bytes} bytes of a block that was to be freed stay allocated: {why}"));
    }

    /// Takes these notes.
    pub fn take_aside(&self) -> Vec<String> {
        std::mem::take(&mut *self.aside.lock())
    }

    /// Takes the bytes leaked since the last call.
    pub fn take_leaked_bytes(&self) -> u64 {
        self.leaked_bytes.swap(0, Ordering::Relaxed)
    }

    /// Whether any place waits for its handler.
    pub fn has_found_wrong(&self) -> bool {
        let ReadErrors { bad, suspect, lost, .. } = self;
        !bad.lock().is_empty() || !suspect.lock().is_empty() || !lost.lock().is_empty()
    }
}

impl Pool {
    /// Notes a readable block with a bad copy or column.
    pub(crate) fn note_bad(&self, bp: &Blkptr, place: Zbookmark, meaning: Mismatch) {
        let Some(place) = self.bookmark(bp, place) else { return };
        let noted = match meaning {
            Mismatch::Damage => &self.read_errors().bad,
            Mismatch::MayBeReused => &self.read_errors().suspect,
            Mismatch::EndOfLog => return,
        };
        let mut noted = noted.lock();
        if noted.len() < MOST {
            noted.insert(place);
        }
    }

    pub(crate) fn note_lost(&self, bp: &Blkptr, place: Zbookmark, meaning: Mismatch) {
        if meaning != Mismatch::Damage {
            return self.note_bad(bp, place, meaning);
        }
        let Some(place) = self.bookmark(bp, place) else { return };
        let mut lost = self.read_errors().lost.lock();
        if lost.len() < MOST {
            lost.insert(place, bp.allocation_birth());
        }
    }

    fn bookmark(&self, bp: &Blkptr, place: Zbookmark) -> Option<BlockBookmark> {
        let is_root = bp.object_type() == ObjectType::OBJSET;
        let is_log = !bp.is_gang() && matches!(Check::of(bp, self.salt()), Ok(Check::Embedded { .. }));
        // Reads of a block without an owner give no place.
        let is_nowhere = place == Zbookmark::default() && bp.object_type() != ObjectType::DNODE && !is_root;
        if is_log || is_nowhere || place.dataset == NOBODY || !self.tree().found().is_writable() {
            return None;
        }
        let Zbookmark { dataset, object, level, block } = place;
        let level = if is_root { ROOT_LEVEL } else { i64::from(level) };
        Some(BlockBookmark { dataset, object, level, block })
    }
}
