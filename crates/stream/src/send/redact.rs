//! `zfs redact`: the blocks of a snapshot that all its redaction snapshots have changed or freed.
//!
//! Idea: redaction snapshots belong to clones in which secrets were overwritten or removed. A block that
//! differs in every one is secret. Each clone's walk over its changes yields ranges in order; those common to
//! all walks are cut to the objects of the snapshot. Metadata is never redacted.
//!
//! ```text
//!   walk of clone 1   [=====]      [==]
//!   walk of clone 2      [=======]   [==]
//!   in common            [==]        []
//! ```
//!
//! Memory: the resulting list, and a walk for each redaction snapshot.
//!
//! Source: OpenZFS `dmu_redact.c` (`redact_cb`, `perform_thread_merge`, `perform_redaction`). Unlike it, this
//! redacts the first blocks of an object after one whose spill block changed.

use std::collections::HashSet;

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_dataset::properties::REDACTED_DATASETS;
use cenote_format::dnode::Dnode;
use cenote_format::objset::ObjsetType;
use cenote_format::units::{Guid, ObjectId};
use cenote_object::object::SPILL_BLOCK;
use cenote_object::{DatasetError, Objset, Zap};
use cenote_tasks::{RedactedRun, Redaction};

use super::error::SendError;
use super::source::is_before;
use super::walk::{Part, Start, Walk};

/// `MASTER_NODE_OBJ`.
const MASTER_NODE_OBJ: ObjectId = ObjectId(1);
/// `DN_MAX_OBJECT`: object numbers are below this.
const DN_MAX_OBJECT: u64 = 1 << 48;

/// Why a snapshot can't be redacted.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    /// A redaction snapshot is not of a clone.
    #[error("redaction snapshot must be descendent of snapshot being redacted")]
    NotDescendant,
    /// One is redacted already.
    #[error("attempted to redact redacted dataset or with respect to redacted dataset")]
    Redacted,
    /// A snapshot can't be read.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl From<DatasetError> for RedactError {
    fn from(error: DatasetError) -> RedactError {
        RedactError::Send(error.into())
    }
}

/// A position: an object and a block in it.
type Position = (u64, u64);

/// The blocks to leave out of streams of `snapshot`.
///
/// # Errors
/// A redaction snapshot does not descend from it; a snapshot is redacted, or can't be read.
#[boxed]
pub async fn redaction(snapshot: &Dataset, others: &[Dataset]) -> Result<Redaction, RedactError> {
    for dataset in others.iter().chain([snapshot]) {
        if dataset.field(REDACTED_DATASETS).await?.is_some() {
            return Err(RedactError::Redacted);
        }
    }
    let mut changes = Vec::new();
    for other in others {
        let txg = snapshot.creation_txg();
        if !other.is_snapshot() || !is_before(other, snapshot.dir().id(), txg).await? {
            return Err(RedactError::NotDescendant);
        }
        changes.push(Changes::of(other, snapshot).await?);
    }
    let objset = snapshot.objset().await?;
    let mut redaction =
        Redaction { snapshots: others.iter().map(Dataset::guid).collect::<Vec<Guid>>(), runs: Vec::new() };
    // The ranges at the front; a walk that ended ends all.
    let mut fronts = Vec::new();
    for changes in &mut changes {
        fronts.push(changes.next().await?);
    }
    while let Some(ranges) = fronts.iter().copied().collect::<Option<Vec<(Position, Position)>>>() {
        let start = ranges.iter().map(|(start, _)| *start).max().unwrap_or_default();
        let end = ranges.iter().map(|(_, end)| *end).min().unwrap_or_default();
        if start < end {
            cut(&objset, start, end, &mut redaction.runs).await?;
        }
        let first = ranges.iter().position(|(_, other)| *other == end);
        let Some(at) = first.filter(|_| !ranges.is_empty()) else { break };
        if let (Some(front), Some(changes)) = (fronts.get_mut(at), changes.get_mut(at)) {
            *front = changes.next().await?;
        }
    }
    Ok(redaction)
}

