//! A disk's state in memory: the map, its segments, and the changes that no commit has yet.
//!
//! ```text
//!   write --> open segment --full--> sealed, being created --created--> stored
//!                  |                        (bytes in memory)           (read by range)
//!                  '--small, at a commit--> the end of that commit
//! ```
//!
//! Invariants: the map names only slots in `segments`, and a segment's `live_sectors` are those that the map
//! names. Changes of the batch are in the map already. All but the open segment and those of the batch are
//! in a commit or a checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::map::{Extent, Map, SECTOR_BYTES, Slot};
use crate::wire::{
    Change, Checkpoint, CheckpointRef, Commit, Entry, Listed, Name, Sealed, Writer, encode_table,
};

/// Data of a segment, at most.
pub(crate) const SEGMENT_BYTES: u32 = 16 << 20;
/// An open segment of at most this size becomes the end of a commit, which saves a request and its time.
pub(crate) const INLINE_BYTES: u32 = 1 << 20;
/// A checkpoint is made after this number of commits, or of changes for each extent of the map.
const CHECKPOINT_COMMITS: u64 = 64;
const CHECKPOINT_CHANGES: u64 = 1 << 16;
/// Size of one object of a checkpoint.
const PART_BYTES: usize = 16 << 20;

pub(crate) struct Segment {
    pub(crate) name: Name,
    pub(crate) base_bytes: u32,
    pub(crate) data_bytes: u32,
    pub(crate) object_bytes: u32,
    pub(crate) live_sectors: u32,
    /// Until its object exists.
    pub(crate) content: Option<Content>,
    /// Its object is damaged.
    pub(crate) is_unfit: bool,
}

/// The data of a segment in memory.
#[derive(Default, Clone)]
pub(crate) struct Content {
    /// By their first byte in the data.
    pub(crate) pieces: Vec<(u32, Bytes)>,
    pub(crate) entries: Vec<Entry>,
}

/// A segment to be created, and its data.
pub(crate) type Sealing = (Slot, u32);

#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) changes: Vec<Change>,
    slots: Vec<Slot>,
}

pub(crate) struct State {
    pub(crate) map: Map,
    pub(crate) segments: BTreeMap<Slot, Segment>,
    pub(crate) writer: Writer,
    /// The newest commit.
    pub(crate) last: u64,
    pub(crate) checkpoint: Option<CheckpointRef>,
    /// Commits with changes that still exist, and the segment at their end.
    pub(crate) commits: BTreeMap<u64, Option<Slot>>,
    pub(crate) next_slot: Slot,
    next_counter: u64,
    open: Option<Slot>,
    pub(crate) batch: Batch,
    /// Number of the batch that changes join.
    pub(crate) filling: u64,
    commits_since: u64,
    changes_since: u64,
    written_bytes: u64,
    /// A checkpoint that exists, for the next commit to name.
    pub(crate) ready: Option<CheckpointRef>,
    pub(crate) is_checkpointing: bool,
}

/// A commit to be created, with the work that follows it.
pub(crate) struct Prepared {
    pub(crate) number: u64,
    pub(crate) batch: u64,
    pub(crate) body: Vec<Bytes>,
    /// The segment at its end.
    pub(crate) inline: Option<Slot>,
    /// Names a new checkpoint; this was the one before.
    pub(crate) replaced: Option<Option<CheckpointRef>>,
    /// Objects without live data.
    pub(crate) dead: Vec<String>,
    /// A checkpoint of the state after it.
    pub(crate) snapshot: Option<(CheckpointRef, Vec<Bytes>)>,
}

impl State {
    pub(crate) fn new(writer: Writer) -> State {
        State {
            map: Map::default(),
            segments: BTreeMap::new(),
            writer,
            last: 0,
            checkpoint: None,
            commits: BTreeMap::new(),
            next_slot: 0,
            next_counter: 0,
            open: None,
            batch: Batch::default(),
            filling: 1,
            commits_since: 0,
            changes_since: 0,
            written_bytes: 0,
            ready: None,
            is_checkpointing: false,
        }
    }

    /// Adds a write. Returns full segments.
    #[must_use]
    pub(crate) fn write(&mut self, mut start: u64, mut data: Bytes) -> Vec<Sealing> {
        let mut full = Vec::new();
        while !data.is_empty() {
            let slot = self.open_segment();
            let State { map, segments, batch, written_bytes, .. } = self;
            let Some(segment) = segments.get_mut(&slot) else { break };
            let room = (SEGMENT_BYTES - segment.data_bytes) as usize;
            let part = data.split_to(data.len().min(room));
            let sectors = (part.len() as u64 / SECTOR_BYTES) as u32;
            let at = (u64::from(segment.data_bytes) / SECTOR_BYTES) as u32;
            let content = segment.content.get_or_insert_default();
            content.pieces.push((segment.data_bytes, part));
            content.entries.push(Entry { start, sectors, at, crc: None });
            segment.data_bytes += sectors * SECTOR_BYTES as u32;
            segment.live_sectors += sectors;
            *written_bytes += u64::from(sectors) * SECTOR_BYTES;
            let is_full = segment.data_bytes == SEGMENT_BYTES;
            batch.write(start, sectors, at);
            map.put(start, Extent { sectors, slot, at }, |slot, lost| lose(segments, slot, lost));
            start += u64::from(sectors);
            if is_full {
                full.extend(self.seal());
            }
        }
        full
    }

