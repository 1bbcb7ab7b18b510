//! Swaps two heads of one snapshot: tree, deadlist, sizes, and the features of the tree.
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_dataset_clone_swap_sync_impl`).

use cenote_engine::SyncContext;
use cenote_engine::account::Account;
use cenote_engine::store::space_delta::SpaceDelta;
use cenote_format::dsl::DslDatasetPhys;
use cenote_format::features::Feature;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::{Result, Zap, ZapValue};

use crate::destroy::drop_features;
use crate::pool::scan::state as scan;
use crate::set::refreservation;

/// Swaps the contents of a clone and the head it replaces. Both are closed and directly follow the same
/// snapshot.
pub(super) async fn swap(context: &mut SyncContext, clone: ObjectId, head: ObjectId) -> Result<()> {
    let (mut of_clone, mut of_head) = (context.dataset_phys(clone).await?, context.dataset_phys(head).await?);
    swap_features(context, clone, head).await?;
    if of_clone.prev_snapshot.0 != 0 {
        let mut base = context.dataset_phys(of_clone.prev_snapshot).await?;
        let dead = context.dead_space(of_clone.deadlist, base.prev_snapshot_txg, Txg(u64::MAX)).await?;
        base.unique_bytes = dead.used.max(0) as u64;
        context.set_dataset_phys(of_clone.prev_snapshot, &base).await?;
    }
    let more = holds(context, &of_clone).await? + -holds(context, &of_head).await?;
    context.use_space(of_head.dir, more, Account::Head).await?;
    context.use_space(of_clone.dir, -more, Account::Head).await?;
    let origin_txg = context.origin_txg(of_head.dir).await?;
    let clones = context.dead_space(of_clone.deadlist, origin_txg, Txg(u64::MAX)).await?;
    let heads = context.dead_space(of_head.deadlist, origin_txg, Txg(u64::MAX)).await?;
    context.transfer(of_head.dir, clones.used - heads.used, Account::Head, Account::Snapshots).await?;
    let reserved = refreservation(context, head).await?;
    let held_back = reserved.min(of_head.unique_bytes) as i64 - reserved.min(of_clone.unique_bytes) as i64;
    let held_back = SpaceDelta { used: held_back, ..SpaceDelta::default() };
    context.use_space(of_head.dir, held_back, Account::Refreservation).await?;

    std::mem::swap(&mut of_clone.bp, &mut of_head.bp);
    std::mem::swap(&mut of_clone.deadlist, &mut of_head.deadlist);
    std::mem::swap(&mut of_clone.referenced_bytes, &mut of_head.referenced_bytes);
    std::mem::swap(&mut of_clone.compressed_bytes, &mut of_head.compressed_bytes);
    std::mem::swap(&mut of_clone.uncompressed_bytes, &mut of_head.uncompressed_bytes);
    std::mem::swap(&mut of_clone.unique_bytes, &mut of_head.unique_bytes);
    context.set_dataset_phys(clone, &of_clone).await?;
    context.set_dataset_phys(head, &of_head).await?;
    scan::swapped(context, clone, head).await?;
    let name = context.mos().await?.dataset_by_id(cenote_format::units::DatasetId(head.0)).await?;
    let details = format!("parent={}", name.name().rsplit('/').next().unwrap_or_default());
    context.log_of_dataset((name.name(), head), "clone swap", &details).await
}

/// Space referenced by a head or on its deadlist.
async fn holds(context: &SyncContext, head: &DslDatasetPhys) -> Result<SpaceDelta> {
    let referenced = SpaceDelta {
        used: head.referenced_bytes as i64,
        compressed: head.compressed_bytes as i64,
        uncompressed: head.uncompressed_bytes as i64,
    };
    Ok(referenced + context.all_dead_space(head.deadlist).await?)
}

async fn swap_features(context: &mut SyncContext, clone: ObjectId, head: ObjectId) -> Result<()> {
    let (of_clone, of_head) = (features(context, clone).await?, features(context, head).await?);
    drop_features(context, clone).await?;
    drop_features(context, head).await?;
    for (feature, value) in of_clone {
        context.activate_feature(head, feature, value).await?;
    }
    for (feature, value) in of_head {
        context.activate_feature(clone, feature, value).await?;
    }
    Ok(())
}

async fn features(context: &SyncContext, id: ObjectId) -> Result<Vec<(&'static Feature, ZapValue)>> {
    let view = context.edit().view();
    if !view.dnode(id).await?.object_type.is_zap() {
        return Ok(Vec::new());
    }
    let entries = Zap::open_id(&view, id).await?.to_vec().await?;
    let per_dataset = |entry: cenote_object::ZapEntry| {
        let feature = Feature::by_guid(&entry.name_text()).filter(|feature| feature.per_dataset)?;
        Some((feature, entry.value))
    };
    Ok(entries.into_iter().filter_map(per_dataset).collect())
}
