//! Livelists: the blocks a clone has written, so that destroying it needs no walk over its tree.
//!
//! ```text
//!   dir of a clone --LIVELIST--> table: list 0 [+a +b -a +c]   list 90 [+d -d +e]
//! ```
//!
//! Idea: a block is listed when the clone writes it, and again when it dies; those listed more often as
//! written are the clone's own. A death goes to the list of the block's birth, so each list can be freed by
//! itself. A clone with little in common with its origin drops its livelist: the walk costs no more.
//!
//! Lists are not condensed here; OpenZFS does that when it next opens the pool.
//!
//! Memory: the live blocks of one list.
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_flush_pending_livelist`, `dsl_livelist_should_disable`),
//! `dsl_deadlist.c` (`dsl_process_sub_livelist`), `dsl_destroy.c` (`dsl_async_clone_destroy`), `spa.c`
//! (`spa_livelist_delete_cb`).

use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::bpobj::BpobjEntry;
use cenote_format::dsl::names::dir_field;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::deadlist::{BlockLists, Bpobj, DeadlistEdit};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{Result, ZapEdit};

use crate::context::SyncContext;

const FEATURE: &str = "livelist";

/// A clone's livelist, if made since feature `livelist`.
#[boxed]
pub async fn livelist(context: &SyncContext, dir: ObjectId) -> Result<Option<ObjectId>> {
    let edit = context.edit();
    if !edit.view().dnode(dir).await?.object_type.is_zap() {
        return Ok(None);
    }
    let found = ZapEdit::new(&edit, dir).get(dir_field::LIVELIST).await?;
    Ok(found.and_then(|id| id.as_u64()).map(ObjectId))
}

/// Gives a new clone an empty livelist, if the pool has the feature.
#[boxed]
pub async fn make_livelist(context: &mut SyncContext, dir: ObjectId) -> Result<()> {
    if FeatureCounts::of(&context.edit()).count(FEATURE).await?.is_none() {
        return Ok(());
    }
    context.zapify(dir).await?;
    let list = context.make_deadlist().await?;
    ZapEdit::new(&context.edit(), dir).add(dir_field::LIVELIST, list.0).await?;
    context.use_feature(FEATURE, 1).await
}

pub(crate) async fn note_in_livelist(
    context: &mut SyncContext,
    dir: ObjectId,
    livelist: ObjectId,
    born: &[Blkptr],
    dead: &[Blkptr],
) -> Result<()> {
    let origin_txg = context.origin_txg(dir).await?;
    let own = |bp: &&Blkptr| bp.allocation_birth() > origin_txg && !bp.is_hole() && !bp.is_embedded();
    let entry = |freed| move |bp: &Blkptr| BpobjEntry { bp: *bp, freed };
    let born = born.iter().filter(own).map(entry(false));
    let entries: Vec<BpobjEntry> = born.chain(dead.iter().filter(own).map(entry(true))).collect();
    if entries.is_empty() {
        return Ok(());
    }
    let most = context.scan_settings().livelist_entries();
    let (edit, dsize) = (context.edit(), context.dsize());
    let mut opened = DeadlistEdit::open(BlockLists::new(&edit, &dsize), livelist).await?;
    let written = |list: Bpobj| list.phys().blkptr_count.saturating_sub(list.phys().freed_count);
    if opened.last_list().await?.is_none_or(|list| written(list) > most) {
        opened.add_key(Txg(context.txg().0 - 1)).await?;
    }
    opened.insert(&entries).await?;
    opened.store().await
}

/// Drops the livelist of a clone that shares too little with its origin.
pub(crate) async fn drop_useless_livelist(context: &mut SyncContext, dir: ObjectId) -> Result<()> {
    let phys = context.dir_phys(dir).await?;
    let own = phys.used_breakdown.head_bytes;
    let referenced = context.dataset_phys(phys.head_dataset).await?.referenced_bytes;
    let shared = u128::from(referenced.saturating_sub(own)) * 100;
    let least = context.scan_settings().livelist_percent_shared();
    if referenced != 0 && shared / u128::from(referenced) <= least.into() {
        drop_livelist(context, dir).await?;
    }
    Ok(())
}

/// Drops an inaccurate livelist (`dsl_dir_remove_livelist`).
#[boxed]
pub async fn drop_livelist(context: &mut SyncContext, dir: ObjectId) -> Result<()> {
    let Some(livelist) = livelist(context, dir).await? else { return Ok(()) };
    ZapEdit::new(&context.edit(), dir).remove(dir_field::LIVELIST).await?;
    context.free_deadlist(livelist).await?;
    context.use_feature(FEATURE, -1).await
}

/// Checks that a livelist is readable.
#[boxed]
pub async fn survey_livelist(context: &SyncContext, livelist: ObjectId) -> Result<()> {
    let (edit, dsize) = (context.edit(), context.dsize());
    let opened = DeadlistEdit::open(BlockLists::new(&edit, &dsize), livelist).await?;
    for list in opened.lists_from(Txg(0)).await? {
        list.live_blocks().await?;
    }
    Ok(())
}

/// Frees the blocks of a livelist, and the list.
#[boxed]
pub async fn free_livelist(context: &mut SyncContext, livelist: ObjectId) -> Result<()> {
    let (edit, dsize) = (context.edit(), context.dsize());
    let opened = DeadlistEdit::open(BlockLists::new(&edit, &dsize), livelist).await?;
    for list in opened.lists_from(Txg(0)).await? {
        context.free_all(&list.live_blocks().await?).await?;
    }
    opened.free().await?;
    context.use_feature(FEATURE, -1).await
}
