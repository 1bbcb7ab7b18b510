//! Makes directories, heads and snapshots in the syncing txg.
//!
//! Source: OpenZFS `dsl_dir.c` (`dsl_dir_create_sync`), `dsl_dataset.c` (`dsl_dataset_create_sync_dd`,
//! `dsl_dataset_snapshot_sync_impl`).

use cenote_dataset::mos::ORIGIN_DIR_NAME;
use cenote_engine::SyncContext;
use cenote_engine::account::Account;
use cenote_engine::store::space_delta::SpaceDelta;
use cenote_format::Phys;
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::dir_field;
use cenote_format::dsl::{DS_FLAG_CI_DATASET, DS_FLAG_INCONSISTENT, DS_FLAG_UNIQUE_ACCURATE, DslDatasetPhys};
use cenote_format::features::{Feature, Since};
use cenote_format::units::{Guid, ObjectId, TXG_INITIAL, Txg};
use cenote_object::zap::fold;
use cenote_object::{NewObject, NewZap, Result, Zap, ZapEdit};

use crate::counts::count;
use crate::mark::keys_since;
use crate::remapped::hand_down_remapped;

/// The origin's recorded creation txg: before any other.
const ORIGIN_TXG: Txg = Txg(1);

/// Makes directory `name` below `parent` and counts it there; without a parent, the root of the tree.
pub(crate) async fn make_dir(
    context: &mut SyncContext,
    parent: Option<ObjectId>,
    name: &str,
) -> Result<ObjectId> {
    let id = context.make_dir(parent, name).await?;
    if let Some(parent) = parent.filter(|_| !is_temporary(name)) {
        count(context, parent, dir_field::FILESYSTEM_COUNT, 1).await?;
    }
    Ok(id)
}

/// Whether a directory only serves a receive. Limits do not count it.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with('%')
}

/// Gives a directory a head: a clone of the snapshot `origin`, or empty.
pub(crate) async fn make_head(
    context: &mut SyncContext,
    dir: ObjectId,
    origin: Option<ObjectId>,
    flags: u64,
) -> Result<ObjectId> {
    let edit = context.edit();
    let normalized = NewZap::of(ObjectType::DSL_DS_SNAP_MAP).normalized(fold::U8_TEXTPREP_TOUPPER);
    let txg = context.txg();
    let mut phys = DslDatasetPhys {
        dir,
        flags: flags | DS_FLAG_UNIQUE_ACCURATE,
        fsid_guid: context.new_fsid(),
        guid: Guid(context.random()),
        snapshot_names_zap: normalized.create(&edit).await?,
        creation_time_s: context.now_s(),
        creation_txg: if txg == TXG_INITIAL { ORIGIN_TXG } else { txg },
        ..DslDatasetPhys::zeroed()
    };
    let new = NewObject::of(ObjectType::DSL_DATASET);
    let id = edit.create(&new.bonus(ObjectType::DSL_DATASET, phys.encode(Endian::NATIVE))).await?;
    phys.deadlist = match origin {
        None => context.make_deadlist().await?,
        Some(origin) => descend(context, id, &mut phys, origin).await?,
    };
    context.set_dataset_phys(id, &phys).await?;
    let mut dir_phys = context.dir_phys(dir).await?;
    dir_phys.head_dataset = id;
    dir_phys.origin = origin.unwrap_or_default();
    context.set_dir_phys(dir, &dir_phys).await?;
    Ok(id)
}

/// Makes a new head a clone of a snapshot; returns its deadlist.
async fn descend(
    context: &mut SyncContext,
    id: ObjectId,
    phys: &mut DslDatasetPhys,
    origin: ObjectId,
) -> Result<ObjectId> {
    let edit = context.edit();
    let mut from = context.dataset_phys(origin).await?;
    phys.prev_snapshot = origin;
    phys.prev_snapshot_txg = from.creation_txg;
    phys.referenced_bytes = from.referenced_bytes;
    phys.compressed_bytes = from.compressed_bytes;
    phys.uncompressed_bytes = from.uncompressed_bytes;
    phys.bp = from.bp;
    phys.flags |= from.flags & (DS_FLAG_INCONSISTENT | DS_FLAG_CI_DATASET);
    copy_features(context, origin, id).await?;

    from.num_children += 1;
    if context.has(Since::Origin) {
        if from.next_clones_zap.0 == 0 {
            from.next_clones_zap = NewZap::of(ObjectType::NEXT_CLONES).create(&edit).await?;
        }
        add_number(&ZapEdit::new(&edit, from.next_clones_zap), id).await?;
    }
    context.set_dataset_phys(origin, &from).await?;
    let mut origin_dir = context.dir_phys(from.dir).await?;
    if context.has(Since::Deadlists) {
        if origin_dir.clones_zap.0 == 0 {
            origin_dir.clones_zap = NewZap::of(ObjectType::DSL_CLONES).create(&edit).await?;
            context.set_dir_phys(from.dir, &origin_dir).await?;
        }
        add_number(&ZapEdit::new(&edit, origin_dir.clones_zap), id).await?;
    }
    let head = context.dataset_phys(origin_dir.head_dataset).await?;
    context.clone_deadlist(head.deadlist, from.creation_txg).await
}

