//! Begins an expansion: checks, and the state on disk.
//!
//! Source: OpenZFS `spa.c` (`spa_vdev_attach`), `vdev_raidz.c` (`vdev_raidz_attach_check`,
//! `vdev_raidz_attach_sync`), `libzfs_pool.c` (`zpool_vdev_attach`), including the wording.

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_engine::{Engine, SyncContext};
use cenote_format::dsl::names::vdev_zap;
use cenote_format::label::{LABEL_BYTES, VDEV_BOOT_SIZE, VDEV_LABELS_BYTES, VdevConfig, VdevKind};
use cenote_format::scan::DSS_SCANNING;
use cenote_format::units::{Guid, VdevId};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{DatasetError, Result, ZapEdit};
use cenote_pool::create::NewDevice;
use cenote_pool::{FoundDevice, VdevState, least_leaf_bytes};

use super::{RAIDZ_EXPANSION, expanding};
use crate::pool::checkpoint::refuse_checkpoint;
use crate::pool::create::make_vdev_zaps;
use crate::pool::rebuild::refuse_while_rebuilding;
use crate::pool::take_tree::{refuse_member, refuse_removal, take_tree};
use crate::pool::tree::number;

/// Adds a disk to a RAID-Z. [`run_expansion`](crate::run_expansion) spreads existing data over it.
///
/// # Errors
/// Another expansion or a removal is in progress; a checkpoint exists; feature `raidz_expansion` is disabled;
/// a child is not in use, being replaced or incomplete; the disk is too small, has larger sectors, or fails.
#[boxed]
pub async fn attach_to_raidz(engine: &Engine, vdev: VdevId, device: NewDevice) -> Result<()> {
    let attach = move |engine: Engine| async move {
        // I/O of a previous expansion must have ended.
        engine.pool().tree().earlier_ended().await;
        engine
            .run_on_pool(move |context| Box::pin(async move { attach_sync(context, vdev, device).await }))
            .await?;
        engine.background().expansions.order();
        Ok(())
    };
    engine.to_end(attach).await
}

async fn attach_sync(context: &mut SyncContext, vdev: VdevId, device: NewDevice) -> Result<()> {
    refuse_checkpoint(context).await?;
    refuse_while_rebuilding(context, "currently sequentially resilvering").await?;
    refuse_removal(context)?;
    refuse_member(context, &device.path, None)?;
    let top = check(context, vdev, &device).await?;
    context.begin_writing().await?;
    context.use_feature(RAIDZ_EXPANSION, 1).await?;
    let kind = if device.is_file { VdevKind::File } else { VdevKind::Disk };
    let guid = Guid(context.random().max(1));
    let mut leaf = VdevConfig::new(kind, top.children.len() as u64, guid);
    (leaf.path, leaf.create_txg) = (Some(device.path.clone()), top.create_txg);
    let mut config = context.config().clone();
    for top in config.vdev_tree.children.iter_mut().filter(|top| VdevId(top.id) == vdev) {
        top.children.push(leaf.clone());
        number(&mut top.children);
        top.raidz_expanding = true;
    }
    context.pool().expansion().begin();
    let joining = BTreeMap::from([(guid, FoundDevice::new(device.device))]);
    take_tree(context, config, joining, None).await?;
    make_vdev_zaps(context).await?;
    note_begin(context, vdev).await?;
    let (pool, width) = (context.config().name.clone(), top.children.len() + 1);
    let event = format!("{pool} vdev {vdev} new width {width}");
    context.log_event("raidz vdev expansion started", &event).await?;
    let event = format!("attach vdev={} to vdev=raidz{}-{vdev}", device.path, top.parity);
    context.log_event("vdev attach", &event).await
}

async fn note_begin(context: &SyncContext, vdev: VdevId) -> Result<()> {
    let zap =
        context.config().vdev_tree.children.iter().find(|top| VdevId(top.id) == vdev).map(|t| t.top_zap);
    let zap = zap.filter(|zap| zap.0 != 0).ok_or_else(|| context.damaged("a vdev has no ZAP"))?;
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, zap);
    fields.update(vdev_zap::RAIDZ_EXPAND_STATE, DSS_SCANNING).await?;
    fields.update(vdev_zap::RAIDZ_EXPAND_START_TIME, context.now_s()).await?;
    for of_the_last in [vdev_zap::RAIDZ_EXPAND_END_TIME, vdev_zap::RAIDZ_EXPAND_BYTES_COPIED] {
        if fields.get(of_the_last).await?.is_some() {
            fields.remove(of_the_last).await?;
        }
    }
    Ok(())
}

/// The vdev, if that disk may expand it.
async fn check(context: &SyncContext, vdev: VdevId, new: &NewDevice) -> Result<VdevConfig> {
    let pool = context.pool();
    let refused = |why: &str| Err(DatasetError::unsuitable(pool.name(), why));
    let Some(top) = pool.tree().vdevs().top(vdev).cloned() else { return refused("no such device in pool") };
    if top.kind != VdevKind::Raidz {
        return refused("can only attach to mirrors and top-level disks");
    }
    if FeatureCounts::of(&context.edit()).count(RAIDZ_EXPANSION).await?.is_none() {
        return refused("raidz_expansion feature must be enabled in order to attach a device to raidz");
    }
    if expanding(pool).is_some() {
        return refused("raidz expansion in progress");
    }
    let info = new.device.info();
    let room = (info.size_bytes / LABEL_BYTES * LABEL_BYTES).saturating_sub(VDEV_LABELS_BYTES);
    let least = top.children.first().map_or(0, |child| least_leaf_bytes(&top, child.guid));
    if room < least {
        return refused("device is too small");
    }
    if info.sector_bytes > 1 << top.ashift {
        return refused("The new device cannot have a higher alignment requirement than the top-level vdev.");
    }
    if (top.children.len() as u64 + 1) << top.ashift > VDEV_BOOT_SIZE {
        return refused("the vdev is too wide for its sector size to be expanded");
    }
    let status = pool.status();
    let is_sound = |child: &VdevConfig| {
        let mut state = None;
        status.root.walk(&mut |one| state = state.or((one.guid == child.guid).then_some(one.state)));
        child.is_leaf() && state == Some(VdevState::Online)
    };
    if !top.children.iter().all(is_sound) {
        return refused("raidz vdev has devices that are are offline or being replaced");
    }
    // OpenZFS starts and waits, to no advantage.
    if !top.children.iter().all(|child| pool.tree().vdevs().is_whole(child.guid)) {
        return refused("raidz vdev has devices that lack data; wait for the resilver to end");
    }
    Ok(top)
}
