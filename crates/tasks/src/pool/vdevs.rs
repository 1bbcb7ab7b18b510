//! Vdevs that join a pool, devices that join a mirror and leave it: `zpool add`, `attach`, `detach`.
//!
//! ```text
//!   add      root -> a, b               root -> a, b, NEW              blocks go there from the next txg on
//!   attach   root -> a                  root -> mirror -> a, NEW       what was there before is resilvered
//!   detach   root -> mirror -> a, b     root -> a                   which takes over the mirror's guid, ZAPs
//! ```
//!
//! Idea: a change of the tree of vdevs is one task. From then on everything is written with the new tree. A
//! device that joins a mirror lacks all that was written before: its DTL says so, from the first txg to those
//! that are under way, until a resilver has brought it ([`super::scan`]). The devices' labels, the
//! configuration in the MOS and the uberblock change together, as they do with each txg.
//!
//! Source: OpenZFS `spa.c` (`spa_vdev_add`, `spa_vdev_attach`, `spa_vdev_detach`), `vdev.c`
//! (`vdev_add_parent`, `vdev_remove_parent`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_engine::space::map_edit::SpaceMapEdit;
use cenote_engine::{Engine, SyncContext};
use cenote_format::dsl::names::pool as names;
use cenote_format::label::{LabelConfig, PoolConfig, VDEV_LABELS_BYTES, VdevConfig, VdevKind};
use cenote_format::units::{Guid, ObjectId, TXG_CONCURRENT_STATES, TXG_INITIAL, Txg, VdevId};
use cenote_object::{DatasetError, Result, ZapEdit};
use cenote_pool::FoundDevice;
use cenote_pool::create::{NewDevice, NewTops, NewVdev, plan_vdevs};
use cenote_pool::label::{clear_labels, init_device};

use crate::pool::auxiliary::add_distributed_spares;
use crate::pool::checkpoint::refuse_checkpoint;
use crate::pool::create::{empty_metaslabs, guid_sum, make_vdev_zaps};
use crate::pool::scan::state::begin_resilver;

/// Adds top-level vdevs. What was on their devices is lost; blocks go to them once this returns, as the
/// pool on disk has them.
///
/// # Errors
/// A device is too small or fails; a vdev is being removed; RAID-Z for a pool from which vdevs were
/// removed.
#[boxed]
pub async fn add_vdevs(engine: &Engine, vdevs: Vec<NewVdev>, ashift: Option<u32>) -> Result<()> {
    let add = |engine: Engine| async move {
        let added = engine
            .run(move |context| Box::pin(async move { add_vdevs_sync(context, &vdevs, ashift).await }))
            .await?;
        let vdevs = engine.pool().vdevs();
        for vdev in added.into_iter().filter_map(|id| vdevs.top(id)) {
            engine.allocator().add_vdev(vdev, empty_metaslabs(vdev));
        }
        Ok(())
    };
    engine.to_end(add).await
}

/// Makes a device part of a mirror with the leaf `to`, which is a disk of its own or in a mirror. It lacks
/// everything, as its DTL says, until [`run_scan`](crate::run_scan) has brought it.
///
/// # Errors
/// The leaf is in another kind of vdev; the device is too small, has larger sectors, or fails.
#[boxed]
pub async fn attach(engine: &Engine, to: Guid, device: NewDevice) -> Result<()> {
    let attach = |engine: Engine| async move {
        engine.run(move |context| Box::pin(async move { attach_sync(context, to, &device).await })).await?;
        engine.order_scan();
        Ok(())
    };
    engine.to_end(attach).await
}

/// Takes a device out of a mirror. If it is here, it is part of no pool afterwards.
///
/// # Errors
/// It is in no mirror.
#[boxed]
pub async fn detach(engine: &Engine, leaf: Guid) -> Result<()> {
    let detach = move |engine: Engine| async move {
        let detached = engine.run(move |context| Box::pin(async move { detach_sync(context, leaf).await }));
        if let Some(device) = detached.await? {
            clear_labels(&*device.device).await?;
        }
        Ok(())
    };
    engine.to_end(detach).await
}

