//! Watches devices: takes failing or removed ones out of use, and brings returning ones back.
//!
//! ```text
//!   every second     errors of each leaf since the last look
//!     any              labels of another leaf or pool -> UNAVAIL (`validate`)
//!     reads, writes    probe it, even if its errors were cleared meanwhile
//!                      gone -> REMOVED   fails -> FAULTED   works -> counted
//!     slow operations  events (`slow_io_events`); DEGRADED if more than `slow_io_n` in `slow_io_t`, if set
//!     far too slow     sits out reads of its RAID-Z or dRAID, with `autosit=on` (`sitting`)
//!     no answer        for 30 seconds, if the pool is complete without it, or for DEADMAN: FAULTED
//!     wrong content    rewritten (`mend`)
//!     10 in 10 minutes reads, writes -> FAULTED    checksums -> DEGRADED; vdev properties `io_n`, `io_t`,
//!                      `checksum_n`, `checksum_t` set other limits
//!   every 5 seconds  truncated devices -> UNAVAIL, even if never read
//!                    REMOVED and missing leaves: look for their devices; one that is back is
//!                    resilvered
//!                    hot spares step in for failing leaves (`sparing`)
//!                    with autoexpand=on, vdevs use the new space of grown devices (`expand`)
//!                  while the pool is suspended: judge no errors; look for missing devices; when one
//!                    is back, reopen it and resume the pool
//! ```
//!
//! Idea: a single error may be an accident. Only the probe and the error rate count. A leaf with data that no
//! other has is never taken out of use, only degraded. So is a working leaf being replaced.
//!
//! Locking: none. The watch may be dropped at any await: each decision is a sync task.
//!
//! Source: OpenZFS `vdev.c` (`vdev_probe`, `vdev_fault`), ZED's `zfs_diagnosis.c` (`DEFAULT_IO_N`...) and
//! `zfs_retire.c`.

mod sitting;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cenote_engine::{Engine, WeakEngine};
use cenote_format::units::{Guid, ObjectId};
use cenote_object::{Result, Zap};
use cenote_pool::{ErrorCounts, FoundDevice, Pool, Probe, VdevConfig, VdevKind};
use cenote_runtime::Instant;
use futures::future::BoxFuture;

use self::sitting::Sitting;
use crate::pool::expand::autoexpand;
use crate::pool::leaves::{Away, Back, bring_back, degrade, take_out};
use crate::pool::mend::mend;
use crate::pool::sparing::step_in;
use crate::pool::tree::parent_of;
use crate::pool::validate::validate;

/// Interval between checks for errors.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Checks between searches for missing devices, spares and growth.
const LOOKS_FOR_REMOVED: u64 = 5;
/// `DEFAULT_IO_N`, `DEFAULT_IO_T`, `DEFAULT_CHECKSUM_N`, `DEFAULT_CHECKSUM_T`
const DEFAULT_LIMIT: Limit = Limit { errors: 10, within: Duration::from_secs(600) };
/// The vdev property that silences events of slow operations.
const SLOW_IO_EVENTS: &str = "slow_io_events";
/// Times of errors kept for a leaf.
const ERRORS_KEPT: u64 = 10_000;

/// Time to wait for a device that the pool can do without (`zio_slow_io_ms`).
const UNANSWERED_MAX: Duration = Duration::from_secs(30);

/// A device's trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symptom {
    /// Reads or writes failed, and so did the probe.
    ProbeFailed,
    /// Failed reads and writes, with their number.
    Io(u64),
    /// Checksum errors, with their number.
    Checksum(u64),
    /// Its reads take so much longer than others' that it sits them out.
    Slow,
    /// Operations that took `zio_slow_io_ms` or longer, with their number.
    Delays(u64),
}

/// The pool's host.
pub trait Surroundings: Send + Sync + 'static {
    /// Returned devices of these leaves, open for writing.
    fn returning(&self, engine: Engine, leaves: Vec<Guid>) -> BoxFuture<'_, BTreeMap<Guid, FoundDevice>>;

    /// An available hot spare's device, open for writing.
    fn spare(&self, engine: Engine, spare: VdevConfig) -> BoxFuture<'_, Option<FoundDevice>>;

    /// Reports a device's trouble.
    fn noticed(&self, engine: &Engine, leaf: Guid, trouble: Symptom);

    /// Reports unreadable metadata that a txg went on without.
    fn set_aside(&self, engine: &Engine, what: String);
}

