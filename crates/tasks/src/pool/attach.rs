//! Devices that join a leaf: `zpool attach`, `replace`, `evacuate`, and hot spares.
//!
//! ```text
//!   attach    a   ->  mirror -> a, NEW             two copies
//!   replace   a   ->  replacing -> a, NEW          until NEW is resilvered; then a leaves (`detach`)
//!   evacuate  a   ->  the same, and a is read before all others
//!   spare     a   ->  spare -> a, SPARE            until a is back or replaced; then SPARE leaves
//! ```
//!
//! Idea: all put a vdev above a leaf, below which every leaf holds the same data, so reads, writes and
//! resilvers treat them alike. It may be a top-level vdev or a child of a mirror, RAID-Z or dRAID. The new
//! device's DTL covers all txgs from the first to those in flight, until a resilver fills it
//! ([`super::scan`], [`super::rebuild`]).
//!
//! If the new device has the old one's path, the old path becomes `PATH/old`, where nothing is found.
//!
//! Source: OpenZFS `spa.c` (`spa_vdev_attach`), `libzfs_pool.c` (`zpool_vdev_attach`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_engine::{Engine, SyncContext};
use cenote_format::label::{LABEL_BYTES, PoolConfig, VDEV_LABELS_BYTES, VdevClass, VdevConfig, VdevKind};
use cenote_format::units::{Guid, TXG_CONCURRENT_STATES, TXG_INITIAL, Txg, VdevId};
use cenote_object::{DatasetError, Result};
use cenote_pool::create::NewDevice;
use cenote_pool::{FoundDevice, least_leaf_bytes};

use crate::pool::checkpoint::refuse_checkpoint;
use crate::pool::create::make_vdev_zaps;
use crate::pool::rebuild::{self, Resilver, refuse_sequential, refuse_while_rebuilding};
use crate::pool::scan::state::{begin_resilver, defers, note_deferred};
use crate::pool::take_tree::{path_of, refuse_member, refuse_removal, take_tree};
use crate::pool::tree::{number, parent_mut, parent_of, put_above, top_of};

/// `SPA_VERSION_MULTI_REPLACE`: a replacing device may be replaced, too.
const MULTI_REPLACE: u64 = 26;

/// Attaches a device to the leaf `to`: a top-level disk or part of a mirror. Its DTL stays full until
/// [`run_scan`](crate::run_scan) or [`run_rebuild`](crate::run_rebuild) fills the device.
///
/// # Errors
/// The leaf is in another kind of vdev; the device is too small, has larger sectors, or fails; a resilver of
/// the other kind is running.
#[boxed]
pub async fn attach(engine: &Engine, to: Guid, device: NewDevice, resilver: Resilver) -> Result<()> {
    join(engine, to, Newcomer::Attached(device), resilver).await
}

/// Replaces a leaf, which leaves once [`run_scan`](crate::run_scan) has filled the new device.
///
/// # Errors
/// The device is too small, has larger sectors, or fails; the leaf is a spare in use.
#[boxed]
pub async fn replace(engine: &Engine, old: Guid, device: NewDevice, resilver: Resilver) -> Result<()> {
    join(engine, old, Newcomer::Replacement(device), resilver).await
}

/// Replaces a leaf that still works. The resilver reads it first, and other devices where it fails. It
/// receives all writes meanwhile, so redundancy never drops.
///
/// # Errors
/// The leaf is not in use or lacks data itself; those of [`replace`].
#[boxed]
pub async fn evacuate(engine: &Engine, old: Guid, device: NewDevice) -> Result<()> {
    let pool = engine.pool();
    if !pool.tree().vdevs().is_whole(old) {
        let why = "it is not in use, or lacks data itself; use 'zpool replace'";
        return Err(DatasetError::unsuitable(pool.name(), why));
    }
    pool.devices().set_read_first(old, true);
    let joined = join(engine, old, Newcomer::Replacement(device), Resilver::Healing).await;
    if joined.is_err() {
        pool.devices().set_read_first(old, false);
    }
    joined
}

/// Puts a hot spare in the place of a leaf. `device` is the spare's; a distributed spare has none.
///
/// # Errors
/// The spare is in use, belongs to another dRAID, or is too small; the leaf is a log's.
#[boxed]
pub async fn spare_in(
    engine: &Engine,
    old: Guid,
    spare: Guid,
    device: Option<FoundDevice>,
    resilver: Resilver,
) -> Result<()> {
    join(engine, old, Newcomer::Spare(spare, device, Stay::UntilDetached), resilver).await
}

