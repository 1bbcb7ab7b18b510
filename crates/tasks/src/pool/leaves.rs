//! Leaves that go out of use and come back: `zpool offline`, `online`, `clear`, `reopen`, and decisions of
//! [`super::health`].
//!
//! ```text
//!            offline                     online
//!   ONLINE -----------------> OFFLINE  ---------------> ONLINE, incomplete by its DTL --resilver--> ONLINE
//!      |---- fault, errors -> FAULTED  -- clear ------>
//!      |---- pulled out ----> REMOVED  -- online, clear, reopen, by itself -->
//!      '---- not found, ----> UNAVAIL  -- reopen, online, clear ----->
//!            not its own
//! ```
//!
//! Idea: a leaf out of use stays in the tree without a device; its DTL collects the txgs it misses. It can
//! come back with its old data, and a resilver adds the rest. Its device is closed, so it can be unplugged.
//! No leaf goes out of use whose data the others lack.
//!
//! Source: OpenZFS `vdev.c` (`vdev_offline`, `vdev_fault`, `vdev_online`, `vdev_clear`), `vdev_reopen`.

use std::collections::BTreeMap;
use std::time::Duration;

use cenote_boxed::boxed;
use cenote_engine::{Engine, SyncContext};
use cenote_format::label::{ERR_EXCEEDED, EXTERNAL, VdevKind};
use cenote_format::units::{Guid, TXG_CONCURRENT_STATES, TXG_INITIAL, Txg};
use cenote_object::{DatasetError, Result};
use cenote_pool::{FoundDevice, Identity, Trouble};

use crate::pool::expand::autoexpand;
use crate::pool::take_tree::{follow_logs, take_tree, usable_logs};
use crate::pool::tree::parent_of;

/// How often to check whether a leaving leaf still answers.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Why a leaf goes out of use, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Away {
    /// Until brought online.
    Offline,
    /// Until brought online or the pool is reopened.
    OfflineForNow,
    /// Until cleared.
    Faulted,
    /// Failing: until cleared or the pool is reopened.
    Failed,
    /// Its device is gone: until found again.
    Removed,
    /// Its labels belong to another leaf or pool (`validate`): until its own device is found.
    Refuted,
}

impl Away {
    /// Whether a user asked for it.
    fn is_on_purpose(self) -> bool {
        matches!(self, Away::Offline | Away::OfflineForNow | Away::Faulted)
    }
}

/// How leaves come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    /// An offline leaf.
    Online,
    /// A faulted leaf, too; resets error counts.
    Cleared,
    /// Leaves whose devices were missing.
    Reopened,
}

/// Takes a leaf out of use, unless it is already.
///
/// # Errors
/// No such leaf, or other devices lack some of its data.
#[boxed]
pub async fn take_out(engine: &Engine, leaf: Guid, how: Away) -> Result<()> {
    let pool = engine.pool();
    let log = pool.tree().vdevs().log_of(leaf).filter(|_| !pool.tree().vdevs().can_spare(leaf));
    let take_out = move |engine: Engine| async move {
        // Stop allocating on the log; a txg covers its existing records before it leaves.
        log.iter().for_each(|log| engine.allocator().set_allocates(*log, false));
        let done = async {
            if log.is_some() {
                engine.logs().end().await?;
            }
            engine.run_on_pool(move |context| Box::pin(take_out_sync(context, leaf, how))).await
        };
        let done = done.await;
        if let (Some(log), Err(_)) = (log, &done) {
            engine.allocator().set_allocates(log, true);
        }
        done
    };
    let mut done = std::pin::pin!(engine.to_end(take_out));
    loop {
        if let Ok(done) = engine.runtime().timeout(LOOK_INTERVAL, &mut done).await {
            return done;
        }
        // The txg is waiting for it.
        let is_silent = pool.devices().unanswering().iter().any(|(other, _)| *other == leaf);
        if is_silent && pool.tree().vdevs().is_expendable(leaf) {
            pool.devices().give_up_on(leaf);
        }
    }
}

/// Brings one leaf, or all, back into use with their reopened `devices`. A resilver fills their gaps.
///
/// # Errors
/// No such leaf; a txg could not be written.
#[boxed]
pub async fn bring_back(
    engine: &Engine,
    only: Option<Guid>,
    how: Back,
    mut devices: BTreeMap<Guid, FoundDevice>,
) -> Result<()> {
    let bring = move |engine: Engine| async move {
        // A truncated device would be taken out again.
        devices
            .retain(|leaf, device| !engine.pool().devices().is_cut_short(*leaf, device.device.size_bytes()));
        // It may have been used elsewhere, or be a copy.
        for (leaf, device) in &mut devices {
            *device = engine.pool().devices().compare_with_siblings(*leaf, device.clone()).await;
        }
        let task = async move |context: &mut SyncContext| bring_back_sync(context, only, how, devices).await;
        let logs_before = usable_logs(&engine.pool());
        engine.run_on_pool(move |context| Box::pin(task(context))).await?;
        if how == Back::Cleared {
            engine.pool().counters().clear(only);
        }
        follow_logs(&logs_before, &engine.pool(), engine.allocator());
        if how == Back::Online {
            autoexpand(&engine).await?;
        }
        engine.background().scans.order();
        engine.background().passes.order();
        Ok(())
    };
    engine.to_end(bring).await
}

