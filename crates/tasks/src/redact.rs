//! Redaction bookmarks: they list the blocks of a snapshot that a redacted send leaves out.
//!
//! Layout: the bookmark names an object of the MOS. Its bonus, or its spill block if the bonus has no room,
//! holds the guids of the redaction snapshots; its content the runs of blocks, in order.
//!
//! Idea: the caller has computed all runs (`cenote_stream::send`), so the list is written in one txg. OpenZFS
//! writes it in steps, and can resume it.
//!
//! Source: OpenZFS `dmu_redact.c`, `dsl_bookmark.c` (`dsl_bookmark_create_redacted_sync`).

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_dataset::{Dataset, name};
use cenote_engine::{Engine, SpaceCheck, SyncContext};
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::bookmark::RedactionListHead;
use cenote_format::features::Feature;
use cenote_format::units::{BlockId, Guid, ObjectId, SPA_MINBLOCKSHIFT, SPA_OLD_MAXBLOCKSIZE};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{DatasetError, NewObject, Result};

use crate::mark::{add_mark, bookmark_of, refuse_existing};

/// `dmu_bonus_max`: the bonus of a dnode of 512 bytes.
const BONUS_BYTES: usize = 320;
/// Block size of a list.
const LIST_BLOCK_BYTES: u32 = SPA_OLD_MAXBLOCKSIZE as u32;
/// Words of an entry, `redact_block_phys_t`.
const ENTRY_WORDS: u64 = 4;
/// Entries written at once.
const ENTRIES_AT_ONCE: usize = 4096;
/// Bytes of a list's head before the guids.
const HEAD_BYTES: usize = 32;
/// Most redaction snapshots: their guids must fit a block, or the bonus without `redaction_list_spill`.
const MAX_SNAPSHOTS: usize = (LIST_BLOCK_BYTES as usize - HEAD_BYTES) / 8;
const MAX_SNAPSHOTS_IN_BONUS: usize = (BONUS_BYTES - HEAD_BYTES) / 8;

/// Blocks of an object, in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedactedRun {
    /// The object.
    pub object: ObjectId,
    /// The first block.
    pub first: u64,
    /// The block after the last.
    pub end: u64,
    /// Size of its blocks.
    pub block_bytes: u32,
}

/// The blocks that a redacted send leaves out.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Redaction {
    /// Guids of the redaction snapshots.
    pub snapshots: Vec<Guid>,
    /// Runs of blocks, ascending.
    pub runs: Vec<RedactedRun>,
}

/// Makes a redaction bookmark, `dataset#mark`, of a snapshot.
///
/// # Errors
/// The pool lacks the feature; the bookmark exists; too many snapshots.
#[boxed]
pub async fn redact(engine: &Engine, snapshot: &str, mark: &str, redaction: Redaction) -> Result<()> {
    let (snapshot, mark) = (snapshot.to_owned(), mark.to_owned());
    engine
        .run_within(SpaceCheck::Normal, move |context| {
            context.touch_nothing();
            Box::pin(async move { redact_sync(context, &snapshot, &mark, &redaction).await })
        })
        .await
}

async fn redact_sync(
    context: &mut SyncContext,
    snapshot: &str,
    mark: &str,
    redaction: &Redaction,
) -> Result<()> {
    let refuse = |why: &str| Err(DatasetError::unsuitable(mark, why));
    let (path, own) = name::split_at(mark, '#')?;
    check_list(context, mark, redaction).await?;
    let head = context.mos().await?.dataset(path).await?;
    refuse_existing(&head, mark).await?;
    let snapshot = context.mos().await?.dataset(snapshot).await?;
    if snapshot.dir().id() != head.dir().id() || !snapshot.is_snapshot() {
        return refuse("is not of the snapshot's dataset");
    }
    let mut phys = bookmark_of(context, &snapshot).await?;
    phys.redaction_list = write_list(context, redaction).await?;
    let origin = format!("target_snap={} redact_obj={}", snapshot.id(), phys.redaction_list);
    add_mark(context, (path, ObjectId(head.id().0)), own, &phys, &origin).await
}