/// Like [`spare_in`], but automatic, for a failing leaf: the spare leaves when the leaf is back.
pub(crate) async fn stand_in(
    engine: &Engine,
    old: Guid,
    spare: Guid,
    device: Option<FoundDevice>,
) -> Result<()> {
    join(engine, old, Newcomer::Spare(spare, device, Stay::UntilBack), Resilver::Healing).await
}

/// How long a spare stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stay {
    UntilDetached,
    /// Until the leaf is in use again and complete.
    UntilBack,
}

/// A device that joins, and how.
enum Newcomer {
    Attached(NewDevice),
    Replacement(NewDevice),
    Spare(Guid, Option<FoundDevice>, Stay),
}

impl Newcomer {
    /// The kind of vdev to put above the leaf and the newcomer.
    fn above(&self) -> VdevKind {
        match self {
            Newcomer::Attached(_) => VdevKind::Mirror,
            Newcomer::Replacement(_) => VdevKind::Replacing,
            Newcomer::Spare(..) => VdevKind::Spare,
        }
    }

    fn is_spare(&self) -> bool {
        matches!(self, Newcomer::Spare(..))
    }

    /// The newcomer's leaf and device.
    fn into_leaf(self, context: &SyncContext) -> Result<(VdevConfig, Option<FoundDevice>)> {
        match self {
            Newcomer::Attached(new) | Newcomer::Replacement(new) => {
                let kind = if new.is_file { VdevKind::File } else { VdevKind::Disk };
                let mut leaf = VdevConfig::new(kind, 0, Guid(context.random().max(1)));
                leaf.path = Some(new.path);
                Ok((leaf, Some(FoundDevice::new(new.device))))
            }
            Newcomer::Spare(guid, device, _) => {
                let config = context.pool().tree().config();
                let spare = config.spares.iter().find(|spare| spare.guid == guid).cloned();
                let missing = || DatasetError::unsuitable(context.pool().name(), "no such device in pool");
                Ok((spare.ok_or_else(missing)?, device))
            }
        }
    }

    fn event(&self) -> (&'static str, &'static str) {
        match self {
            Newcomer::Attached(_) => ("attach", "to"),
            Newcomer::Replacement(_) => ("replace", "for"),
            Newcomer::Spare(..) => ("spare in", "for"),
        }
    }
}

async fn join(engine: &Engine, leaf: Guid, newcomer: Newcomer, resilver: Resilver) -> Result<()> {
    let join = move |engine: Engine| async move {
        let task = engine.run_on_pool(move |context| {
            Box::pin(async move { join_sync(context, leaf, newcomer, resilver).await })
        });
        task.await?;
        engine.background().scans.order();
        engine.background().rebuilds.order();
        Ok(())
    };
    engine.to_end(join).await
}

async fn join_sync(
    context: &mut SyncContext,
    old: Guid,
    newcomer: Newcomer,
    resilver: Resilver,
) -> Result<()> {
    refuse_checkpoint(context).await?;
    match resilver {
        Resilver::Healing => refuse_while_rebuilding(context, "currently sequentially resilvering").await?,
        Resilver::Sequential => {
            let is_attached = matches!(newcomer, Newcomer::Attached(_));
            refuse_sequential(context, old, is_attached).await?;
        }
    }
    refuse_removal(context)?;
    let mut config = context.config().clone();
    check_place(context, &config, old, &newcomer)?;
    match &newcomer {
        Newcomer::Attached(new) => refuse_member(context, &new.path, None)?,
        Newcomer::Replacement(new) => refuse_member(context, &new.path, Some(old))?,
        Newcomer::Spare(..) => {}
    }
    let (above, (verb, preposition)) = (newcomer.above(), newcomer.event());
    let leaves_by_itself = matches!(newcomer, Newcomer::Spare(.., Stay::UntilBack));
    let (mut new, device) = newcomer.into_leaf(context)?;
    if let Some(device) = &device {
        check_fit(&config, old, device)?;
    }
    let missing = || DatasetError::unsuitable(context.pool().name(), "no such device in pool");
    let parent = parent_mut(&mut config.vdev_tree, old).ok_or_else(missing)?;
    let at = parent.children.iter().position(|child| child.guid == old).ok_or_else(missing)?;
    step_aside(&mut parent.children[at], &new);
    // A degraded leaf is in use; it does not count as back until cleared.
    parent.children[at].unspare |= leaves_by_itself && !parent.children[at].degraded;
    new.create_txg = parent.children[at].create_txg;
    match resilver {
        Resilver::Healing => new.resilver_txg = context.txg(),
        Resilver::Sequential => new.rebuild_txg = context.txg(),
    }
    new.resilver_defer = resilver == Resilver::Healing && defers(context).await?;
    let (guid, path, is_deferred) = (new.guid, new.path.clone().unwrap_or_default(), new.resilver_defer);
    let siblings = match parent.kind == above {
        true => &mut parent.children,
        false => {
            put_above(&mut parent.children[at], above, Guid(context.random().max(1)));
            &mut parent.children[at].children
        }
    };
    siblings.push(new);
    number(siblings);
    // I/O in flight may still use the old tree.
    let lacking = (TXG_INITIAL, Txg(context.txg().0 + TXG_CONCURRENT_STATES));
    let joining: BTreeMap<_, _> = device.into_iter().map(|device| (guid, device)).collect();
    take_tree(context, config, joining, Some((guid, lacking))).await?;
    make_vdev_zaps(context).await?;
    match resilver {
        Resilver::Healing if is_deferred => note_deferred(context).await?,
        Resilver::Healing => begin_resilver(context, lacking).await?,
        Resilver::Sequential => rebuild::begin(context, guid, lacking).await?,
    }
    let old = path_of(context, old);
    context.log_event("vdev attach", &format!("{verb} vdev={path} {preposition} vdev={old}")).await
}

