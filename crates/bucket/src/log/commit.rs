//! Commits, takeovers, checkpoints, and the deletion of objects that nothing needs.
//!
//! One task at a time commits. It takes the batch, waits until its segments exist, and creates the next
//! commit; flushes that come meanwhile share the one after. A takeover uses up a number, too, and comes
//! before the first object of this writer.

use std::sync::Arc;

use bytes::Bytes;
use cenote_runtime::Runtime;

use super::state::{Content, Prepared, Sealing, crc_of};
use super::{Log, Over};
use crate::map::SECTOR_BYTES;
use crate::probe::{ROUNDS_AGAIN, probe};
use crate::store::{Body, Created, StoreError};
use crate::wire::{
    COMMITS, CheckpointRef, Commit, DEVICE, Entry, MAPS, SEGMENTS, Writer, commit_key, encode_table,
};

/// Objects deleted at once.
const DELETES: usize = 4;

impl Log {
    /// Creates a sealed segment. A failure ends the use of the disk.
    pub(super) async fn create_segment(self: Arc<Self>, (slot, data_bytes): Sealing) {
        let found = {
            let state = self.state.lock();
            let segment = state.segments.get(&slot);
            segment.map(|segment| (segment.name.key(), segment.content.clone().unwrap_or_default()))
        };
        // Its data may be dead already.
        if let Some((key, content)) = found {
            let created = match self.own().await {
                Ok(()) => self.store.create(&key, &content.into_body()).await.map_err(Over::from),
                Err(over) => Err(over),
            };
            if let Err(over) = created {
                self.end(over);
            }
        }
        if let Some(segment) = self.state.lock().segments.get_mut(&slot) {
            segment.content = None;
        }
        self.release(data_bytes);
    }

    /// Data that left memory.
    fn release(&self, bytes: u32) {
        self.progress.modify(|progress| progress.buffered_bytes -= u64::from(bytes));
    }

    /// Commits batches while some are wanted.
    pub(super) async fn commit_batches(self: Arc<Self>) {
        loop {
            if let Err(over) = self.commit_batch().await {
                self.end(over);
            }
            let mut flushes = self.flushes.lock();
            let progress = self.progress.borrow();
            if progress.committed >= flushes.wanted || progress.over.is_some() {
                flushes.is_committing = false;
                return;
            }
        }
    }

    async fn commit_batch(self: &Arc<Self>) -> Result<(), Over> {
        self.own().await?;
        let (prepared, creating) = {
            let mut state = self.state.lock();
            if let Some(sealing) = state.seal_large() {
                self.create_segments(vec![sealing]);
            }
            (state.prepare(), std::mem::take(&mut *self.creating.lock()))
        };
        for task in creating {
            // A panic continues here.
            task.await.map_err(|_| StoreError::Unknown("the task was cancelled".into()))?;
        }
        if let Some(over) = self.over() {
            return Err(over);
        }
        self.create_commit(prepared.number, &prepared.body).await?;
        self.finish(prepared);
        Ok(())
    }

    /// Makes a commit's effects known, and begins the work that follows it.
    fn finish(self: &Arc<Self>, prepared: Prepared) {
        let Prepared { number, batch, inline, replaced, dead, snapshot, body } = prepared;
        let inline_bytes: usize = body.iter().skip(1).map(Bytes::len).sum();
        let mut keys = dead;
        {
            let mut state = self.state.lock();
            state.last = number;
            if let Some(segment) = inline.and_then(|slot| state.segments.get_mut(&slot)) {
                segment.content = None;
            }
            keys.extend(state.take_old_commits().into_iter().map(commit_key));
        }
        self.progress.modify(|progress| {
            progress.committed = batch;
            progress.buffered_bytes -= inline_bytes as u64;
        });
        if let Some(Some(old)) = replaced {
            keys.extend((0..old.parts).map(|part| old.key(part)));
        }
        self.delete(keys);
        if let Some((checkpoint, parts)) = snapshot {
            self.runtime.spawn(self.clone().create_checkpoint(checkpoint, parts)).detach();
        }
        self.pack_if_needed();
    }

    /// Creates a commit, unless another one has its number.
    async fn create_commit(&self, number: u64, body: &Body) -> Result<(), Over> {
        let key = commit_key(number);
        match self.store.create(&key, body).await? {
            Created::New { .. } => Ok(()),
            // An earlier try may have succeeded without an answer.
            Created::Refused => match self.store.read(&key, None).await {
                Ok(there) if there == body.concat() => Ok(()),
                Ok(_) | Err(StoreError::Missing(_)) => Err(Over::Taken),
                Err(error) => Err(error.into()),
            },
        }
    }