/// Adds the blocks of the objects in a range.
async fn cut(
    objset: &Objset,
    start: Position,
    end: Position,
    runs: &mut Vec<RedactedRun>,
) -> Result<(), RedactError> {
    let last = if end.1 == 0 { end.0.saturating_sub(1) } else { end.0 }.min(DN_MAX_OBJECT);
    let mut dnodes = objset.dnodes(ObjectId(start.0), ObjectId(last.saturating_add(1)));
    while let Some(batch) = dnodes.next_batch().await {
        let batch = batch?;
        if let Some((_, error)) = batch.damaged.into_iter().next() {
            return Err(error.into());
        }
        for (object, dnode) in batch.dnodes {
            if !dnode.object_type.is_metadata() && (start.0..=last).contains(&object.0) {
                add(object, &dnode, start, end, runs);
            }
        }
    }
    Ok(())
}

/// Adds an object's blocks in a range.
fn add(object: ObjectId, dnode: &Dnode, start: Position, end: Position, runs: &mut Vec<RedactedRun>) {
    let first = if object.0 == start.0 { start.1 } else { 0 };
    let blocks = dnode.max_block_id.0.saturating_add(1);
    let end = if object.0 == end.0 { end.1.min(blocks) } else { blocks };
    if first >= end {
        return;
    }
    match runs.last_mut() {
        Some(before) if before.object == object && before.end == first => before.end = end,
        _ => runs.push(RedactedRun { object, first, end, block_bytes: dnode.data_block_bytes }),
    }
}

/// The ranges that a redaction snapshot changed or freed, in order.
struct Changes {
    walk: Walk,
    /// Objects unlinked while open count as freed.
    unlinked: HashSet<ObjectId>,
    /// A freed object, whose parts do not matter.
    ignored: Option<ObjectId>,
    /// The range that may still grow.
    pending: Option<(Position, Position)>,
    is_ended: bool,
}

impl Changes {
    async fn of(dataset: &Dataset, since: &Dataset) -> Result<Changes, RedactError> {
        let objset = dataset.objset().await?;
        let is_encrypted = dataset.dir().encryption().await?.is_some();
        let unlinked = unlinked(&objset).await?;
        let walk = Walk::new(&objset, since.creation_txg(), Start::default(), is_encrypted, false)?;
        Ok(Changes { walk, unlinked, ignored: None, pending: None, is_ended: false })
    }

    /// The next range; neighbours are joined.
    async fn next(&mut self) -> Result<Option<(Position, Position)>, RedactError> {
        while !self.is_ended {
            let Some(part) = self.walk.next().await? else {
                self.is_ended = true;
                break;
            };
            let Some((start, end)) = self.range(&part) else { continue };
            match &mut self.pending {
                Some((_, before)) if *before == start => *before = end,
                pending => {
                    if let Some(done) = pending.replace((start, end)) {
                        return Ok(Some(done));
                    }
                }
            }
        }
        Ok(self.pending.take())
    }

    fn range(&mut self, part: &Part) -> Option<(Position, Position)> {
        let whole = |object: ObjectId| Some(((object.0, 0), (object.0.saturating_add(1), 0)));
        match part {
            Part::Free(object) => whole(*object),
            Part::Object { object, .. } if self.unlinked.contains(object) => {
                self.ignored = Some(*object);
                whole(*object)
            }
            Part::Hole(span) | Part::Redacted(span) if span.object.0 == 0 => {
                let slots = u64::from(span.block_bytes) / 512;
                let end = if span.end == 0 { DN_MAX_OBJECT } else { span.end.saturating_mul(slots) };
                Some(((span.first.saturating_mul(slots), 0), (end, 0)))
            }
            Part::Hole(span) | Part::Redacted(span) if self.ignored != Some(span.object) => {
                let object = span.object.0;
                let end = if span.end == 0 { (object.saturating_add(1), 0) } else { (object, span.end) };
                Some(((object, span.first), end))
            }
            Part::Block(block) if block.id != SPILL_BLOCK && self.ignored != Some(block.object) => {
                Some(((block.object.0, block.id.0), (block.object.0, block.id.0.saturating_add(1))))
            }
            _ => None,
        }
    }
}

/// Objects of a file system unlinked while open.
async fn unlinked(objset: &Objset) -> Result<HashSet<ObjectId>, RedactError> {
    if objset.phys().objset_type != ObjsetType::Zfs {
        return Ok(HashSet::new());
    }
    let master = Zap::open_id(objset, MASTER_NODE_OBJ).await?;
    let Some(queue) = master.get_u64("DELETE_QUEUE").await?.filter(|id| *id != 0) else {
        return Ok(HashSet::new());
    };
    let entries = Zap::open_id(objset, ObjectId(queue)).await?.to_vec().await?;
    Ok(entries.iter().filter_map(|entry| entry.value.as_u64()).map(ObjectId).collect())
}
