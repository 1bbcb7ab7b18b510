//! Redaction lists in a send: blocks to leave out, and blocks that an earlier send left out.
//!
//! ```text
//!   --redact #mark      blocks on the list become REDACT records, changed or not
//!   -i #mark            blocks on the list are sent, if they exist, though older than the mark
//!   both lists have it  nothing is sent: the receiver lacks it, and shall
//! ```
//!
//! Idea: a list is sorted as the walk is, so both are merged in one pass.
//!
//! Differences from OpenZFS 2.3: it does not send the last block of an object that an earlier send left out
//! (`send_reader_thread` compares with the number of that block, not with the one after it).
//!
//! Memory: the lists, 24 bytes for each run of blocks.
//!
//! Source: OpenZFS `dmu_send.c` (`send_merge_thread`, `find_next_range`), `dsl_bookmark.c`
//! (`dsl_redaction_list_traverse`).

use std::collections::VecDeque;
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_dataset::{Bookmark, Mos};
use cenote_format::Phys;
use cenote_format::dsl::bookmark::{RedactBlock, RedactionListHead};
use cenote_format::units::{ObjectId, Txg};
use cenote_object::object::SPILL_BLOCK;
use cenote_tasks::RedactedRun;

use super::error::{Result, SendError};
use super::walk::{Part, Span, Start, Walk};

/// Words of an entry.
const ENTRY_WORDS: usize = 4;
const ENTRIES_AT_ONCE: u64 = 4096;

#[derive(Debug, Default, Clone)]
pub(super) struct RedactionList {
    /// Guids of the redaction snapshots.
    pub(super) snapshots: Vec<u64>,
    pub(super) runs: Arc<[RedactedRun]>,
}

impl RedactionList {
    #[boxed]
    pub(super) async fn read(mos: &Mos, mark: &Bookmark) -> Result<RedactionList> {
        let id = mark.phys.redaction_list;
        if id.0 == 0 {
            return Err(SendError::NoRedaction { mark: mark.name.clone() });
        }
        let object = mos.objset().object(id).await?;
        let damaged = |source| object.format(source);
        let head = match object.read_spill().await? {
            Some((endian, spill)) => RedactionListHead::decode(&spill, endian).map_err(damaged)?,
            None => {
                let dnode = object.dnode();
                RedactionListHead::decode(dnode.bonus(), dnode.endian()).map_err(damaged)?
            }
        };
        if !head.is_complete() {
            return Err(SendError::IncompleteRedaction);
        }
        if head.num_entries > object.capacity_bytes() / (ENTRY_WORDS as u64 * 8) {
            return Err(object.damaged("has more entries than it has room").into());
        }
        let mut runs: Vec<RedactedRun> = Vec::new();
        let mut at = 0;
        while at < head.num_entries {
            let count = (head.num_entries - at).min(ENTRIES_AT_ONCE);
            let words = object.read_words(at * ENTRY_WORDS as u64, count as usize * ENTRY_WORDS).await?;
            for entry in words.chunks_exact(ENTRY_WORDS) {
                let block = RedactBlock::from_words(entry).map_err(damaged)?;
                let (object_id, first) = (block.object, block.first_block.0);
                let end = first.checked_add(block.block_count());
                let is_after = runs.last().is_none_or(|last| (last.object, last.end) <= (object_id, first));
                let Some(end) = end.filter(|_| is_after) else {
                    return Err(object.damaged("has entries out of order").into());
                };
                let block_bytes = block.block_bytes() as u32;
                runs.push(RedactedRun { object: object_id, first, end, block_bytes });
            }
            at += count;
        }
        let snapshots = head.snapshots.into_iter().map(|guid| guid.0).collect();
        Ok(RedactionList { snapshots, runs: runs.into() })
    }
}

/// The guids of a redaction bookmark's snapshots.
///
/// # Errors
/// No redaction bookmark, or an incomplete one; damage.
#[boxed]
pub async fn redaction_snapshots(mos: &Mos, mark: &Bookmark) -> Result<Vec<u64>> {
    Ok(RedactionList::read(mos, mark).await?.snapshots)
}

/// Whether a sorted list has a block of an object within a range.
pub(super) fn intersects(runs: &[RedactedRun], object: ObjectId, first: u64, end: u64) -> bool {
    within(runs, object, first, end).next().is_some()
}

/// The parts of a sorted list within a range of an object's blocks.
pub(super) fn within(
    runs: &[RedactedRun],
    object: ObjectId,
    first: u64,
    end: u64,
) -> impl Iterator<Item = (u64, u64)> {
    let from = runs.partition_point(|run| (run.object, run.end) <= (object, first));
    let rest = runs.get(from..).unwrap_or_default().iter();
    rest.take_while(move |run| run.object == object && run.first < end)
        .map(move |run| (run.first.max(first), run.end.min(end)))
}

/// Whether a sorted list has an object within a range.
pub(super) fn has_objects(runs: &[RedactedRun], first: u64, end: u64) -> bool {
    let from = runs.partition_point(|run| run.object.0 < first);
    runs.get(from).is_some_and(|run| run.object.0 < end)
}