/// Watches a pool's devices while its engine lives.
pub async fn keep_healthy(engine: WeakEngine, surroundings: impl Surroundings) {
    let (mut watch, mut sitting, mut was_suspended) = (Watch::default(), Sitting::default(), false);
    let Ok(runtime) = engine.upgrade().map(|engine| engine.runtime().clone()) else { return };
    // Separate, since the watch may wait for a txg that waits for a device.
    let _giving_up = runtime.spawn(give_up_on_silent(engine.clone())).abort_on_drop();
    for look in 1u64.. {
        runtime.sleep(LOOK_INTERVAL).await;
        let Ok(engine) = engine.upgrade() else { return };
        let has_time = look.is_multiple_of(LOOKS_FOR_REMOVED);
        let is_suspended = engine.pool().suspension().suspended().is_some();
        if std::mem::replace(&mut was_suspended, is_suspended) || is_suspended {
            watch.pass_over(&engine);
        }
        if is_suspended {
            if has_time {
                reopen_gone(&engine, &surroundings).await;
            }
            continue;
        }
        let work = async {
            // A failing pool reports errors to its users; failures here are retried.
            watch.look(&engine, &surroundings).await.ok();
            sitting.look(&engine, &surroundings).await.ok();
            mend(&engine).await.ok();
            let aside = engine.pool().read_errors().take_aside();
            aside.into_iter().for_each(|what| surroundings.set_aside(&engine, what));
            if has_time {
                look_for_cut_short(&engine).await.ok();
                look_for_removed(&engine, &surroundings).await.ok();
                step_in(&engine, &surroundings).await.ok();
                autoexpand(&engine).await.ok();
            }
        };
        // Started work continues in its txg.
        engine.suspension().unless(Duration::ZERO, work).await.ok();
    }
}

/// Gives up on devices unresponsive for long, if the pool can do without them.
async fn give_up_on_silent(engine: WeakEngine) {
    let Ok(runtime) = engine.upgrade().map(|engine| engine.runtime().clone()) else { return };
    loop {
        runtime.sleep(LOOK_INTERVAL).await;
        let Ok(pool) = engine.upgrade().map(|engine| engine.pool()) else { return };
        let silent = pool.devices().unanswering().into_iter().filter(|(_, since)| *since >= UNANSWERED_MAX);
        let silent = silent.filter(|(leaf, _)| pool.tree().vdevs().is_expendable(*leaf));
        silent.for_each(|(leaf, _)| pool.devices().give_up_on(leaf));
    }
}

/// Reopens returned devices of a suspended pool in place, since no txg can record their absence.
async fn reopen_gone(engine: &Engine, surroundings: &impl Surroundings) {
    let pool = engine.pool();
    let mut gone = Vec::new();
    for (leaf, _) in pool.counters().errors() {
        if pool.devices().probe(leaf).await == Some(Probe::Gone) {
            gone.push(leaf);
        }
    }
    if gone.is_empty() {
        return;
    }
    let back = surroundings.returning(engine.clone(), gone).await;
    if !back.is_empty() {
        resume_with(engine, back);
    }
}

/// Resumes a suspended pool with returned devices. Devices used elsewhere or lacking a txg stay out.
pub fn resume_with(engine: &Engine, mut devices: BTreeMap<Guid, FoundDevice>) {
    let pool = engine.pool();
    devices.retain(|_, device| device.uberblock_txg >= pool.uberblock().txg);
    if !devices.is_empty() {
        pool.tree().reopen(devices);
    }
    pool.suspension().resume();
}

/// Takes truncated devices out of use if redundancy allows. Reads alone may not notice: the cache may serve
/// them all.
async fn look_for_cut_short(engine: &Engine) -> Result<()> {
    for leaf in engine.pool().devices().cut_short().await {
        validate(engine, Some(leaf)).await?;
    }
    Ok(())
}

/// Brings back leaves whose devices were removed, or missing at open, and have returned.
async fn look_for_removed(engine: &Engine, surroundings: &impl Surroundings) -> Result<()> {
    let pool = engine.pool();
    // In this order, so that a leaf taken out of use meanwhile is not looked for.
    let (found, config) = (pool.tree().found(), pool.tree().config());
    let leaves = config.vdevs.iter().flat_map(VdevConfig::leaves);
    let has_device = |leaf: &&VdevConfig| matches!(leaf.kind, VdevKind::Disk | VdevKind::File);
    let is_away = |leaf: &&VdevConfig| leaf.removed || !found.devices.contains_key(&leaf.guid);
    let is_wanted =
        |leaf: &&VdevConfig| !leaf.offline && !leaf.faulted && !pool.tree().is_set_aside(leaf.guid);
    let away = leaves.filter(has_device).filter(is_away).filter(is_wanted);
    let away: Vec<Guid> = away.map(|leaf| leaf.guid).collect();
    if away.is_empty() {
        return Ok(());
    }
    let devices = surroundings.returning(engine.clone(), away).await;
    for (leaf, device) in devices {
        bring_back(engine, Some(leaf), Back::Reopened, BTreeMap::from([(leaf, device)])).await?;
    }
    Ok(())
}