/// Answers the numbers of the new vdevs.
async fn add_vdevs_sync(
    context: &mut SyncContext,
    vdevs: &[NewVdev],
    ashift: Option<u32>,
) -> Result<Vec<VdevId>> {
    refuse_removal(context)?;
    let mut config = context.config().clone();
    let has_removed = config.vdev_tree.children.iter().any(|top| top.kind == VdevKind::Indirect);
    if has_removed && vdevs.iter().any(|vdev| vdev.parity > 0) {
        let why = "a pool with removed vdevs does not support adding raidz or dRAID vdevs";
        return Err(DatasetError::unsuitable(&config.name, why));
    }
    let first = config.vdev_tree.children.len() as u64;
    let runtime = context.runtime().clone();
    let at = (first, context.txg());
    let NewTops { configs, devices } = plan_vdevs(&runtime, &config.name, vdevs, ashift, at)?;
    config.vdev_children = Some(first + configs.len() as u64);
    config.vdev_tree.children.extend(configs.iter().cloned());
    take_tree(context, config, devices, None).await?;
    make_vdev_zaps(context).await?;
    context.flush_space_log().await;
    add_distributed_spares(context, &configs).await?;
    Ok(configs.iter().map(|top| VdevId(top.id)).collect())
}

/// Answers the new leaf.
async fn attach_sync(context: &mut SyncContext, to: Guid, new: &NewDevice) -> Result<()> {
    refuse_checkpoint(context).await?;
    refuse_removal(context)?;
    let mut config = context.config().clone();
    let pool = config.name.clone();
    let refused = |why: &str| DatasetError::unsuitable(&pool, why);
    let top = config.vdev_tree.children.iter_mut().find(|top| top.leaves().any(|leaf| leaf.guid == to));
    let top = top.ok_or_else(|| refused("no such device in pool"))?;
    let holds_copies = match top.kind {
        VdevKind::Disk | VdevKind::File => true,
        VdevKind::Mirror => top.children.iter().all(VdevConfig::is_leaf),
        _ => false,
    };
    if !holds_copies {
        return Err(refused("can only attach to mirrors and top-level disks"));
    }
    let info = new.device.info();
    if info.size_bytes.saturating_sub(VDEV_LABELS_BYTES) < top.asize_bytes {
        return Err(refused("device is too small"));
    }
    if info.sector_bytes > 1 << top.ashift {
        return Err(refused("new device has a different optimal sector size; use the option '-o ashift=N'"));
    }
    if top.kind != VdevKind::Mirror {
        let guid = Guid(context.random().max(1));
        put_mirror_above(top, guid);
    }
    let kind = if new.is_file { VdevKind::File } else { VdevKind::Disk };
    let mut leaf = VdevConfig::new(kind, top.children.len() as u64, Guid(context.random().max(1)));
    (leaf.path, leaf.create_txg) = (Some(new.path.clone()), top.create_txg);
    let guid = leaf.guid;
    top.children.push(leaf);
    let device = BTreeMap::from([(guid, FoundDevice::new(new.device.clone()))]);
    let path = path_of(context, to);
    // Whatever is under way may have begun with the old tree.
    let lacking = (TXG_INITIAL, Txg(context.txg().0 + TXG_CONCURRENT_STATES));
    take_tree(context, config, device, Some((guid, lacking))).await?;
    make_vdev_zaps(context).await?;
    begin_resilver(context, lacking).await?;
    context.log_event("vdev attach", &format!("attach vdev={} to vdev={path}", new.path)).await
}

/// Answers its device, if that is here.
async fn detach_sync(context: &mut SyncContext, guid: Guid) -> Result<Option<FoundDevice>> {
    refuse_checkpoint(context).await?;
    refuse_removal(context)?;
    let mut config = context.config().clone();
    let pool = config.name.clone();
    let refused = |why: &str| DatasetError::unsuitable(&pool, why);
    let top = config.vdev_tree.children.iter_mut().find(|top| top.leaves().any(|leaf| leaf.guid == guid));
    let top = top.ok_or_else(|| refused("no such device in pool"))?;
    let is_mirror = top.kind == VdevKind::Mirror && top.children.iter().all(VdevConfig::is_leaf);
    if !is_mirror || top.children.len() < 2 {
        return Err(refused("only applicable to mirror and replacing vdevs"));
    }
    let device = context.pool().device(guid);
    let lagging = context.pool().lagging_leaves();
    let is_whole =
        |leaf: &VdevConfig| context.pool().device(leaf.guid).is_some() && !lagging.contains(&leaf.guid);
    if !top.children.iter().any(|leaf| leaf.guid != guid && is_whole(leaf)) {
        return Err(refused("no valid replicas: no other device of the mirror has all that it holds"));
    }
    let path = path_of(context, guid);
    let (mut gone, rest): (Vec<_>, Vec<_>) =
        std::mem::take(&mut top.children).into_iter().partition(|leaf| leaf.guid == guid);
    top.children = rest;
    for (id, leaf) in (0..).zip(&mut top.children) {
        leaf.id = id;
    }
    let mut renamed = BTreeMap::new();
    if let [only] = &top.children[..] {
        let device = context.pool().device(only.guid);
        renamed.extend(device.map(|device| (top.guid, device)));
        take_out_mirror(top);
    }
    if let Some(gone) = gone.pop() {
        drop_leaf_zap(context, gone.leaf_zap).await?;
        if gone.dtl.0 != 0 {
            SpaceMapEdit::new(&context.edit(), gone.dtl, 0).free().await?;
        }
    }
    take_tree(context, config, renamed, None).await?;
    context.log_event("detach", &format!("vdev={path}")).await?;
    Ok(device)
}