    pub(crate) fn discard(&mut self, start: u64, sectors: u64) {
        let State { map, segments, batch, .. } = self;
        let before = map.live_sectors();
        map.cut(start..start + sectors, |slot, lost| lose(segments, slot, lost));
        // A hole stays one without a commit.
        if map.live_sectors() != before {
            batch.changes.push(Change::Hole { start, sectors });
        }
    }

    fn open_segment(&mut self) -> Slot {
        if let Some(slot) = self.open {
            return slot;
        }
        let (slot, counter) = (self.next_slot, self.next_counter);
        self.next_slot += 1;
        self.next_counter += 1;
        let name = Name::Segment { writer: self.writer, counter };
        self.segments.insert(slot, Segment::new(name));
        self.batch.slots.push(slot);
        self.open = Some(slot);
        slot
    }

    /// Ends the open segment.
    fn seal(&mut self) -> Option<Sealing> {
        let slot = self.open.take()?;
        let segment = self.segments.get_mut(&slot)?;
        let entries = segment.content.as_ref().map(|content| &*content.entries).unwrap_or_default();
        segment.object_bytes = segment.data_bytes + encode_table(entries).len() as u32;
        Some((slot, segment.data_bytes))
    }

    /// Ends the open segment if too large for the end of a commit.
    pub(crate) fn seal_large(&mut self) -> Option<Sealing> {
        let data_bytes = self.segments.get(&self.open?)?.data_bytes;
        if data_bytes > INLINE_BYTES { self.seal() } else { None }
    }

    /// The commit of all changes so far. The open segment becomes its end.
    pub(crate) fn prepare(&mut self) -> Prepared {
        let batch = std::mem::take(&mut self.batch);
        let number = self.last + 1;
        let inline = self.open.take();
        let mut sealed = Vec::with_capacity(batch.slots.len());
        let mut inline_data = Vec::new();
        for slot in &batch.slots {
            let Some(segment) = self.segments.get_mut(slot) else { continue };
            let (data_bytes, object_bytes) = (segment.data_bytes, segment.object_bytes);
            sealed.push(match segment.name {
                Name::Segment { counter, .. } if Some(*slot) != inline => {
                    Sealed { counter: Some(counter), data_bytes, object_bytes, crc: 0 }
                }
                _ => {
                    let pieces = segment.content.iter().flat_map(|content| &content.pieces);
                    inline_data = pieces.map(|(_, data)| data.clone()).collect();
                    segment.name = Name::Commit(number);
                    let crc = crc_of(&inline_data);
                    Sealed { counter: None, data_bytes, object_bytes: 0, crc }
                }
            });
        }
        let replaced = self.ready.take().map(|new| self.checkpoint.replace(new));
        self.commits_since += 1;
        self.changes_since += batch.changes.len() as u64;
        let commit = Commit {
            number,
            writer: self.writer,
            is_takeover: false,
            checkpoint: self.checkpoint,
            segments: sealed,
            changes: batch.changes,
        };
        let header = commit.encode();
        if let Some(segment) = inline.and_then(|slot| self.segments.get_mut(&slot)) {
            segment.base_bytes = header.len() as u32;
            segment.object_bytes = segment.base_bytes + segment.data_bytes;
        }
        let dead = self.take_dead();
        let inline = inline.filter(|slot| self.segments.contains_key(slot));
        self.commits.insert(number, inline);
        let snapshot = self.snapshot(number);
        let mut body = vec![Bytes::from(header)];
        body.extend(inline_data);
        let batch = self.filling;
        self.filling += 1;
        Prepared { number, batch, body, inline, replaced, dead, snapshot }
    }

    /// Forgets segments without live data. Returns the names of their own objects.
    fn take_dead(&mut self) -> Vec<String> {
        let is_dead = |segment: &Segment| segment.live_sectors == 0;
        let dead: Vec<Slot> =
            self.segments.iter().filter(|(_, segment)| is_dead(segment)).map(|(slot, _)| *slot).collect();
        let mut keys = Vec::new();
        for slot in dead {
            match self.segments.remove(&slot).map(|segment| segment.name) {
                Some(Name::Commit(number)) => {
                    if let Some(inline) = self.commits.get_mut(&number) {
                        *inline = None;
                    }
                }
                Some(name) => keys.push(name.key()),
                None => {}
            }
        }
        keys
    }