/// State kept between checks.
#[derive(Default)]
struct Watch {
    leaves: BTreeMap<Guid, Record>,
}

/// A leaf's errors.
#[derive(Default)]
struct Record {
    counts: ErrorCounts,
    io: Recent,
    checksum: Recent,
    slow_ios: u64,
    slow: Recent,
}

/// Times of the last errors.
#[derive(Default)]
struct Recent(VecDeque<Instant>);

/// So many errors within that time are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    errors: u64,
    within: Duration,
}

impl Recent {
    /// Adds new errors; returns whether there are too many.
    fn add(&mut self, count: u64, now: Instant, limit: Limit) -> bool {
        let most = limit.errors.clamp(1, ERRORS_KEPT) as usize;
        let count = usize::try_from(count).unwrap_or(most).min(most);
        self.0.extend(std::iter::repeat_n(now, count));
        while self.0.len() > most || self.0.front().is_some_and(|&then| now - then > limit.within) {
            self.0.pop_front();
        }
        self.0.len() >= most
    }
}

/// Numeric properties of a leaf, else those of its nearest ancestor with them.
async fn properties<const N: usize>(
    engine: &Engine,
    leaf: Guid,
    names: [&str; N],
) -> Result<[Option<u64>; N]> {
    let (mos, mut found) = (engine.mos().await?, [None; N]);
    let config = mos.pool_config();
    let Some(top) = config.vdevs.iter().find(|top| top.leaves().any(|one| one.guid == leaf)) else {
        return Ok(found);
    };
    let own = top.leaves().find(|one| one.guid == leaf).map_or(ObjectId(0), |leaf| leaf.leaf_zap);
    for id in [own, top.top_zap, config.root_zap].into_iter().filter(|id| *id != ObjectId(0)) {
        let zap = Zap::open_id(mos.objset(), id).await?;
        for (name, found) in names.iter().zip(&mut found) {
            *found = found.or(zap.get_u64(name).await?.filter(|number| *number != u64::MAX));
        }
    }
    Ok(found)
}

/// A leaf's limit, or the default.
async fn limit(engine: &Engine, leaf: Guid, names: [&str; 2]) -> Result<Limit> {
    let [errors, seconds] = properties(engine, leaf, names).await?;
    Ok(Limit {
        errors: errors.unwrap_or(DEFAULT_LIMIT.errors),
        within: seconds.map_or(DEFAULT_LIMIT.within, Duration::from_secs),
    })
}

impl Watch {
    /// Ignores errors since the last check: in a suspended pool every device fails, and I/O was retried
    /// repeatedly.
    fn pass_over(&mut self, engine: &Engine) {
        engine.pool().devices().take_suspects();
        for (leaf, counts) in engine.pool().counters().errors() {
            self.leaves.entry(leaf).or_default().counts = counts;
        }
        for (leaf, slow_ios) in engine.pool().counters().slow_ios() {
            self.leaves.entry(leaf).or_default().slow_ios = slow_ios;
        }
    }

    /// Reports slow operations, unless property `slow_io_events` is off. They degrade a leaf only at limits
    /// that were set.
    async fn look_for_delays(&mut self, engine: &Engine, surroundings: &impl Surroundings) -> Result<()> {
        let (pool, now) = (engine.pool(), engine.runtime().now());
        for (leaf, slow_ios) in pool.counters().slow_ios() {
            let record = self.leaves.entry(leaf).or_default();
            let before = std::mem::replace(&mut record.slow_ios, slow_ios);
            if slow_ios < before {
                record.slow = Recent::default();
            }
            let more = if slow_ios < before { slow_ios } else { slow_ios - before };
            if more == 0 {
                continue;
            }
            let names = [SLOW_IO_EVENTS, "slow_io_n", "slow_io_t"];
            let [reports, errors, seconds] = properties(engine, leaf, names).await?;
            if reports == Some(0) {
                continue;
            }
            surroundings.noticed(engine, leaf, Symptom::Delays(more));
            let (Some(errors), Some(seconds)) = (errors, seconds) else { continue };
            let limit = Limit { errors, within: Duration::from_secs(seconds) };
            if record.slow.add(more, now, limit) && pool.tree().device(leaf).is_some() {
                degrade(engine, leaf).await?;
            }
        }
        Ok(())
    }