/// Checks whether the newcomer may join there.
fn check_place(context: &SyncContext, config: &PoolConfig, old: Guid, newcomer: &Newcomer) -> Result<()> {
    const IN_PLACE: &str = "already in replacing/spare config; wait for completion or use 'zpool detach'";
    let refused = |why: &str| Err(DatasetError::unsuitable(context.pool().name(), why));
    let leaf = config.vdev_tree.leaves().find(|leaf| leaf.guid == old);
    let (Some(leaf), Some(parent), Some(top)) =
        (leaf, parent_of(&config.vdev_tree, old), top_of(&config.vdev_tree, old))
    else {
        return refused("no such device in pool");
    };
    let takes_copies = matches!(parent.kind, VdevKind::Mirror | VdevKind::Root);
    let is_spared = parent.kind == VdevKind::Spare;
    match newcomer {
        Newcomer::Attached(_) if takes_copies => Ok(()),
        Newcomer::Attached(_) => refused("can only attach to mirrors and top-level disks"),
        Newcomer::Spare(..)
            if context.pool().tree().vdevs().class_of(VdevId(top.id)) == Some(VdevClass::Log) =>
        {
            refused("cannot replace a log with a spare")
        }
        Newcomer::Replacement(_) if is_spared && leaf.is_spare => {
            refused("can only be replaced by another hot spare")
        }
        _ if parent.kind == VdevKind::Replacing && config.version < MULTI_REPLACE => {
            refused("cannot replace a replacing device")
        }
        _ if is_spared && newcomer.is_spare() != leaf.is_spare => refused(IN_PLACE),
        Newcomer::Spare(spare, ..) => {
            let above = parent_of(&config.vdev_tree, parent.guid);
            let is_replaced = parent.kind == VdevKind::Replacing;
            if is_replaced && above.is_some_and(|above| above.kind == VdevKind::Spare) {
                return refused(IN_PLACE);
            }
            if config.vdev_tree.leaves().any(|leaf| leaf.guid == *spare) {
                return refused("the spare is in use");
            }
            let pool = context.pool().tree().config();
            let of = pool.spares.iter().find(|one| one.guid == *spare).and_then(|one| one.top_guid);
            match of.is_none_or(|of| of == top.guid) {
                true => Ok(()),
                false => refused("dRAID spares can only replace child devices in their parent's dRAID vdev"),
            }
        }
        Newcomer::Replacement(_) => Ok(()),
    }
}

/// Checks whether the device can hold a leaf's data.
fn check_fit(config: &PoolConfig, old: Guid, device: &FoundDevice) -> Result<()> {
    let refused = |why: &str| Err(DatasetError::unsuitable(&config.name, why));
    let Some(top) = top_of(&config.vdev_tree, old) else { return refused("no such device in pool") };
    let info = device.device.info();
    let room = (info.size_bytes / LABEL_BYTES * LABEL_BYTES).saturating_sub(VDEV_LABELS_BYTES);
    match () {
        () if room < least_leaf_bytes(top, old) => refused("device is too small"),
        () if info.sector_bytes > 1 << top.ashift => {
            refused("new device has a different optimal sector size; use the option '-o ashift=N'")
        }
        () => Ok(()),
    }
}

/// Renames the old leaf's path if the new one has the same.
fn step_aside(old: &mut VdevConfig, new: &VdevConfig) {
    if old.path.is_some() && old.path == new.path {
        old.path = old.path.as_ref().map(|path| format!("{path}/old"));
        old.devid = None;
    }
}