    fn snapshot(&mut self, number: u64) -> Option<(CheckpointRef, Vec<Bytes>)> {
        let changes = CHECKPOINT_CHANGES.max(self.map.len() as u64);
        let is_time = self.commits_since >= CHECKPOINT_COMMITS || self.changes_since >= changes;
        if !is_time || self.is_checkpointing || self.ready.is_some() {
            return None;
        }
        (self.commits_since, self.changes_since, self.is_checkpointing) = (0, 0, true);
        let listed: Vec<(Slot, Listed)> =
            self.segments.iter().map(|(slot, segment)| (*slot, segment.listed())).collect();
        let commits: Vec<u64> = self.commits.keys().copied().collect();
        let mut rest = Bytes::from(Checkpoint::encode(&self.map, &listed, &commits));
        let mut parts = Vec::new();
        while !rest.is_empty() {
            parts.push(rest.split_to(rest.len().min(PART_BYTES)));
        }
        Some((CheckpointRef { number, writer: self.writer, parts: parts.len() as u32 }, parts))
    }

    /// Commits that nothing needs any more: the checkpoint includes them, and their data are dead. Takeovers
    /// are never among them, nor is the newest commit.
    pub(crate) fn take_old_commits(&mut self) -> Vec<u64> {
        let Some(checkpoint) = self.checkpoint else { return Vec::new() };
        let old = self.commits.range(..=checkpoint.number.min(self.last.saturating_sub(1)));
        let old: Vec<u64> = old.filter(|(_, slot)| slot.is_none()).map(|(number, _)| *number).collect();
        for number in &old {
            self.commits.remove(number);
        }
        old
    }

    /// Writes a range again from its segment, as far as it is still the newest.
    #[must_use]
    pub(crate) fn move_out(&mut self, from: Slot, entry: &Entry, data: &Bytes) -> Vec<Sealing> {
        let mut full = Vec::new();
        for piece in self.map.look_up(entry.start..entry.start + u64::from(entry.sectors)) {
            let skipped = piece.start - entry.start;
            let is_same = piece
                .source
                .is_some_and(|(slot, at)| slot == from && u64::from(at) == u64::from(entry.at) + skipped);
            if is_same {
                let first = (skipped * SECTOR_BYTES) as usize;
                let bytes = (piece.sectors * SECTOR_BYTES) as usize;
                full.extend(self.write(piece.start, data.slice(first..first + bytes)));
            }
        }
        full
    }

    /// Data written so far, moved ones included.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Known names of segments that are objects of their own.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let names = self.segments.values().map(|segment| segment.name);
        names.filter(|name| matches!(name, Name::Segment { .. })).map(|name| name.key()).collect()
    }

    /// Bytes in objects with data, those of the batch excluded.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.segments.values().map(|segment| u64::from(segment.object_bytes)).sum()
    }
}

impl Segment {
    pub(crate) fn new(name: Name) -> Segment {
        Segment {
            name,
            base_bytes: 0,
            data_bytes: 0,
            object_bytes: 0,
            live_sectors: 0,
            content: None,
            is_unfit: false,
        }
    }

    fn listed(&self) -> Listed {
        Listed {
            name: self.name,
            base_bytes: self.base_bytes,
            data_bytes: self.data_bytes,
            object_bytes: self.object_bytes,
        }
    }
}

impl Content {
    /// A range of the data, in pieces.
    pub(crate) fn slice(&self, at: usize, len: usize) -> Vec<Bytes> {
        let end = at + len;
        let first = self.pieces.partition_point(|(start, data)| *start as usize + data.len() <= at);
        let touched = self.pieces[first..].iter().take_while(|(start, _)| (*start as usize) < end);
        touched
            .map(|(start, data)| {
                let start = *start as usize;
                data.slice(at.saturating_sub(start)..data.len().min(end - start))
            })
            .collect()
    }
}

impl Batch {
    /// Whether a commit would change nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// A write to the last of its segments; joins the change before it, if it continues that.
    fn write(&mut self, start: u64, sectors: u32, at: u32) {
        let segment = (self.slots.len() - 1) as u32;
        if let Some(Change::Write { start: before, sectors: many, segment: last, at: first }) =
            self.changes.last_mut()
        {
            let follows = *before + u64::from(*many) == start && *first + *many == at;
            if follows && *last == segment {
                *many += sectors;
                return;
            }
        }
        self.changes.push(Change::Write { start, sectors, segment, at });
    }
}

pub(crate) fn lose(segments: &mut BTreeMap<Slot, Segment>, slot: Slot, lost: u32) {
    if let Some(segment) = segments.get_mut(&slot) {
        segment.live_sectors -= lost;
    }
}

/// CRC-32C of consecutive pieces.
pub(crate) fn crc_of(pieces: &[Bytes]) -> u32 {
    pieces.iter().fold(0, |crc, piece| crc32c::crc32c_append(crc, piece))
}
