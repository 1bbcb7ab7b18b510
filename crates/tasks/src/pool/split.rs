//! Splits a pool of mirrors: `zpool split`.
//!
//! ```text
//!   tank  txg 8   mirror a b, mirror c d, log e
//!   tank  txg 9   a, c, log e             b, d: a copy of tank at txg 8, no longer part of it
//!   new   txg 9                           b, d, hole
//! ```
//!
//! Idea: two txgs, one on each half. With the first, devices leave the pool as by `zpool detach`, with a
//! complete copy of the previous txg. The second is written to them alone and makes the copy a new pool, with
//! its own name, guid and tree.
//!
//! After a crash between the two, the pool is intact and the devices count as detached. The same holds during
//! the second txg's label writes: some labels may name a still incomplete new pool. Attaching them again
//! makes them part of the old pool.
//!
//! Source: OpenZFS `spa.c` (`spa_vdev_split_mirror`), `libzfs_pool.c` (`zpool_vdev_split`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_cache::CacheOptions;
use cenote_dataset::ImportOptions;
use cenote_dataset::import::import_at;
use cenote_engine::{Engine, Host, SyncContext};
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::label::{PoolConfig, PoolState, VdevClass, VdevConfig, VdevKind};
use cenote_format::units::{Guid, VdevId};
use cenote_object::{DatasetError, Result, ZapEdit};
use cenote_pool::{FoundPool, LeavesInUse, VdevState};

use crate::pool::checkpoint::refuse_checkpoint;
use crate::pool::settings::{PoolSetting, set_pool_sync};
use crate::pool::take_tree::{drop_leaf, forget_top, path_of, refuse_removal, take_tree};
use crate::pool::tree::{number, take_out_parent};

/// The pool to split off.
#[derive(Debug, Clone)]
pub struct SplitOff {
    /// Its name.
    pub name: String,
    /// One device of each mirror.
    pub leaves: Vec<Guid>,
    /// Its settings.
    pub settings: Vec<PoolSetting>,
    /// The host in its labels.
    pub host: Host,
    /// Cache options while it is made.
    pub cache: CacheOptions,
}

/// Moves one device of each mirror to a new, exported pool and returns its guid. It contains everything done
/// before the call.
///
/// # Errors
/// A vdev other than a log is no mirror, or a device is incomplete. If the devices fail after leaving, they
/// are part of neither pool.
#[boxed]
pub async fn split(engine: &Engine, new: SplitOff) -> Result<Guid> {
    check(engine, &new.leaves)?;
    // Everything, replayed logs included, must be in the previous txg.
    engine.sync_all().await?;
    let leaves = new.leaves.clone();
    let half = engine
        .run_on_pool(move |context| Box::pin(async move { leave_sync(context, &leaves).await }))
        .await?;
    half.in_use.ended().await;
    let guid = Guid(engine.runtime().random_u64().max(1));
    found(engine, half, new, guid).await?;
    Ok(guid)
}

/// The removed devices and the state on them.
struct Half {
    found: FoundPool,
    in_use: LeavesInUse,
}

/// Checks made before anything is written.
fn check(engine: &Engine, leaves: &[Guid]) -> Result<()> {
    let pool = engine.pool();
    let config = pool.tree().config();
    let refused = |why: &str| DatasetError::unsuitable(pool.name(), why);
    let mut meant = 0;
    for top in config.vdevs.iter().filter(|top| is_split(top)) {
        let is_mirror = top.kind == VdevKind::Mirror && top.children.iter().all(VdevConfig::is_leaf);
        if !is_mirror {
            return Err(refused("Source pool must be composed only of mirrors"));
        }
        match top.children.iter().filter(|leaf| leaves.contains(&leaf.guid)).count() {
            1 => meant += 1,
            _ => return Err(refused("Device list must include at most one disk from each mirror")),
        }
    }
    if meant != leaves.len() || meant == 0 {
        return Err(refused("Device list must include at most one disk from each mirror"));
    }
    let lagging = pool.lacking().lagging();
    let mut offline = None;
    pool.status().root.walk(&mut |vdev| {
        if leaves.contains(&vdev.guid) && vdev.state != VdevState::Online {
            offline = Some(format!("{} is {}", vdev.name, vdev.state));
        }
    });
    if let Some(why) = offline {
        return Err(refused(&why));
    }
    match leaves.iter().all(|leaf| pool.tree().vdevs().can_spare(*leaf) && !lagging.contains(leaf)) {
        true => Ok(()),
        false => Err(refused("pool is busy: a mirror is not whole, or is being resilvered")),
    }
}

/// Whether one device of a top-level vdev moves.
fn is_split(top: &VdevConfig) -> bool {
    top.class != VdevClass::Log && !matches!(top.kind, VdevKind::Hole | VdevKind::Indirect)
}

