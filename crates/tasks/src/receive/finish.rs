//! Ends a receive: in one txg, the received head becomes the dataset's and its snapshot is taken.
//!
//! Source: OpenZFS `dmu_recv.c` (`dmu_recv_end_check`, `dmu_recv_end_sync`).

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, name};
use cenote_engine::freeing::{free_tree_later, frees_in_background};
use cenote_engine::livelist::drop_livelist;
use cenote_engine::logs::free_log;
use cenote_engine::{Engine, Reach, SpaceCheck, SyncContext};
use cenote_format::dsl::DS_FLAG_INCONSISTENT;
use cenote_format::units::{Guid, ObjectId};
use cenote_object::{DatasetError, Result};

use crate::destroy::{free_blocks, remove_head, survey_blocks};
use crate::destroy_snapshot::{refuse_if_used, remove_snapshot};
use crate::make::make_snapshot;
use crate::pool::scan::state::snapshotted;
use crate::receive::Receiving;
use crate::receive::raw::{self, RawKeys, store_again};
use crate::receive::resume::drop_state;
use crate::receive::swap::swap;
use crate::remapped::drop_remapped;
use crate::set::refreservation;
use crate::snapshot::{note_ivset, note_snapshots_changed};
use crate::touch::touch;
use crate::whole::readable;

/// Parameters of a receive's end.
#[derive(Debug, Clone)]
pub struct Finish {
    /// The filled head.
    pub receiving: Receiving,
    /// The new snapshot's own name.
    pub snapshot: String,
    /// The sent snapshot's guid.
    pub to_guid: Guid,
    /// The sent snapshot's creation time, in seconds since 1970.
    pub creation_time_s: u64,
    /// Destroys snapshots after the stream's base (`-F`).
    pub is_forced: bool,
    /// Keys of a raw stream.
    pub raw: Option<RawKeys>,
}

/// Completes a receive. Neither the target nor the filled head may be open.
///
/// # Errors
/// One is open, the target has changed meanwhile, or its snapshots are held.
#[boxed]
pub async fn end_receive(engine: &Engine, finish: Finish) -> Result<()> {
    engine
        .run_when_quiet(SpaceCheck::Normal, || {
            let finish = finish.clone();
            move |context| {
                Box::pin(async move {
                    end_sync(context, &finish).await?;
                    let receiving = &finish.receiving;
                    let reach = if receiving.is_new() { Reach::New } else { Reach::Own };
                    touch(context, [&*receiving.target], reach).await
                })
            }
        })
        .await
}

async fn end_sync(context: &mut SyncContext, finish: &Finish) -> Result<()> {
    let Receiving { target, head, id } = &finish.receiving;
    let full = format!("{target}@{}", finish.snapshot);
    name::split_at(&full, '@')?;
    let dataset = readable(context.mos().await?.dataset(target).await?).await?;
    if dataset.snapshot(&finish.snapshot).await?.is_some() {
        return Err(DatasetError::DatasetExists { name: full.as_str().into() });
    }
    if dataset.phys().prev_snapshot_txg >= context.txg() {
        return Err(DatasetError::NextTxg { name: target.as_str().into() });
    }
    context.check_deadlist(dataset.phys().deadlist).await?;
    let details = format!("snap={}", finish.snapshot);
    if !finish.receiving.is_new() {
        let filled = readable(context.mos().await?.dataset(head).await?).await?;
        take_place(context, finish, &dataset, &filled).await?;
        if let Some(keys) = &finish.raw {
            store_again(context, &dataset, keys).await?;
        }
    } else if finish.raw.is_some() {
        // Later opens need the key.
        let quiet = context.quiet(&dataset)?;
        context.close(&quiet);
    }
    context.log_of_dataset((head, ObjectId(id.0)), "finish receiving", &details).await?;
    let id = ObjectId(dataset.id().0);
    let snapshot = make_snapshot(context, id, &finish.snapshot, refreservation(context, id).await?).await?;
    snapshotted(context, id, snapshot).await?;
    note_ivset(context, &dataset, snapshot).await?;
    if let Some(keys) = &finish.raw {
        raw::note_ivset(context, snapshot, keys).await?;
    }
    note_snapshots_changed(context, dataset.dir().id()).await?;
    let mut phys = context.dataset_phys(snapshot).await?;
    phys.creation_time_s = finish.creation_time_s;
    phys.guid = finish.to_guid;
    phys.flags &= !DS_FLAG_INCONSISTENT;
    context.set_dataset_phys(snapshot, &phys).await?;
    let mut phys = context.dataset_phys(id).await?;
    phys.flags &= !DS_FLAG_INCONSISTENT;
    context.set_dataset_phys(id, &phys).await?;
    drop_state(context, id).await?;
    context.log_of_dataset((&full, snapshot), "snapshot", cenote_engine::history::NO_DETAILS).await
}

/// Replaces the target's head with the filled one, and frees the old content.
async fn take_place(
    context: &mut SyncContext,
    finish: &Finish,
    target: &Dataset,
    filled: &Dataset,
) -> Result<()> {
    let (target_id, filled_id) = (ObjectId(target.id().0), ObjectId(filled.id().0));
    let base = filled.phys().prev_snapshot;
    let (mut in_the_way, snapshots) = (Vec::new(), target.snapshots().await?);
    if target.phys().prev_snapshot != base {
        // Later snapshots, oldest first; destroyed in reverse, since each is merged into the next.
        let since = snapshots.iter().position(|snapshot| snapshot.id().0 == base.0);
        let later = snapshots.get(since.map_or(0, |at| at + 1)..).unwrap_or_default();
        if !finish.is_forced {
            let why = format!("destination {} has been modified\nsince most recent snapshot", target.name());
            return Err(DatasetError::unsuitable(target.name(), why));
        }
        for snapshot in later.iter().rev() {
            refuse_if_used(snapshot).await?;
            in_the_way.push((context.withdraw(snapshot)?, snapshot.name().to_owned()));
        }
    }
    let (quiet_target, quiet_filled) = (context.quiet(target)?, context.quiet(filled)?);
    let (gone, since) = (target.phys().bp, filled.phys().prev_snapshot_txg);
    let is_later = frees_in_background(context).await? && !gone.is_hole();
    if !is_later {
        survey_blocks(context, target, since).await?;
    }
    context.check_deadlist(filled.phys().deadlist).await?;
    free_log(context, target, &quiet_target).await?;
    free_log(context, filled, &quiet_filled).await?;
    for (withdrawn, name) in in_the_way {
        remove_snapshot(context, withdrawn, &name).await?;
    }
    for dataset in [target, filled] {
        drop_livelist(context, dataset.dir().id()).await?;
        drop_remapped(context, ObjectId(dataset.id().0)).await?;
    }
    swap(context, filled_id, target_id).await?;
    context.close(&quiet_target);
    context.close(&quiet_filled);
    if !is_later {
        let old = context.mos().await?.dataset_by_id(filled.id()).await?;
        free_blocks(context, &old, since).await?;
    }
    let used = remove_head(context, filled_id).await?;
    if is_later {
        free_tree_later(context, gone, since, used).await?;
    }
    Ok(())
}