/// The list of a bookmark of a redacted snapshot: guids without blocks. Without it, an increment from the
/// bookmark would not fit its redacted copy. 0: the snapshot is complete.
pub(crate) async fn list_of_redacted(
    context: &mut SyncContext,
    snapshot: &Dataset,
    mark: &str,
) -> Result<ObjectId> {
    match of_redacted(context, snapshot, mark).await? {
        Some(redaction) => write_list(context, &redaction).await,
        None => Ok(ObjectId(0)),
    }
}

/// The same list, not written yet; refused if the pool can't have it.
pub(crate) async fn of_redacted(
    context: &SyncContext,
    snapshot: &Dataset,
    mark: &str,
) -> Result<Option<Redaction>> {
    let Some(feature) = Feature::by_name("redacted_datasets") else { return Ok(None) };
    let Some(guids) = snapshot.field(feature.guid).await? else { return Ok(None) };
    let snapshots = guids.into_iter().map(Guid).collect();
    let redaction = Redaction { snapshots, runs: Vec::new() };
    check_list(context, mark, &redaction).await?;
    Ok(Some(redaction))
}

/// Refuses a list that the pool can't have.
async fn check_list(context: &SyncContext, mark: &str, redaction: &Redaction) -> Result<()> {
    let refuse = |why: &str| Err(DatasetError::unsuitable(mark, why));
    let edit = context.edit();
    let counts = FeatureCounts::of(&edit);
    if counts.count("redaction_bookmarks").await?.is_none() {
        return refuse("redaction bookmarks feature not enabled");
    }
    let most = match counts.count("redaction_list_spill").await? {
        Some(_) => MAX_SNAPSHOTS,
        None => MAX_SNAPSHOTS_IN_BONUS,
    };
    match redaction.snapshots.len() > most {
        true => refuse("too many redaction snapshots specified"),
        false => Ok(()),
    }
}

/// Writes a list to its own object.
async fn write_list(context: &mut SyncContext, redaction: &Redaction) -> Result<ObjectId> {
    let head = RedactionListHead {
        last_object: ObjectId(u64::MAX),
        last_block: BlockId(u64::MAX),
        num_entries: redaction.runs.len() as u64,
        snapshots: redaction.snapshots.clone(),
    };
    let head = head.encode(Endian::NATIVE);
    let is_spilled = head.len() > BONUS_BYTES;
    let new = NewObject::of(ObjectType::UINT64_METADATA).block_bytes(LIST_BLOCK_BYTES).spilling(is_spilled);
    let bonus = if is_spilled { Vec::new() } else { head.clone() };
    let edit = context.edit();
    let object = edit.create(&new.bonus(ObjectType::UINT64_METADATA, bonus)).await?;
    if is_spilled {
        let mut spill = head;
        spill.resize(spill.len().next_multiple_of(1 << SPA_MINBLOCKSHIFT), 0);
        edit.set_spill(object, Some(Bytes::from(spill))).await?;
    }
    for (at, runs) in redaction.runs.chunks(ENTRIES_AT_ONCE).enumerate() {
        let words = |run: &RedactedRun| {
            let sectors = u64::from(run.block_bytes >> SPA_MINBLOCKSHIFT);
            let count = run.end.saturating_sub(run.first).clamp(1, 1 << 48);
            [run.object.0, run.first, sectors << 48 | (count - 1), 0]
        };
        let words: Vec<u64> = runs.iter().flat_map(words).collect();
        edit.write_words(object, (at * ENTRIES_AT_ONCE) as u64 * ENTRY_WORDS, &words).await?;
    }
    context.use_feature("redaction_bookmarks", 1).await?;
    if is_spilled {
        context.use_feature("redaction_list_spill", 1).await?;
    }
    Ok(object)
}
