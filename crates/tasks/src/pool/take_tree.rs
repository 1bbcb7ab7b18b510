//! Changes the vdev tree.
//!
//! Idea: a change of the tree is one task. All later writes use it. Labels, the MOS's configuration and the
//! uberblock change together, as in every txg.
//!
//! Source: OpenZFS `spa_misc.c` (`spa_vdev_exit`), `vdev.c`.

use std::collections::{BTreeMap, BTreeSet};

use cenote_engine::SyncContext;
use cenote_engine::space::map_edit::SpaceMapEdit;
use cenote_format::dsl::names::{pool as names, vdev_zap};
use cenote_format::label::{LabelConfig, PoolConfig, VdevConfig};
use cenote_format::units::{Guid, ObjectId, Txg, VdevId};
use cenote_object::{DatasetError, Result, ZapEdit};
use cenote_pool::alloc::Allocator;
use cenote_pool::label::init_device;
use cenote_pool::{FoundDevice, Pool, VdevClass, VdevState};

/// Writes this txg with a new vdev tree. New devices get labels of no pool for now. A leaf whose guid changes
/// keeps its labels until this txg's replace them, so it is still found after a power cut. `lacking` is a
/// leaf with the txgs it lacks.
pub(crate) async fn take_tree(
    context: &mut SyncContext,
    config: PoolConfig,
    joining: BTreeMap<Guid, FoundDevice>,
    lacking: Option<(Guid, (Txg, Txg))>,
) -> Result<()> {
    for top in &config.vdev_tree.children {
        for leaf in top.leaves().filter(|leaf| context.pool().tree().device(leaf.guid).is_none()) {
            let is_new =
                |device: &&FoundDevice| device.label_txg == Txg(0) && !context.pool().tree().holds(device);
            let Some(device) = joining.get(&leaf.guid).filter(is_new) else { continue };
            let label =
                PoolConfig { txg: Txg(0), create_txg: Some(context.txg()), ..config.for_leaf(top, leaf) };
            init_device(&*device.device, &LabelConfig::Member(label)).await?;
        }
    }
    let mut uberblock = *context.pool().uberblock();
    uberblock.guid_sum = guid_sum(&config.vdev_tree);
    let mut tops = config.vdev_tree.children.clone();
    for top in &mut tops {
        // The MOS's configuration lacks the vdevs' classes.
        top.class = context.pool().tree().vdevs().class_of(VdevId(top.id)).unwrap_or(top.class);
    }
    // Before the new tree takes effect, all devices of the tree on disk must be labeled as in use by this
    // host.
    context.begin_writing().await?;
    let logs_before = usable_logs(context.pool());
    context.pool().tree().set_vdevs(tops, joining, lacking);
    follow_logs(&logs_before, context.pool(), context.allocator());
    context.write_to(context.pool().at(&uberblock));
    *context.config() = config;
    context.config_has_changed();
    Ok(())
}

/// Refuses a new device at a path where a device of the pool is open, other than that of the leaf `but`. Two
/// commands that began at once may both have found it free.
pub(crate) fn refuse_member(context: &SyncContext, path: &str, but: Option<Guid>) -> Result<()> {
    let tree = context.pool().tree();
    let (config, found) = (tree.config(), tree.found());
    let is_open = |leaf: &VdevConfig| {
        found.devices.contains_key(&leaf.guid) || found.auxiliary.contains_key(&leaf.guid)
    };
    let leaves =
        config.vdevs.iter().flat_map(VdevConfig::leaves).chain(&config.spares).chain(&config.l2cache);
    let mut others = leaves.filter(|leaf| Some(leaf.guid) != but);
    let has_joined = others.any(|leaf| leaf.path.as_deref() == Some(path) && is_open(leaf));
    match has_joined {
        true => Err(DatasetError::unsuitable(&config.name, format!("{path} is part of it already"))),
        false => Ok(()),
    }
}

/// Log vdevs that can be written.
pub(crate) fn usable_logs(pool: &Pool) -> BTreeSet<VdevId> {
    let tops = pool.status().root.children;
    let usable = tops.iter().filter(|top| top.class == VdevClass::Log && top.state >= VdevState::Degraded);
    usable.map(|top| VdevId(top.id)).collect()
}

/// Starts allocating on log vdevs that have become usable since `before`, and stops on those no longer
/// usable.
pub(crate) fn follow_logs(before: &BTreeSet<VdevId>, pool: &Pool, allocator: &Allocator) {
    let now = usable_logs(pool);
    for log in now.symmetric_difference(before) {
        allocator.set_allocates(*log, now.contains(log));
    }
}

/// Frees a removed leaf's objects in the MOS.
pub(crate) async fn drop_leaf(context: &mut SyncContext, leaf: &VdevConfig) -> Result<()> {
    drop_zap(context, leaf.leaf_zap).await?;
    match leaf.dtl {
        ObjectId(0) => Ok(()),
        dtl => SpaceMapEdit::new(&context.edit(), dtl, 0).free().await,
    }
}

/// Frees a removed top-level vdev's objects in the MOS, except its leaves'.
pub(crate) async fn forget_top(context: &mut SyncContext, top: &VdevConfig) -> Result<()> {
    if top.top_zap.0 != 0 {
        forget_unflushed(context, top.top_zap).await?;
        drop_zap(context, top.top_zap).await?;
    }
    context.forget_vdev(VdevId(top.id)).await
}

/// Drops the record of unflushed space maps of a removed top-level vdev.
pub(crate) async fn forget_unflushed(context: &SyncContext, top_zap: ObjectId) -> Result<()> {
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, top_zap);
    match fields.get(vdev_zap::MS_UNFLUSHED_PHYS_TXGS).await?.and_then(|value| value.as_u64()) {
        Some(array) => {
            edit.destroy(ObjectId(array)).await?;
            fields.remove(vdev_zap::MS_UNFLUSHED_PHYS_TXGS).await
        }
        None => Ok(()),
    }
}

/// Frees a vdev's ZAP.
async fn drop_zap(context: &mut SyncContext, zap: ObjectId) -> Result<()> {
    if zap.0 == 0 {
        return Ok(());
    }
    let edit = context.edit();
    edit.destroy(zap).await?;
    match context.find_directory_object(names::VDEV_ZAP_MAP).await? {
        Some(map) => ZapEdit::new(&edit, map).remove(format!("{:x}", zap.0).as_str()).await,
        None => Ok(()),
    }
}

pub(crate) fn path_of(context: &SyncContext, leaf: Guid) -> String {
    let config = context.config();
    let found = config.vdev_tree.walk().find(|vdev| vdev.guid == leaf);
    found.and_then(|vdev| vdev.path.clone()).unwrap_or_else(|| leaf.to_string())
}

/// A removal's copies need the other vdevs unchanged.
pub(crate) fn refuse_removal(context: &SyncContext) -> Result<()> {
    let config = context.config();
    match config.vdev_tree.children.iter().any(|top| top.removing) {
        true => {
            Err(DatasetError::unsuitable(&config.name, "a vdev is being removed; wait until that is done"))
        }
        false => Ok(()),
    }
}

/// `ub_guid_sum`: the sum of all vdevs' guids.
pub(crate) fn guid_sum(root: &VdevConfig) -> u64 {
    root.walk().fold(0, |sum: u64, vdev| sum.wrapping_add(vdev.guid.0))
}
