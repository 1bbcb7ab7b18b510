//! Remap deadlists: parts of a removed vdev's mapping that only snapshots need.
//!
//! Idea: when OpenZFS rewrites an indirect block, it redirects pointers into a removed vdev to the blocks'
//! new places. Then only snapshots with the old pointer, if any, need that part of the mapping. It goes to a
//! list beside the deadlist, which moves between snapshots like it, and is obsolete when the last is
//! destroyed. This engine never redirects pointers, so it only maintains existing lists.
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_dataset_block_remapped`), `dsl_destroy.c`
//! (`dsl_destroy_snapshot_handle_remaps`).

use cenote_engine::SyncContext;
use cenote_format::dsl::DslDatasetPhys;
use cenote_format::dsl::names::dataset_field;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::deadlist::BlockLists;
use cenote_object::trail::Trail;
use cenote_object::zap::Zap;
use cenote_object::{Result, ZapEdit};

const FEATURE: &str = "obsolete_counts";

async fn remapped(context: &SyncContext, dataset: ObjectId) -> Result<Option<ObjectId>> {
    context.dataset_field(dataset, dataset_field::REMAP_DEADLIST).await
}

/// Moves a head's list to its new snapshot.
pub(crate) async fn hand_down_remapped(
    context: &mut SyncContext,
    head: ObjectId,
    snapshot: ObjectId,
) -> Result<()> {
    let Some(list) = remapped(context, head).await? else { return Ok(()) };
    ZapEdit::new(&context.edit(), head).remove(dataset_field::REMAP_DEADLIST).await?;
    set_remapped(context, snapshot, list).await
}

/// Handles the lists of a destroyed snapshot: entries only it needed become obsolete, the rest moves to the
/// next version.
pub(crate) async fn leave_remapped(
    context: &mut SyncContext,
    id: ObjectId,
    snapshot: &DslDatasetPhys,
) -> Result<()> {
    let next = snapshot.next_snapshot;
    if let Some(list) = remapped(context, next).await? {
        make_obsolete(context, list, snapshot.prev_snapshot_txg).await?;
    }
    let Some(own) = remapped(context, id).await? else { return Ok(()) };
    let into = match remapped(context, next).await? {
        Some(list) => list,
        None => {
            let keys_of = context.dataset_phys(next).await?.deadlist;
            let list = context.clone_deadlist(keys_of, Txg(u64::MAX)).await?;
            set_remapped(context, next, list).await?;
            context.use_feature(FEATURE, 1).await?;
            list
        }
    };
    context.merge_deadlist(into, own).await?;
    ZapEdit::new(&context.edit(), id).remove(dataset_field::REMAP_DEADLIST).await?;
    context.use_feature(FEATURE, -1).await
}

/// Drops a dataset's list: its origin needs all the entries.
pub(crate) async fn drop_remapped(context: &mut SyncContext, id: ObjectId) -> Result<()> {
    let Some(list) = remapped(context, id).await? else { return Ok(()) };
    context.free_deadlist(list).await?;
    ZapEdit::new(&context.edit(), id).remove(dataset_field::REMAP_DEADLIST).await?;
    context.use_feature(FEATURE, -1).await
}

/// Removes a destroyed snapshot's key from a dataset's lists.
pub(crate) async fn forget_key(context: &SyncContext, dataset: ObjectId, key: Txg) -> Result<()> {
    context.remove_deadlist_key(context.dataset_phys(dataset).await?.deadlist, key).await?;
    match remapped(context, dataset).await? {
        Some(list) => context.remove_deadlist_key(list, key).await,
        None => Ok(()),
    }
}

async fn set_remapped(context: &mut SyncContext, dataset: ObjectId, list: ObjectId) -> Result<()> {
    context.zapify(dataset).await?;
    ZapEdit::new(&context.edit(), dataset).add(dataset_field::REMAP_DEADLIST, list.0).await
}

async fn make_obsolete(context: &SyncContext, list: ObjectId, from: Txg) -> Result<()> {
    let (edit, dsize) = (context.edit(), context.dsize());
    let mut opened = context.open_deadlist(BlockLists::new(&edit, &dsize), list).await?;
    for list in opened.lists_from(from).await? {
        let mut entries = list.entries();
        while let Some(batch) = entries.next_batch().await {
            for dva in batch?.iter().filter_map(|entry| entry.bp.dvas().next()) {
                context.allocator().note_obsolete(&dva);
            }
        }
    }
    opened.drop_from(from).await?;
    context.close_deadlist(opened).await
}

/// Removes a destroyed snapshot's key from the heads of clones of later snapshots.
pub(crate) async fn remove_key_of_clones(context: &SyncContext, dir: ObjectId, key: Txg) -> Result<()> {
    let mut trail = Trail::new(&context.edit().view(), "the clones of one another");
    let mut pending = vec![dir];
    while let Some(dir) = pending.pop() {
        trail.enter(dir)?;
        let clones = context.dir_phys(dir).await?.clones_zap;
        if clones.0 == 0 {
            continue;
        }
        for entry in Zap::open_id(&context.edit().view(), clones).await?.to_vec().await? {
            let Some(clone) = entry.value.as_u64().map(ObjectId) else { continue };
            let phys = context.dataset_phys(clone).await?;
            if context.origin_txg(phys.dir).await? > key {
                forget_key(context, clone, key).await?;
                pending.push(phys.dir);
            }
        }
    }
    Ok(())
}
