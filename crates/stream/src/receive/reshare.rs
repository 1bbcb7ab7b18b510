//! `zfs receive --reshare`: equal blocks of a stream are stored once.
//!
//! ```text
//!   record ── sum of its content ──> place of an earlier block with that sum ──> its pointer, if on disk
//!                                       │ none: this block's place is noted       │ content is equal: shared
//!                                       │                                         │ not on disk yet: later
//! ```
//!
//! Idea: a stream holds cloned and deduplicated blocks once for each owner. A table remembers where blocks of
//! this receive went. A block whose sum it knows is compared with the stored one, byte by byte, and gets its
//! pointer. So the table proves nothing: a wrong, old or forged entry costs one read. Its entries are places
//! in the head being received, whose present pointers count, so that a freed block is never shared.
//!
//! A block that is not on disk yet has no pointer. Its double is written, and replaced after the next txg:
//! a txg for each double would be slower than all writing.
//!
//! Memory: [`PLACES`] places, 24 MiB, where a new one may replace an older one; doubles of [`LATER_BYTES`].
//!
//! Source: OpenZFS issue 16961 asks for it; OpenZFS has nothing like it.

use std::sync::Arc;

use bytes::Bytes;
use cenote_codec::Endian;
use cenote_codec::checksum::Checksum;
use cenote_engine::{Engine, Need};
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::units::{BlockId, ObjectId};
use cenote_object::{DatasetError, Edit, LiveObjset, Result};
use parking_lot::Mutex;

use crate::receive::apply::RECORD_BYTES;

/// Places in the table: a power of two.
const PLACES: usize = 1 << 20;
/// Most content of doubles that wait for their txg.
const LATER_BYTES: u64 = 64 << 20;
/// Doubles replaced under one hold.
const HOLD_DOUBLES: usize = 1024;
/// Smaller blocks save less than their entries in the block reference table cost.
const MIN_BYTES: u64 = 4096;

/// Blocks shared by a receive.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Reshared {
    /// Their number.
    pub blocks: u64,
    /// Their logical size.
    pub bytes: u64,
}

/// The blocks of one receive so far. A clone is the same.
#[derive(Clone)]
pub(super) struct Reshare(Arc<Mutex<State>>);

struct State {
    /// The dataset of the places.
    dataset: String,
    places: Vec<Place>,
    later: Vec<Double>,
    later_bytes: u64,
    shared: Reshared,
}

/// A block of the head being received.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Of its content. With object 0, nothing is here.
    sum: u64,
    object: ObjectId,
    block: BlockId,
}

/// A block written although an equal one was on its way to disk.
#[derive(Debug, Clone, Copy)]
struct Double {
    of: Place,
    object: ObjectId,
    block: BlockId,
}

/// The state of an earlier block.
enum Found {
    Equal(Blkptr),
    /// It has no pointer yet.
    NotStored,
    Other,
}

impl Reshare {
    pub(super) fn new() -> Reshare {
        let places = vec![Place::default(); PLACES];
        let (dataset, later, later_bytes, shared) = Default::default();
        Reshare(Arc::new(Mutex::new(State { dataset, places, later, later_bytes, shared })))
    }

    /// Blocks shared so far.
    pub(super) fn shared(&self) -> Reshared {
        self.0.lock().shared
    }

    /// Begins a stream of a dataset. Increments of one dataset follow the places of each other.
    pub(super) fn begin(&self, dataset: &str) {
        let mut state = self.0.lock();
        state.take_later();
        if state.dataset != dataset {
            dataset.clone_into(&mut state.dataset);
            state.places.fill(Place::default());
        }
    }

    /// Shares an equal block in place of a received one. Returns false if the caller must write it.
    pub(super) async fn share(
        &self,
        edit: &Edit,
        object: ObjectId,
        offset: u64,
        data: &Bytes,
    ) -> Result<bool> {
        let head = edit.view().head(object).await?;
        let (len, block_bytes) = (data.len() as u64, u64::from(head.data_block_bytes));
        let is_content = matches!(head.object_type, ObjectType::PLAIN_FILE_CONTENTS | ObjectType::ZVOL);
        if !is_content || len != block_bytes || len < MIN_BYTES || !offset.is_multiple_of(len) {
            return Ok(false);
        }
        let here = Place { sum: sum(data), object, block: BlockId(offset / len) };
        let known = self.known(here);
        if known == here {
            return Ok(false);
        }
        match find(edit, known, head.object_type, data).await {
            Found::Equal(bp) => {
                edit.share_blocks(object, here.block, &[bp]).await?;
                self.0.lock().count(len);
                Ok(true)
            }
            Found::NotStored => {
                let mut state = self.0.lock();
                state.later.push(Double { of: known, object, block: here.block });
                state.later_bytes += len;
                Ok(false)
            }
            Found::Other => {
                self.0.lock().note(here);
                Ok(false)
            }
        }
    }

