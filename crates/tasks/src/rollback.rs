//! Rolls back to the last snapshot: `zfs rollback`.
//!
//! Blocks written since are freed, and the head starts again from the snapshot's tree with an empty deadlist.
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_dataset_rollback_sync`, `dsl_dataset_clone_swap_sync_impl`).

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, name};
use cenote_engine::account::Account;
use cenote_engine::livelist::drop_livelist;
use cenote_engine::logs::{free_log, without_log};
use cenote_engine::store::space_delta::SpaceDelta;
use cenote_engine::{Engine, Quiet, Reach, SpaceCheck, SyncContext};
use cenote_format::units::{ObjectId, Txg};
use cenote_object::{DatasetError, Result};

use crate::destroy::{drop_features, free_blocks, survey_blocks};
use crate::make::copy_features;
use crate::remapped::drop_remapped;
use crate::set::refreservation;
use crate::touch::touch;
use crate::whole::readable;

/// Rolls a closed dataset back to its last snapshot, `pool/a@s`.
///
/// # Errors
/// The snapshot is not the last or exceeds the refquota, the dataset is open, or a block to free is
/// unreadable.
#[boxed]
pub async fn rollback(engine: &Engine, snapshot: &str) -> Result<()> {
    engine
        .run_when_quiet(SpaceCheck::Reserved, || {
            let snapshot = snapshot.to_owned();
            move |context| {
                Box::pin(async move {
                    rollback_sync(context, &snapshot).await?;
                    touch(context, [&*snapshot], Reach::Own).await
                })
            }
        })
        .await
}

pub(crate) async fn rollback_sync(context: &mut SyncContext, full: &str) -> Result<()> {
    let (head, snapshot, quiet) = check_rollback(context, full).await?;
    let dead = context.all_dead_space(head.phys().deadlist).await?;
    free_log(context, &head, &quiet).await?;
    free_blocks(context, &head, snapshot.creation_txg()).await?;
    return_to(context, &head, &snapshot, dead).await?;
    drop_livelist(context, head.dir().id()).await?;
    drop_remapped(context, ObjectId(head.id().0)).await?;
    context.close(&quiet);
    without_log(context, head.id()).await?;
    let details = format!("parent={}", head.name().rsplit('/').next().unwrap_or_default());
    context.log_of_dataset((head.name(), ObjectId(head.id().0)), "clone swap", &details).await
}

/// Checks a rollback; returns the head, the snapshot, and proof that the head is unused.
pub(crate) async fn check_rollback(context: &SyncContext, full: &str) -> Result<(Dataset, Dataset, Quiet)> {
    let (path, _) = name::split_at(full, '@')?;
    let mos = context.mos().await?;
    let (snapshot, head) = (mos.dataset(full).await?, readable(mos.dataset(path).await?).await?);
    if head.phys().prev_snapshot.0 != snapshot.id().0 {
        let why = "is not the last snapshot; destroy the later ones first (-r does that)";
        return Err(DatasetError::unsuitable(full, why));
    }
    match head.setting("refquota").await? {
        refquota if refquota > 0 && snapshot.phys().referenced_bytes > refquota => {
            let (needed_bytes, available_bytes) = (snapshot.phys().referenced_bytes, refquota);
            return Err(DatasetError::NoSpace { name: path.into(), needed_bytes, available_bytes });
        }
        _ => {}
    }
    let quiet = context.quiet(&head)?;
    // The head's next blocks would share the snapshot's birth txg: traversals would take them for the
    // snapshot's, and they would leak.
    if head.phys().prev_snapshot_txg >= context.txg() {
        return Err(DatasetError::NextTxg { name: full.into() });
    }
    survey_blocks(context, &head, snapshot.creation_txg()).await?;
    context.check_deadlist(head.phys().deadlist).await?;
    Ok((head, snapshot, quiet))
}

async fn return_to(
    context: &mut SyncContext,
    head: &Dataset,
    snapshot: &Dataset,
    dead: SpaceDelta,
) -> Result<()> {
    let id = ObjectId(head.id().0);
    let reserved = refreservation(context, id).await?;
    let (mut phys, to) = (context.dataset_phys(id).await?, *snapshot.phys());
    // Written since = referenced now + dead since - referenced then.
    let change = |now: u64, then: u64, dead: i64| then as i64 - now as i64 - dead;
    let freed = SpaceDelta {
        used: change(phys.referenced_bytes, to.referenced_bytes, dead.used),
        compressed: change(phys.compressed_bytes, to.compressed_bytes, dead.compressed),
        uncompressed: change(phys.uncompressed_bytes, to.uncompressed_bytes, dead.uncompressed),
    };
    let origin_txg = context.origin_txg(phys.dir).await?;
    let in_snapshots = context.dead_space(phys.deadlist, origin_txg, Txg(u64::MAX)).await?;
    context.use_space(phys.dir, freed, Account::Head).await?;
    context.transfer(phys.dir, -in_snapshots.used, Account::Head, Account::Snapshots).await?;
    let held_back = SpaceDelta { used: phys.unique_bytes.min(reserved) as i64, ..SpaceDelta::default() };
    context.use_space(phys.dir, held_back, Account::Refreservation).await?;

    let keys_of = phys.deadlist;
    phys.deadlist = context.clone_deadlist(keys_of, Txg(u64::MAX)).await?;
    context.free_deadlist(keys_of).await?;
    phys.bp = to.bp;
    phys.referenced_bytes = to.referenced_bytes;
    phys.compressed_bytes = to.compressed_bytes;
    phys.uncompressed_bytes = to.uncompressed_bytes;
    phys.unique_bytes = 0;
    context.set_dataset_phys(id, &phys).await?;
    drop_features(context, id).await?;
    copy_features(context, ObjectId(snapshot.id().0), id).await?;
    // The head shares every block of the snapshot again.
    let mut shared = context.dataset_phys(phys.prev_snapshot).await?;
    shared.unique_bytes = 0;
    context.set_dataset_phys(phys.prev_snapshot, &shared).await
}