/// Removes the devices from the pool.
async fn leave_sync(context: &mut SyncContext, leaves: &[Guid]) -> Result<Half> {
    refuse_checkpoint(context).await?;
    refuse_removal(context)?;
    let pool = context.pool().clone();
    let mut found = FoundPool::clone(&pool.tree().found());
    found.config = cenote_pool::PoolConfig::clone(&pool.tree().config());
    found.devices.retain(|leaf, _| leaves.contains(leaf));
    found.uberblocks = vec![*pool.uberblock()];
    let in_use = pool.tree().in_use(leaves);
    let mut config = context.config().clone();
    let (mut renamed, mut gone) = (BTreeMap::new(), Vec::new());
    for top in &mut config.vdev_tree.children {
        let (leaving, staying): (Vec<_>, Vec<_>) =
            std::mem::take(&mut top.children).into_iter().partition(|leaf| leaves.contains(&leaf.guid));
        top.children = staying;
        if leaving.is_empty() {
            continue;
        }
        number(&mut top.children);
        if let [only] = &top.children[..] {
            renamed.extend(pool.tree().device(only.guid).map(|device| (top.guid, device)));
            take_out_parent(top, true);
        }
        gone.extend(leaving);
    }
    let paths: Vec<String> = gone.iter().map(|leaf| path_of(context, leaf.guid)).collect();
    for leaf in &gone {
        drop_leaf(context, leaf).await?;
    }
    take_tree(context, config, renamed, None).await?;
    for path in paths {
        context.log_event("detach", &format!("vdev={path}")).await?;
    }
    Ok(Half { found, in_use })
}

/// Makes the removed devices their own pool.
async fn found(engine: &Engine, half: Half, new: SplitOff, guid: Guid) -> Result<()> {
    let Half { found, .. } = half;
    let uberblock = found.uberblocks[0];
    let options = ImportOptions { cache: new.cache, ..ImportOptions::default() };
    let mos = import_at(engine.runtime(), &found, &uberblock, &options).await?;
    // Heads of encrypted datasets are written with their keys.
    for (root, key) in engine.keys().known().await {
        mos.keyring().learn(root, key).await;
    }
    let half = Engine::start_without_logs(&mos).await?;
    half.run(move |context| Box::pin(async move { become_pool(context, new, guid).await })).await
}

async fn become_pool(context: &mut SyncContext, new: SplitOff, guid: Guid) -> Result<()> {
    let old = context.config().clone();
    let mut config = PoolConfig {
        name: new.name,
        pool_guid: guid,
        split_guid: Some(old.pool_guid),
        state: PoolState::Exported,
        hostid: new.host.hostid(),
        hostname: Some(new.host.name.clone()),
        ..old.clone()
    };
    config.vdev_tree.guid = guid;
    let classes = context.pool().tree().vdevs();
    for top in &mut config.vdev_tree.children {
        top.class = classes.class_of(VdevId(top.id)).unwrap_or(top.class);
    }
    let mut gone = Vec::new();
    for top in config.vdev_tree.children.iter_mut().filter(|top| top.kind != VdevKind::Indirect) {
        let (own, others): (Vec<_>, Vec<_>) =
            top.leaves().cloned().partition(|leaf| new.leaves.contains(&leaf.guid));
        gone.extend(others);
        match own.into_iter().next() {
            Some(leaf) => become_top(top, leaf),
            None if top.kind == VdevKind::Hole => {}
            None => {
                forget_top(context, top).await?;
                *top = VdevConfig::new(VdevKind::Hole, top.id, Guid(0));
            }
        }
    }
    for leaf in &gone {
        drop_leaf(context, leaf).await?;
    }
    while config.vdev_tree.children.last().is_some_and(|top| top.kind == VdevKind::Hole) {
        config.vdev_tree.children.pop();
    }
    let tops = &config.vdev_tree.children;
    config.vdev_children = Some(tops.len() as u64);
    config.hole_array =
        tops.iter().filter(|top| top.kind == VdevKind::Hole).map(|top| VdevId(top.id)).collect();
    for list in [names::SPARES, names::L2CACHE] {
        drop_list(context, list).await?;
    }
    context.pool().tree().set_guid(guid);
    take_tree(context, config, BTreeMap::new(), None).await?;
    context.flush_space_log().await;
    for setting in new.settings {
        set_pool_sync(context, setting).await?;
    }
    context.log_event("split", &format!("from pool {}", old.name)).await
}

/// Puts a leaf in its mirror's place.
fn become_top(top: &mut VdevConfig, leaf: VdevConfig) {
    *top = VdevConfig {
        id: top.id,
        ashift: top.ashift,
        asize_bytes: top.asize_bytes,
        class: top.class,
        metaslab_array: top.metaslab_array,
        metaslab_shift: top.metaslab_shift,
        top_zap: top.top_zap,
        non_allocating: top.non_allocating,
        create_txg: top.create_txg,
        ..leaf
    };
}

/// Removes a list of auxiliary devices.
async fn drop_list(context: &mut SyncContext, name: &str) -> Result<()> {
    let Some(list) = context.find_directory_object(name).await? else { return Ok(()) };
    let edit = context.edit();
    edit.destroy(list).await?;
    ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).remove(name).await
}