/// Blocks to leave out.
#[derive(Debug, Clone, Copy)]
struct Left {
    run: RedactedRun,
    /// The receiver is told: it has them.
    is_told: bool,
}

/// The parts of a stream, without the blocks to leave out.
pub(super) struct Parts {
    walk: Walk,
    born_after: Txg,
    left: VecDeque<Left>,
    queue: VecDeque<Part>,
}

impl Parts {
    pub(super) fn all(walk: Walk) -> Parts {
        Parts { walk, born_after: Txg(0), left: VecDeque::new(), queue: VecDeque::new() }
    }

    /// Leaves out the blocks of `list`, from `start` on. Those also in `before` are left out since an earlier
    /// send.
    pub(super) fn redacted(
        walk: Walk,
        born_after: Txg,
        start: Start,
        list: &[RedactedRun],
        before: &[RedactedRun],
    ) -> Parts {
        let mut left = VecDeque::new();
        for run in list {
            let mut at = run.first;
            for (first, end) in within(before, run.object, run.first, run.end) {
                if at < first {
                    left.push_back(Left {
                        run: RedactedRun { first: at, end: first, ..*run },
                        is_told: true,
                    });
                }
                left.push_back(Left { run: RedactedRun { first, end, ..*run }, is_told: false });
                at = end;
            }
            if at < run.end {
                left.push_back(Left { run: RedactedRun { first: at, ..*run }, is_told: true });
            }
        }
        left.retain(|Left { run, .. }| (run.object, run.end) > (start.object, start.block));
        if let Some(Left { run, .. }) = left.front_mut()
            && run.object == start.object
        {
            run.first = run.first.max(start.block);
        }
        Parts { walk, born_after, left, queue: VecDeque::new() }
    }

    /// The next part; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Part>> {
        loop {
            if let Some(part) = self.queue.pop_front() {
                return Ok(Some(part));
            }
            match self.walk.next().await? {
                Some(part) if self.left.is_empty() => return Ok(Some(part)),
                Some(part) => self.merge(part),
                None if self.left.is_empty() => return Ok(None),
                None => self.leave_before(ObjectId(u64::MAX), u64::MAX),
            }
        }
    }

    fn merge(&mut self, part: Part) {
        match &part {
            Part::Dnodes { .. } => {}
            Part::Object { object, .. } | Part::Free(object) => self.leave_before(*object, 0),
            Part::Hole(span) if span.object.0 == 0 => {
                let slots = u64::from(span.block_bytes) / 512;
                self.leave_before(ObjectId(span.first.saturating_mul(slots)), 0);
            }
            Part::Hole(span) => return self.merge_span(*span, Part::Hole),
            Part::Redacted(span) => return self.merge_span(*span, Part::Redacted),
            // An unchanged spill block comes with its object, a new one after the object's blocks.
            Part::Block(block) if block.id == SPILL_BLOCK => {
                if block.bp.logical_birth() > self.born_after {
                    self.leave_before(ObjectId(block.object.0.saturating_add(1)), 0);
                }
            }
            Part::Block(block) => {
                self.leave_before(block.object, block.id.0);
                if self.leave_one(block.object, block.id.0.saturating_add(1)) {
                    return;
                }
            }
        }
        self.queue.push_back(part);
    }

    /// Cuts the redacted blocks out of a range.
    fn merge_span(&mut self, span: Span, part: fn(Span) -> Part) {
        let end = if span.end == 0 { u64::MAX } else { span.end };
        let mut at = span.first;
        self.leave_before(span.object, at);
        while let Some(next) = self.left.front().map(|left| left.run)
            && next.object == span.object
            && next.first < end
        {
            if at < next.first {
                self.queue.push_back(part(Span { first: at, end: next.first, ..span }));
            }
            at = next.end.min(end);
            self.leave_one(span.object, at);
        }
        if at < end {
            self.queue.push_back(part(Span { first: at, ..span }));
        }
    }

    /// Leaves out everything before a block.
    fn leave_before(&mut self, object: ObjectId, block: u64) {
        while let Some(Left { run, .. }) = self.left.front()
            && (run.object, run.first) < (object, block)
        {
            let (own, end) = (run.object, if run.object == object { block } else { u64::MAX });
            self.leave_one(own, end);
        }
    }

    /// Leaves out the next run up to a block, if it begins before that block.
    fn leave_one(&mut self, object: ObjectId, end: u64) -> bool {
        let Some(Left { run, is_told }) = self.left.front_mut() else { return false };
        if run.object != object || run.first >= end {
            return false;
        }
        let end = run.end.min(end);
        if *is_told {
            let RedactedRun { object, first, block_bytes, .. } = *run;
            self.queue.push_back(Part::Redacted(Span { object, first, end, block_bytes }));
        }
        run.first = end;
        if run.first >= run.end {
            self.left.pop_front();
        }
        true
    }
}