/// Takes a snapshot of a head that this txg has already written.
pub(crate) async fn make_snapshot(
    context: &mut SyncContext,
    head: ObjectId,
    name: &str,
    reserved_bytes: u64,
) -> Result<ObjectId> {
    let edit = context.edit();
    let mut phys = context.dataset_phys(head).await?;
    let txg = if name == ORIGIN_DIR_NAME { ORIGIN_TXG } else { context.txg() };
    let snapshot = DslDatasetPhys {
        fsid_guid: context.new_fsid(),
        guid: Guid(context.random()),
        next_snapshot: head,
        snapshot_names_zap: ObjectId(0),
        num_children: 1,
        creation_time_s: context.now_s(),
        creation_txg: txg,
        // The head shares every block.
        unique_bytes: 0,
        next_clones_zap: ObjectId(0),
        props_zap: ObjectId(0),
        userrefs_zap: ObjectId(0),
        ..phys
    };
    let new = NewObject::of(ObjectType::DSL_DATASET);
    let id = edit.create(&new.bonus(ObjectType::DSL_DATASET, snapshot.encode(Endian::NATIVE))).await?;
    count(context, phys.dir, dir_field::SNAPSHOT_COUNT, 1).await?;
    copy_features(context, head, id).await?;
    hand_down_remapped(context, head, id).await?;
    if phys.prev_snapshot.0 != 0 {
        let mut previous = context.dataset_phys(phys.prev_snapshot).await?;
        if previous.next_snapshot == head {
            previous.next_snapshot = id;
            context.set_dataset_phys(phys.prev_snapshot, &previous).await?;
        } else if previous.next_clones_zap.0 != 0 {
            let clones = ZapEdit::new(&edit, previous.next_clones_zap);
            remove_number(&clones, head).await?;
            add_number(&clones, id).await?;
        }
    }
    // The snapshot keeps the deadlist; the head's refreservation is charged again for the shared bytes.
    let charged = phys.unique_bytes.min(reserved_bytes) as i64;
    context
        .use_space(phys.dir, SpaceDelta { used: charged, ..SpaceDelta::default() }, Account::Refreservation)
        .await?;
    phys.deadlist = context.clone_deadlist(phys.deadlist, Txg(u64::MAX)).await?;
    context.add_deadlist_key(phys.deadlist, phys.prev_snapshot_txg).await?;
    for key in keys_since(context, head, phys.prev_snapshot_txg).await? {
        context.add_deadlist_key(phys.deadlist, key).await?;
    }
    phys.prev_snapshot = id;
    phys.prev_snapshot_txg = txg;
    phys.unique_bytes = 0;
    phys.flags |= DS_FLAG_UNIQUE_ACCURATE;
    context.set_dataset_phys(head, &phys).await?;
    ZapEdit::new(&edit, phys.snapshot_names_zap).add(name, id.0).await?;
    Ok(id)
}

/// Copies a dataset's per-dataset features to its copy.
pub(crate) async fn copy_features(context: &mut SyncContext, from: ObjectId, to: ObjectId) -> Result<()> {
    let view = context.edit().view();
    if !view.head(from).await?.object_type.is_zap() {
        return Ok(());
    }
    for entry in Zap::open_id(&view, from).await?.to_vec().await? {
        if let Some(feature) = Feature::by_guid(&entry.name_text()).filter(|feature| feature.per_dataset) {
            context.activate_feature(to, feature, entry.value).await?;
        }
    }
    Ok(())
}

/// Adds to a set of numbers (`zap_add_int`).
pub(crate) async fn add_number(zap: &ZapEdit<'_>, id: ObjectId) -> Result<()> {
    zap.add(&format!("{:x}", id.0), id.0).await
}

/// Removes from a set of numbers (`zap_remove_int`).
pub(crate) async fn remove_number(zap: &ZapEdit<'_>, id: ObjectId) -> Result<()> {
    zap.remove(&format!("{:x}", id.0)).await
}