    async fn look(&mut self, engine: &Engine, surroundings: &impl Surroundings) -> Result<()> {
        let (pool, now) = (engine.pool(), engine.runtime().now());
        let (hung, suspects) = (pool.devices().hung(), pool.devices().take_suspects());
        let counters = pool.counters().errors();
        self.leaves.retain(|leaf, _| counters.iter().any(|(other, _)| other == leaf));
        for (leaf, counts) in counters {
            let record = self.leaves.entry(leaf).or_default();
            let before = std::mem::replace(&mut record.counts, counts);
            let is_cleared = is_cleared(before, counts);
            let before = if is_cleared { ErrorCounts::default() } else { before };
            let io = (counts.read + counts.write).saturating_sub(before.read + before.write);
            let checksum = counts.checksum.saturating_sub(before.checksum);
            if is_cleared {
                (record.io, record.checksum) = Default::default();
            }
            if checksum + io > 0 {
                validate(engine, Some(leaf)).await?;
            }
            if checksum > 0 {
                surroundings.noticed(engine, leaf, Symptom::Checksum(checksum));
                let limit = limit(engine, leaf, ["checksum_n", "checksum_t"]).await?;
                if record.checksum.add(checksum, now, limit) && pool.tree().device(leaf).is_some() {
                    degrade(engine, leaf).await?;
                }
            }
            if io > 0 {
                surroundings.noticed(engine, leaf, Symptom::Io(io));
                let limit = limit(engine, leaf, ["io_n", "io_t"]).await?;
                let is_often = record.io.add(io, now, limit);
                judge(engine, &pool, leaf, is_often, surroundings).await?;
            } else if suspects.contains(&leaf) {
                judge(engine, &pool, leaf, false, surroundings).await?;
            } else if hung.contains(&leaf) {
                put_away(engine, &pool, leaf, Away::Failed).await?;
            }
        }
        self.look_for_delays(engine, surroundings).await
    }
}

/// The counters were reset.
fn is_cleared(before: ErrorCounts, now: ErrorCounts) -> bool {
    now.read < before.read || now.write < before.write || now.checksum < before.checksum
}

/// Judges a leaf after failed reads or writes.
async fn judge(
    engine: &Engine,
    pool: &Pool,
    leaf: Guid,
    is_often: bool,
    surroundings: &impl Surroundings,
) -> Result<()> {
    match pool.devices().probe(leaf).await {
        None => Ok(()),
        Some(Probe::Gone) => put_away(engine, pool, leaf, Away::Removed).await,
        Some(Probe::Fails) => {
            surroundings.noticed(engine, leaf, Symptom::ProbeFailed);
            put_away(engine, pool, leaf, Away::Failed).await
        }
        // The old leaf may have the only readable copy.
        Some(Probe::Works) if is_often && is_replaced(pool, leaf) => degrade(engine, leaf).await,
        Some(Probe::Works) if is_often => put_away(engine, pool, leaf, Away::Failed).await,
        Some(Probe::Works) => Ok(()),
    }
}

/// Whether a leaf is being replaced.
fn is_replaced(pool: &Pool, leaf: Guid) -> bool {
    let config = pool.tree().config();
    let mut parents = config.vdevs.iter().filter_map(|top| parent_of(top, leaf));
    parents.any(|parent| parent.kind == VdevKind::Replacing && parent.children[0].guid == leaf)
}

/// Takes a leaf out of use if the pool can do without it; otherwise degrades it.
async fn put_away(engine: &Engine, pool: &Pool, leaf: Guid, how: Away) -> Result<()> {
    // The tree is not held meanwhile: the leaf closes when released.
    let is_expendable = pool.tree().vdevs().is_expendable(leaf);
    match is_expendable {
        true => take_out(engine, leaf, how).await,
        false => degrade(engine, leaf).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_errors_are_too_many_unless_they_are_long_apart() {
        let second = |n| Instant::default() + Duration::from_secs(n);
        let mut recent = Recent::default();
        let mut add = |count, at| recent.add(count, second(at), DEFAULT_LIMIT);
        assert!(!add(9, 0) && add(1, 600));
        assert!(!add(1, 1201), "all but two are forgotten");
        assert!(add(u64::MAX, 1202));
        let lenient = Limit { errors: 20, ..DEFAULT_LIMIT };
        assert!(!recent.add(9, second(1203), lenient) && recent.add(1, second(1204), lenient));
    }
}
