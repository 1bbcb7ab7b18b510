//! Reads a disk's state from its store: the newest commit, the checkpoint it names, the commits since.
//!
//! If another machine deletes objects meanwhile, the state is read again from the beginning. One that came
//! too late to take over may even have left a commit in the place of a deleted one; commits of a whole chain
//! have the writer of the one before, or take over from it with a higher epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;

use super::state::{Segment, State, lose};
use crate::map::{Extent, SECTOR_BYTES, Slot};
use crate::patient::Patient;
use crate::store::StoreError;
use crate::wire::{
    COMMITS, Change, Checkpoint, CheckpointRef, Commit, DEVICE, Identity, Name, Writer, commit_key,
    commit_number,
};

/// Times that a state is read anew.
const TRIES: u32 = 20;
/// Objects read at once.
const READS: usize = 16;

/// Why a disk can't be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is none.
    #[error("there is no disk at this place; to make one, state its size: ?size=1T")]
    Absent,
    /// An object is not as written.
    #[error("the object '{0}' is damaged, or of a later version")]
    Damaged(Arc<str>),
    /// Another machine changes the disk faster than it can be read.
    #[error("another machine changes the disk all the time")]
    Restless,
    /// It can't have this size.
    #[error("a disk has a size that is a multiple of 4096 bytes, of at least 64 MiB and at most 8 EiB")]
    Size,
    /// It exists.
    #[error("the disk exists already, with {0} bytes: leave its size out")]
    Exists(u64),
}

/// A disk's identity, and its state.
pub(super) struct Loaded {
    /// `None`: no disk yet.
    pub(super) identity: Option<Identity>,
    pub(super) state: State,
}

enum Again {
    Error(OpenError),
    /// Something vanished.
    Later,
}

impl From<StoreError> for Again {
    fn from(error: StoreError) -> Again {
        match error {
            StoreError::Missing(_) => Again::Later,
            other => Again::Error(other.into()),
        }
    }
}

pub(super) async fn load(store: &Arc<Patient>) -> Result<Loaded, OpenError> {
    for _ in 0..TRIES {
        match once(store).await {
            Ok(loaded) => return Ok(loaded),
            Err(Again::Error(error)) => return Err(error),
            Err(Again::Later) => {}
        }
    }
    Err(OpenError::Restless)
}