/// Marks a frequently failing leaf as degraded; it stays in use.
///
/// # Errors
/// No such leaf; a txg could not be written.
#[boxed]
pub async fn degrade(engine: &Engine, leaf: Guid) -> Result<()> {
    engine.run_on_pool(move |context| Box::pin(async move { degrade_sync(context, leaf).await })).await
}

async fn degrade_sync(context: &mut SyncContext, guid: Guid) -> Result<()> {
    let mut config = context.config().clone();
    let missing = || DatasetError::unsuitable(context.pool().name(), "no such device in pool");
    let leaf = config.vdev_tree.leaf_mut(guid).ok_or_else(missing)?;
    if leaf.is_taken_out() || leaf.degraded {
        return Ok(());
    }
    (leaf.degraded, leaf.aux_state) = (true, Some(ERR_EXCEEDED.into()));
    take_tree(context, config, BTreeMap::new(), None).await
}

async fn take_out_sync(context: &mut SyncContext, guid: Guid, how: Away) -> Result<()> {
    let mut config = context.config().clone();
    let refused = |why: &str| DatasetError::unsuitable(context.pool().name(), why);
    // No label is being written now: they are as the last txg left them.
    let identity = if how == Away::Refuted { context.pool().devices().identity(guid).await } else { None };
    let leaf = config.vdev_tree.leaf_mut(guid).ok_or_else(|| refused("no such device in pool"))?;
    if leaf.is_taken_out() || context.pool().tree().is_set_aside(guid) {
        return Ok(());
    }
    if leaf.kind == VdevKind::DistributedSpare && how.is_on_purpose() {
        return Err(refused("operation not supported on this type of device"));
    }
    if !context.pool().tree().vdevs().is_expendable(guid) {
        return Err(refused("no valid replicas"));
    }
    match how {
        Away::Offline => leaf.offline = true,
        Away::OfflineForNow => context.pool().tree().set_aside(guid, true),
        Away::Faulted => (leaf.faulted, leaf.aux_state) = (true, Some(EXTERNAL.into())),
        Away::Failed => (leaf.faulted, leaf.aux_state) = (true, Some(ERR_EXCEEDED.into())),
        Away::Removed => leaf.removed = true,
        Away::Refuted => match identity.clone() {
            Some(Identity::Refuted(why)) => context.pool().tree().refuse_device(guid, why),
            _ => return Ok(()),
        },
    }
    // Writes of txgs in flight are never flushed there. For a truncated device the missing part is unknown.
    let is_cut_short = identity == Some(Identity::Refuted(Trouble::TooSmall));
    let first = if is_cut_short { TXG_INITIAL } else { context.txg() };
    let lacking = (guid, (first, Txg(context.txg().0 + TXG_CONCURRENT_STATES)));
    take_tree(context, config, BTreeMap::new(), Some(lacking)).await
}

async fn bring_back_sync(
    context: &mut SyncContext,
    only: Option<Guid>,
    how: Back,
    mut devices: BTreeMap<Guid, FoundDevice>,
) -> Result<()> {
    let mut config = context.config().clone();
    let guids: Vec<Guid> = config.vdev_tree.leaves().map(|leaf| leaf.guid).collect();
    if only.is_some_and(|only| !guids.contains(&only)) {
        return Err(DatasetError::unsuitable(context.pool().name(), "no such device in pool"));
    }
    let (mut has_changed, missed) = (!devices.is_empty(), context.pool().lacking().all());
    let mut lacking = Vec::new();
    for guid in guids.into_iter().filter(|guid| only.is_none_or(|only| only == *guid)) {
        let above = parent_of(&config.vdev_tree, guid);
        let is_spared =
            above.is_some_and(|above| above.kind == VdevKind::Spare && above.children[0].guid == guid);
        let Some(leaf) = config.vdev_tree.leaf_mut(guid) else { continue };
        let before = leaf.clone();
        let was_away =
            leaf.is_taken_out() || context.pool().tree().is_set_aside(guid) || devices.contains_key(&guid);
        if was_away && missed.contains_key(&guid) {
            // A scan that began earlier has passed over blocks without this leaf.
            lacking.push((guid, (context.txg(), context.txg())));
        }
        if let Some(device) = devices.get(&guid).filter(|device| device.stale) {
            let log = missed.get(&guid).map_or(&[][..], |log| log);
            let first = device.may_lack(log, context.txg()).first().map(|run| run.0);
            lacking.extend(first.map(|first| (guid, (first, context.txg()))));
        }
        if devices.contains_key(&guid) {
            leaf.removed = false;
        }
        // Unless it was offlined on purpose, its spare leaves when complete.
        leaf.unspare |= is_spared
            && match how {
                Back::Reopened => devices.contains_key(&guid),
                Back::Online => was_away && !before.offline && !context.pool().tree().is_set_aside(guid),
                Back::Cleared => !before.offline,
            };
        if how == Back::Online {
            leaf.offline = false;
            has_changed |= context.pool().tree().is_set_aside(guid);
            context.pool().tree().set_aside(guid, false);
        }
        if how == Back::Cleared && !leaf.offline {
            (leaf.faulted, leaf.degraded, leaf.aux_state) = (false, false, None);
        }
        has_changed |= *leaf != before;
    }
    if !has_changed {
        return Ok(());
    }
    // From here on their missing txgs are in the DTL.
    devices.values_mut().for_each(|device| device.stale = false);
    take_tree(context, config.clone(), devices, lacking.pop()).await?;
    for more in lacking {
        take_tree(context, config.clone(), BTreeMap::new(), Some(more)).await?;
    }
    Ok(())
}
