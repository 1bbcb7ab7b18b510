//! Packing: live data of nearly dead segments are written again, so that these can be deleted.
//!
//! Idea: the ratio of stored to live bytes is bounded. Once it is exceeded, the emptiest segments are packed
//! until it is well kept. Many commits with little data are packed, too, to bound the number of objects.
//!
//! Moved data join the batch as writes; a write of the pool that comes first wins, since only pieces that the
//! map still finds in the old segment move.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::state::{INLINE_BYTES, State};
use super::{Log, Over};
use crate::map::{SECTOR_BYTES, Slot};
use crate::wire::{Change, Commit, Entry, Name, decode_table};

/// Stored bytes for 100 live ones: packing begins above the first, and ends at the second.
const STORED_MOST: u64 = 125;
const STORED_AIM: u64 = 115;
/// Stored bytes that no ratio forbids: a segment.
const SLACK_BYTES: u64 = 16 << 20;
/// Segments packed before a commit.
const AT_ONCE: usize = 8;
/// Segments fuller than this, in percent, are not packed.
const FULLEST: u64 = 90;
/// Small segments are packed if there are more.
const SMALL_MOST: usize = 1024;

impl State {
    fn to_pack(&self) -> Vec<Slot> {
        let fit =
            || self.segments.iter().filter(|(_, segment)| segment.content.is_none() && !segment.is_unfit);
        let small: Vec<Slot> =
            fit().filter(|(_, segment)| segment.data_bytes <= INLINE_BYTES).map(|(slot, _)| *slot).collect();
        if small.len() > SMALL_MOST {
            return small;
        }
        let (stored, live) = (self.stored_bytes(), self.map.live_sectors() * SECTOR_BYTES);
        if stored <= live / 100 * STORED_MOST + SLACK_BYTES {
            return Vec::new();
        }
        let live_bytes = |slot: &Slot| {
            self.segments.get(slot).map_or(0, |segment| u64::from(segment.live_sectors) * SECTOR_BYTES)
        };
        let mut emptiest: Vec<(u64, Slot, u64)> = fit()
            .filter(|(_, segment)| segment.live_sectors > 0)
            .map(|(slot, segment)| {
                let object_bytes = u64::from(segment.object_bytes.max(1));
                (live_bytes(slot) * 100 / object_bytes, *slot, object_bytes)
            })
            .filter(|(percent, ..)| *percent <= FULLEST)
            .collect();
        emptiest.sort_unstable();
        let mut excess = stored.saturating_sub(live / 100 * STORED_AIM);
        let mut chosen = Vec::new();
        for (_, slot, object_bytes) in emptiest {
            if excess == 0 || chosen.len() == AT_ONCE {
                break;
            }
            excess = excess.saturating_sub(object_bytes - live_bytes(&slot).min(object_bytes));
            chosen.push(slot);
        }
        chosen
    }
}

impl Log {
    /// Begins to pack if it is time, and no packing is under way.
    pub(super) fn pack_if_needed(self: &Arc<Self>) {
        if self.state.lock().to_pack().is_empty() {
            return;
        }
        let is_first = !std::mem::replace(&mut self.flushes.lock().is_packing, true);
        if is_first {
            let log = self.clone();
            let packing = async move {
                // A failure that matters has ended the use of the disk.
                drop(log.pack().await);
                log.flushes.lock().is_packing = false;
            };
            self.runtime.spawn(packing).detach();
        }
    }

    async fn pack(self: &Arc<Self>) -> Result<(), Over> {
        loop {
            let slots = self.state.lock().to_pack();
            if slots.is_empty() {
                return Ok(());
            }
            for slot in slots {
                self.room().await?;
                self.pack_segment(slot).await?;
            }
            // Only a commit makes the old segments dead.
            self.clone().flush().await?;
        }
    }

    async fn pack_segment(self: &Arc<Self>, slot: Slot) -> Result<(), Over> {
        let found = self.state.lock().segments.get(&slot).map(|segment| (segment.name, segment.base_bytes));
        let Some((name, base_bytes)) = found else { return Ok(()) };
        let object = self.store.read(&name.key(), None).await?;
        let Some(entries) = entries_of(name, base_bytes as usize, &object) else {
            // The pool finds the damage, if the data are still in use.
            if let Some(segment) = self.state.lock().segments.get_mut(&slot) {
                segment.is_unfit = true;
            }
            return Ok(());
        };
        for (entry, data) in entries {
            // Copied, so that the whole object does not stay in memory for a part of it.
            let data = Bytes::copy_from_slice(&data);
            self.progress.modify(|progress| progress.buffered_bytes += data.len() as u64);
            let mut state = self.state.lock();
            let before = state.written_bytes();
            let full = state.move_out(slot, &entry, &data);
            let moved = state.written_bytes() - before;
            self.create_segments(full);
            drop(state);
            self.progress.modify(|progress| progress.buffered_bytes -= data.len() as u64 - moved);
        }
        Ok(())
    }
}

/// The extents of a segment with their bytes; `None` if a CRC is wrong.
fn entries_of(name: Name, base_bytes: usize, object: &Bytes) -> Option<Vec<(Entry, Bytes)>> {
    let (entries, data) = match name {
        Name::Segment { .. } => (decode_table(object)?, object.clone()),
        Name::Commit(_) => {
            let (commit, base) = Commit::decode(object)?;
            let data = object.slice(base..);
            let position = commit.segments.iter().position(|segment| segment.counter.is_none())?;
            if base != base_bytes || commit.segments[position].crc != crc32c::crc32c(&data) {
                return None;
            }
            let entry = |change: &Change| match *change {
                Change::Write { start, sectors, segment, at } if segment as usize == position => {
                    Some(Entry { start, sectors, at, crc: None })
                }
                _ => None,
            };
            (commit.changes.iter().filter_map(entry).collect(), data)
        }
    };
    let mut seen = BTreeSet::new();
    let mut found = Vec::with_capacity(entries.len());
    for entry in entries {
        let first = entry.at as usize * SECTOR_BYTES as usize;
        let end = first.checked_add(entry.sectors as usize * SECTOR_BYTES as usize)?;
        let bytes = data.get(first..end).map(|_| data.slice(first..end))?;
        let is_whole = entry.crc.is_none_or(|crc| crc == crc32c::crc32c(&bytes));
        if !is_whole || !seen.insert(entry.at) {
            return None;
        }
        found.push((entry, bytes));
    }
    Some(found)
}