    /// The place of an earlier block with the same sum. Without one, the block itself is noted.
    fn known(&self, here: Place) -> Place {
        let mut state = self.0.lock();
        let known = *state.place(here.sum);
        if known.object != ObjectId(0) && known.sum == here.sum {
            return known;
        }
        state.note(here);
        here
    }

    /// Whether enough doubles wait for [`Reshare::settle`].
    pub(super) fn is_full(&self) -> bool {
        self.0.lock().later_bytes >= LATER_BYTES
    }

    /// Replaces the doubles that were written, after a txg.
    pub(super) async fn settle(&self, engine: &Engine, live: &LiveObjset) -> Result<()> {
        let later = self.0.lock().take_later();
        if later.is_empty() {
            return Ok(());
        }
        engine.sync_all().await?;
        for some in later.chunks(HOLD_DOUBLES) {
            let (this, some) = (self.clone(), some.to_vec());
            let need = Need::Write(some.len() as u64 * RECORD_BYTES);
            let change = move |edit: Edit| async move {
                for double in some {
                    this.replace(&edit, double).await?;
                }
                Ok::<(), DatasetError>(())
            };
            engine.change(live, need, change).await?;
        }
        Ok(())
    }

    /// Replaces a double, unless it or the other has changed since, or can't be read.
    async fn replace(&self, edit: &Edit, Double { of, object, block }: Double) -> Result<()> {
        let Ok(opened) = edit.view().object(object).await else { return Ok(()) };
        let (len, object_type) = (opened.block_bytes(), opened.dnode().object_type);
        let Ok(data) = opened.read(block.0.saturating_mul(len), len as usize).await else { return Ok(()) };
        drop(opened);
        if let Found::Equal(bp) = find(edit, of, object_type, &data).await {
            edit.share_blocks(object, block, &[bp]).await?;
            self.0.lock().count(len);
        }
        Ok(())
    }
}

impl State {
    fn place(&mut self, sum: u64) -> &mut Place {
        &mut self.places[sum as usize % PLACES]
    }

    fn note(&mut self, here: Place) {
        *self.place(here.sum) = here;
    }

    fn take_later(&mut self) -> Vec<Double> {
        self.later_bytes = 0;
        std::mem::take(&mut self.later)
    }

    fn count(&mut self, bytes: u64) {
        self.shared.blocks += 1;
        self.shared.bytes += bytes;
    }
}

/// Compares an earlier block with `data`. One that can't be read is no source.
async fn find(edit: &Edit, place: Place, object_type: ObjectType, data: &[u8]) -> Found {
    let Ok(opened) = edit.view().object(place.object).await else { return Found::Other };
    let len = data.len() as u64;
    if opened.block_bytes() != len || opened.dnode().object_type != object_type {
        return Found::Other;
    }
    let BlockId(block) = place.block;
    let bp = match opened.stored_blocks(block..block.saturating_add(1)).await {
        Ok(None) => return Found::NotStored,
        Ok(Some(blocks)) => blocks.first().copied().unwrap_or(Blkptr::HOLE),
        Err(_) => return Found::Other,
    };
    if bp.is_hole() || bp.is_embedded() || bp.lsize().0 != len {
        return Found::Other;
    }
    match opened.read(block.saturating_mul(len), data.len()).await {
        Ok(known) if known == data => Found::Equal(bp),
        _ => Found::Other,
    }
}

/// A sum that chooses a place in the table. The comparison decides.
fn sum(data: &[u8]) -> u64 {
    // Cannot fail: the sum needs no salt.
    let words = Checksum::Fletcher4.compute(data, Endian::Little, None).unwrap_or_default();
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(29);
    words.into_iter().fold(0, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_unlike_blocks_spread_over_the_table() {
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..10_000_u32 {
            let mut block = vec![0; 4096];
            block[..4].copy_from_slice(&n.to_le_bytes());
            seen.insert(sum(&block) as usize % PLACES);
        }
        assert!(seen.len() > 9_900, "{} places of 10,000", seen.len());
    }
}