    async fn create_checkpoint(self: Arc<Self>, checkpoint: CheckpointRef, parts: Vec<Bytes>) {
        let mut created = Ok(());
        for (part, bytes) in parts.into_iter().enumerate() {
            let key = checkpoint.key(part as u32);
            if let Err(error) = self.store.create(&key, &vec![bytes]).await {
                created = Err(error);
                break;
            }
        }
        // Without one, the disk only takes longer to open; the next may succeed.
        let mut state = self.state.lock();
        state.is_checkpointing = false;
        if created.is_ok() {
            state.ready = Some(checkpoint);
        }
    }

    /// Takes the disk over, once.
    pub(super) async fn own(self: &Arc<Self>) -> Result<(), Over> {
        let mut owned = self.owned.lock().await;
        if let Some(over) = self.over() {
            return Err(over);
        }
        if *owned {
            return Ok(());
        }
        probe(&self.store, ROUNDS_AGAIN).await?;
        if !self.exists {
            let body = vec![self.identity.encode()];
            if self.store.create(DEVICE, &body).await? == Created::Refused
                && self.store.read(DEVICE, None).await? != body[0]
            {
                return Err(Over::Taken);
            }
        }
        let (number, writer, checkpoint) = {
            let state = self.state.lock();
            (state.last + 1, state.writer, state.checkpoint)
        };
        let takeover = Commit {
            number,
            writer,
            is_takeover: true,
            checkpoint,
            segments: Vec::new(),
            changes: Vec::new(),
        };
        self.create_commit(number, &vec![takeover.encode().into()]).await?;
        // A higher one: this number was free only because its commit had been deleted.
        if self.is_overtaken_since(number).await? {
            return Err(Over::Taken);
        }
        let (names, checkpoint) = {
            let mut state = self.state.lock();
            state.last = number;
            (state.names(), state.checkpoint)
        };
        *owned = true;
        let sweep = self.clone().sweep(writer, names, checkpoint.map(|checkpoint| checkpoint.prefix()));
        self.runtime.spawn(sweep).detach();
        Ok(())
    }

    async fn is_overtaken_since(&self, number: u64) -> Result<bool, Over> {
        Ok(!self.store.list(COMMITS, &commit_key(number)).await?.is_empty())
    }

    /// Whether an unknown commit exists.
    pub(super) async fn is_overtaken(&self) -> Result<bool, Over> {
        let before = self.state.lock().last;
        let keys = self.store.list(COMMITS, &commit_key(before)).await?;
        // Its own next commit may exist by now.
        let known = self.state.lock().last + 1;
        let (is_committing, newest) = (self.flushes.lock().is_committing, keys.last());
        Ok(newest.is_some_and(|newest| !is_committing || *newest > commit_key(known)))
    }

    /// Deletes objects of earlier writers that nothing names: those that a stopped machine created in vain.
    async fn sweep(
        self: Arc<Self>,
        writer: Writer,
        names: std::collections::BTreeSet<String>,
        checkpoint: Option<String>,
    ) {
        let is_others = |key: &String| {
            Writer::of_key(key).is_some_and(|other| other != writer && other.epoch <= writer.epoch)
        };
        // If a list fails, the next takeover deletes them.
        let mut orphans = self.store.list(SEGMENTS, "").await.unwrap_or_default();
        orphans.retain(|key| is_others(key) && !names.contains(key));
        let mut maps = self.store.list(MAPS, "").await.unwrap_or_default();
        maps.retain(|key| is_others(key) && !checkpoint.as_ref().is_some_and(|kept| key.starts_with(kept)));
        orphans.extend(maps);
        self.delete(orphans);
    }

    /// Deletes objects in the background. One that remains wastes space, and does no harm.
    fn delete(&self, keys: Vec<String>) {
        if keys.is_empty() {
            return;
        }
        let (store, runtime): (_, Runtime) = (self.store.clone(), self.runtime.clone());
        let deleting = async move {
            let step = move |key: String| {
                let store = store.clone();
                async move {
                    drop(store.delete(&key).await);
                    Ok::<_, StoreError>(())
                }
            };
            let clock = runtime.clone();
            drop(clock.for_each_bounded(DELETES, keys, step).await);
        };
        self.runtime.spawn(deleting).detach();
    }
}

impl Content {
    /// Data and table.
    fn into_body(self) -> Body {
        let Content { pieces, mut entries } = self;
        // An entry is a piece.
        for (entry, (_, data)) in entries.iter_mut().zip(&pieces) {
            debug_assert_eq!(u64::from(entry.sectors) * SECTOR_BYTES, data.len() as u64);
            *entry = Entry { crc: Some(crc_of(std::slice::from_ref(data))), ..*entry };
        }
        let mut body: Body = pieces.into_iter().map(|(_, data)| data).collect();
        body.push(encode_table(&entries).into());
        body
    }
}