/// The txg is written to this tree of vdevs from now on. Devices that join get labels that belong to no
/// pool yet. `lacking` is a leaf that lacks what was written in some txgs.
pub(crate) async fn take_tree(
    context: &mut SyncContext,
    config: PoolConfig,
    joining: BTreeMap<Guid, FoundDevice>,
    lacking: Option<(Guid, (Txg, Txg))>,
) -> Result<()> {
    for top in &config.vdev_tree.children {
        for leaf in top.leaves().filter(|leaf| context.pool().device(leaf.guid).is_none()) {
            let Some(device) = joining.get(&leaf.guid).filter(|device| device.label_txg == Txg(0)) else {
                continue;
            };
            let label =
                PoolConfig { txg: Txg(0), create_txg: Some(context.txg()), ..config.for_leaf(top, leaf) };
            init_device(&*device.device, &LabelConfig::Member(label)).await?;
        }
    }
    let mut uberblock = *context.pool().uberblock();
    uberblock.guid_sum = guid_sum(&config.vdev_tree);
    let mut tops = config.vdev_tree.children.clone();
    for top in &mut tops {
        // The configuration in the MOS does not say what a vdev is for.
        top.class = context.pool().vdevs().class_of(VdevId(top.id)).unwrap_or(top.class);
    }
    // Before others see the new tree: who has the pool is to be said on all devices that it has on disk.
    context.begin_writing().await?;
    context.pool().set_vdevs(tops, joining, lacking);
    context.write_to(context.pool().at(&uberblock));
    *context.config() = config;
    context.config_has_changed();
    Ok(())
}

/// Gives up the ZAP of a vdev.
pub(crate) async fn drop_leaf_zap(context: &mut SyncContext, zap: ObjectId) -> Result<()> {
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

/// While a vdev is being removed, its copies must find the others as they were.
pub(crate) fn refuse_removal(context: &SyncContext) -> Result<()> {
    let config = context.config();
    match config.vdev_tree.children.iter().any(|top| top.removing) {
        true => {
            Err(DatasetError::unsuitable(&config.name, "a vdev is being removed; wait until that is done"))
        }
        false => Ok(()),
    }
}

/// A disk of its own becomes the only one of a mirror, which takes over what is a top-level vdev's.
fn put_mirror_above(top: &mut VdevConfig, guid: Guid) {
    let mut mirror = VdevConfig { kind: VdevKind::Mirror, guid, children: Vec::new(), ..top.clone() };
    (mirror.path, mirror.devid, mirror.phys_path, mirror.enclosure_path) = (None, None, None, None);
    (mirror.whole_disk, mirror.leaf_zap, mirror.dtl) = (None, ObjectId(0), ObjectId(0));
    let leaf = std::mem::replace(top, mirror);
    top.children.push(VdevConfig { children: Vec::new(), ..as_child(leaf) });
}

/// The only disk that a mirror has left takes its place, and its guid: labels that a detached disk might
/// still have are then of another vdev, and not of another one beside it.
pub(crate) fn take_out_mirror(top: &mut VdevConfig) {
    let Some(leaf) = top.children.pop() else { return };
    let mirror = top.clone();
    *top = VdevConfig {
        guid: mirror.guid,
        id: mirror.id,
        ashift: mirror.ashift,
        asize_bytes: mirror.asize_bytes,
        class: mirror.class,
        metaslab_array: mirror.metaslab_array,
        metaslab_shift: mirror.metaslab_shift,
        top_zap: mirror.top_zap,
        non_allocating: mirror.non_allocating,
        create_txg: mirror.create_txg,
        ..leaf
    };
}

/// Without what is a top-level vdev's.
fn as_child(leaf: VdevConfig) -> VdevConfig {
    VdevConfig {
        id: 0,
        ashift: 0,
        asize_bytes: 0,
        class: Default::default(),
        metaslab_array: ObjectId(0),
        metaslab_shift: 0,
        top_zap: ObjectId(0),
        non_allocating: false,
        ..leaf
    }
}