async fn once(store: &Arc<Patient>) -> Result<Loaded, Again> {
    let token = store.runtime.random_u64();
    let identity = match store.read(DEVICE, None).await {
        Ok(bytes) => Some(Identity::decode(&bytes).ok_or_else(|| damaged(DEVICE))?),
        Err(StoreError::Missing(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let mut state = State::new(Writer { epoch: 1, token });
    let Some(found) = identity else { return Ok(Loaded { identity, state }) };
    let keys = store.list(COMMITS, "").await?;
    let numbers: Vec<u64> = keys.iter().filter_map(|key| commit_number(key)).collect();
    let Some(&top) = numbers.last() else { return Ok(Loaded { identity, state }) };
    let newest = read_commit(store, top).await?.0;
    let sectors = found.size_bytes / SECTOR_BYTES;
    let mut before = None;
    let mut first = 1;
    if let Some(checkpoint) = newest.checkpoint {
        (first, before) = (checkpoint.number + 1, Some(checkpoint.writer));
        state.read_checkpoint(read_map(store, &checkpoint).await?, checkpoint, sectors)?;
    }
    // The commit that names a checkpoint is newer than it.
    if first > top || numbers.iter().filter(|number| **number >= first).count() as u64 != top - first + 1 {
        return Err(Again::Later);
    }
    let shared = store.clone();
    let read = move |number| {
        let store = shared.clone();
        async move { read_commit(&store, number).await }
    };
    let mut commits = std::pin::pin!(store.runtime.map_bounded(READS, first..=top, read));
    while let Some(read) = commits.next().await {
        let (commit, base_bytes) = read?;
        let follows = match (before, commit.is_takeover) {
            (None, is_takeover) => is_takeover,
            (Some(before), true) => commit.writer.epoch > before.epoch,
            (Some(before), false) => commit.writer == before,
        };
        if !follows {
            return Err(Again::Later);
        }
        before = Some(commit.writer);
        state.apply(&commit, base_bytes, sectors).ok_or_else(|| damaged(&commit_key(commit.number)))?;
    }
    let epoch = newest.writer.epoch.checked_add(1).ok_or_else(|| damaged(&commit_key(top)))?;
    state.segments.retain(|_, segment| segment.live_sectors > 0);
    for slot in state.commits.values_mut() {
        *slot = slot.filter(|slot| state.segments.contains_key(slot));
    }
    (state.writer, state.last) = (Writer { epoch, token }, top);
    Ok(Loaded { identity, state })
}

fn damaged(key: &str) -> Again {
    Again::Error(OpenError::Damaged(key.into()))
}

/// A commit, and where the data in it begin.
async fn read_commit(store: &Patient, number: u64) -> Result<(Commit, u32), Again> {
    let key = commit_key(number);
    let bytes = store.read(&key, None).await?;
    let decoded = Commit::decode(&bytes).filter(|(commit, _)| commit.number == number);
    let (commit, base) = decoded.ok_or_else(|| damaged(&key))?;
    let inline: u64 = commit
        .segments
        .iter()
        .filter(|segment| segment.counter.is_none())
        .map(|one| u64::from(one.data_bytes))
        .sum();
    if base as u64 + inline != bytes.len() as u64 {
        return Err(damaged(&key));
    }
    Ok((commit, base as u32))
}

async fn read_map(store: &Arc<Patient>, checkpoint: &CheckpointRef) -> Result<Checkpoint, Again> {
    let (shared, checkpoint) = (store.clone(), *checkpoint);
    let read = move |part| {
        let (store, key) = (shared.clone(), checkpoint.key(part));
        async move { store.read(&key, None).await }
    };
    let mut parts = std::pin::pin!(store.runtime.map_bounded(READS, 0..checkpoint.parts, read));
    let mut all: Vec<Bytes> = Vec::new();
    while let Some(part) = parts.next().await {
        all.push(part?);
    }
    Checkpoint::decode(&all.concat()).ok_or_else(|| damaged(&checkpoint.prefix()))
}

impl State {
    fn read_checkpoint(&mut self, read: Checkpoint, from: CheckpointRef, sectors: u64) -> Result<(), Again> {
        let mut live: BTreeMap<Slot, u32> = BTreeMap::new();
        for (start, extent) in read.map.iter() {
            let lives = live.entry(extent.slot).or_default();
            *lives = lives.checked_add(extent.sectors).ok_or_else(|| damaged(&from.prefix()))?;
            if start + u64::from(extent.sectors) > sectors {
                return Err(damaged(&from.prefix()));
            }
        }
        self.commits = read.commits.into_iter().map(|number| (number, None)).collect();
        for listed in read.segments {
            let slot = self.next_slot;
            self.next_slot += 1;
            if let Name::Commit(number) = listed.name {
                self.commits.insert(number, Some(slot));
            }
            let segment = Segment {
                base_bytes: listed.base_bytes,
                data_bytes: listed.data_bytes,
                object_bytes: listed.object_bytes,
                live_sectors: live.get(&slot).copied().unwrap_or_default(),
                ..Segment::new(listed.name)
            };
            self.segments.insert(slot, segment);
        }
        (self.map, self.checkpoint) = (read.map, Some(from));
        Ok(())
    }

    /// `None`: it makes no sense.
    fn apply(&mut self, commit: &Commit, base_bytes: u32, sectors: u64) -> Option<()> {
        if commit.is_takeover {
            return Some(());
        }
        let mut slots = Vec::with_capacity(commit.segments.len());
        self.commits.insert(commit.number, None);
        for sealed in &commit.segments {
            let slot = self.next_slot;
            self.next_slot = self.next_slot.checked_add(1)?;
            let segment = match sealed.counter {
                Some(counter) => Segment {
                    object_bytes: sealed.object_bytes,
                    ..Segment::new(Name::Segment { writer: commit.writer, counter })
                },
                None => {
                    self.commits.insert(commit.number, Some(slot));
                    let object_bytes = base_bytes.checked_add(sealed.data_bytes)?;
                    Segment { base_bytes, object_bytes, ..Segment::new(Name::Commit(commit.number)) }
                }
            };
            self.segments.insert(slot, Segment { data_bytes: sealed.data_bytes, ..segment });
            slots.push(slot);
        }
        for change in &commit.changes {
            let State { map, segments, .. } = self;
            match *change {
                Change::Hole { start, sectors: many } => {
                    let end = start.checked_add(many).filter(|end| *end <= sectors)?;
                    map.cut(start..end, |slot, lost| lose(segments, slot, lost));
                }
                Change::Write { start, sectors: many, segment, at } => {
                    let slot = *slots.get(segment as usize)?;
                    let written = segments.get_mut(&slot)?;
                    let end = at.checked_add(many)?;
                    start.checked_add(many.into()).filter(|end| *end <= sectors)?;
                    if u64::from(end) * SECTOR_BYTES > u64::from(written.data_bytes) {
                        return None;
                    }
                    written.live_sectors = written.live_sectors.checked_add(many)?;
                    let extent = Extent { sectors: many, slot, at };
                    map.put(start, extent, |slot, lost| lose(segments, slot, lost));
                }
            }
        }
        Some(())
    }
}
