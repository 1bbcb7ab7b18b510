//! Heartbeats of a pool in use (multihost protection, MMP), and the end of its use if they fail.
//!
//! ```text
//!   first change --> stake --> beats: a leaf in turn, each `interval / leaves` -----> close: stopped
//!                                |  none landed for fail intervals
//!                                '--> fence shut, pool suspended, engine stopped: no write leaves any more
//! ```
//!
//! Idea: a task writes heartbeats while the engine lives, the property `multihost` is on, and the pool is
//! being changed. Each that lands extends the lease of the pool's fence, as does each txg. The task stops the
//! engine when nothing landed for `fail_intervals` intervals, and the fence refuses writes from then on even
//! if the task runs late.
//!
//! Time counts from the beginning of a heartbeat that landed: a process stopped right after one, which wakes
//! up when another machine has the pool, finds its lease ended. OpenZFS counts from its completion.
//!
//! A pool that waits for its devices keeps its heartbeats, and goes on without a check if they work again in
//! time; OpenZFS stops heartbeats, and checks for other machines when the pool is resumed.
//!
//! Storage with its own locks (RBD) tells the fence that another machine has broken one. The engine then
//! stops likewise, with or without heartbeats.
//!
//! A refused command changes nothing, so heartbeats begin with the first change. The stake
//! (`cenote_pool::multihost`) finds changes that another machine made until then.
//!
//! Locking: one mutex, held for one look or change.
//!
//! Source: OpenZFS `mmp.c` (`mmp_thread`, `mmp_delay_update`), `uberblock.c` (`uberblock_update`).

pub(crate) mod state;

use std::sync::{Arc, Weak};
use std::time::Duration;

use cenote_format::uberblock::Uberblock;
use cenote_format::units::Guid;
use cenote_object::{DatasetError, Result};
use cenote_pool::label::NoLeaf;
use cenote_pool::multihost::{MultihostSettings, Stake};
use cenote_runtime::{Instant, Watcher};

use crate::context::SyncContext;
use crate::engine::{Engine, Shared};
use state::{Multihost, nanos};

pub use state::{BeatCounts, BeatRecord};

/// `MMP_MIN_INTERVAL`: after a change of the tunables, heartbeats tell others soon.
const SOON: Duration = Duration::from_millis(100);
/// How long the end of a pool's use waits for its last heartbeats.
const LAST_BEATS: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

impl Multihost {
    /// A txg's uberblock, begun at that moment, counts as a heartbeat.
    pub(crate) fn synced(&self, engine: &Shared, began: Instant) {
        let leaves = leaves(engine);
        let mut state = self.state.lock();
        state.landed(&self.settings, began, self.runtime.now(), leaves);
        if std::mem::take(&mut state.is_ending) {
            (state.is_on, state.delay_ns) = (false, 0);
        }
        drop(state);
        self.extend(engine);
    }

    /// In the syncing txg. Heartbeats go on until others can see that they end.
    fn set_on(&self, engine: &Arc<Shared>, is_on: bool) {
        let mut state = self.state.lock();
        state.is_ending = state.is_on && !is_on;
        if is_on && !state.is_on {
            (state.is_on, state.delay_ns) = (true, nanos(self.settings.interval()));
            (state.sure, state.landed) = (self.runtime.now(), self.runtime.now());
        }
        drop(state);
        self.go_on(engine);
    }

    /// Before the first change. Nothing is written after an error.
    pub(crate) async fn begin(&self, engine: &Shared) -> Result<()> {
        let is_on = self.state.lock().is_on;
        let staked = match self.stake.get().filter(|_| is_on) {
            Some(stake) => Some(stake.take(&self.settings).await?),
            None => None,
        };
        let leaves = leaves(engine);
        let mut state = self.state.lock();
        if let Some((_, beat)) = staked {
            state.stamp = (beat.timestamp_s, beat.mmp_seq().unwrap_or(0));
        }
        let sure = staked.map_or_else(|| self.runtime.now(), |(sure, _)| sure);
        (state.is_beating, state.sure, state.landed) = (true, sure, sure);
        state.follow(&self.settings, leaves);
        drop(state);
        self.extend(engine);
        Ok(())
    }

    /// Lets the task go on, which begins with the property.
    pub(crate) fn go_on(&self, engine: &Arc<Shared>) {
        let is_due = {
            let state = self.state.lock();
            state.is_on && state.is_beating
        };
        let mut task = self.task.lock();
        if is_due && task.is_none() {
            let beating = keep_beating(Arc::downgrade(engine), self.orders.watch());
            *task = Some(self.runtime.spawn(beating).abort_on_drop());
        }
        drop(task);
        self.order();
    }

    async fn end(&self, engine: &Shared) {
        self.state.lock().is_beating = false;
        self.task.lock().take();
        // One that a device holds back is older than the next owner's uberblocks.
        let began = self.runtime.now();
        while !self.state.lock().pending.is_empty() && self.runtime.now() - began < LAST_BEATS {
            self.runtime.sleep(LOOK_INTERVAL).await;
        }
        self.extend(engine);
    }

    /// Writes may pass for as long as the pool is known to be ours.
    fn extend(&self, engine: &Shared) {
        let Some(fence) = engine.on_disk.read().pool.tree().found().fence.clone() else { return };
        let state = self.state.lock();
        let is_bounded = state.is_on && state.is_beating && !state.patience.is_zero();
        fence.lease(is_bounded.then(|| state.sure + state.patience));
    }
}

fn leaves(engine: &Shared) -> u32 {
    u32::try_from(engine.on_disk.read().pool.labels().beat_leaves()).unwrap_or(u32::MAX)
}

async fn keep_beating(engine: Weak<Shared>, mut orders: Watcher<u64>) {
    loop {
        let Some(shared) = engine.upgrade() else { return };
        let runtime = shared.runtime.clone();
        let wait = step(&shared);
        drop(shared);
        let woken = match wait {
            Some(wait) => runtime.timeout(wait, orders.changed()).await.unwrap_or(Ok(())),
            None => orders.changed().await,
        };
        if woken.is_err() {
            return;
        }
    }
}

/// Begins a heartbeat if one is due, or stops an engine that had none for too long. Returns the time to the
/// next; `None`: none is due.
fn step(engine: &Arc<Shared>) -> Option<Duration> {
    let multihost = &engine.multihost;
    let pool = engine.on_disk.read().pool.clone();
    let (now, now_s) = (engine.runtime.now(), engine.runtime.unix_time_ns() / 1_000_000_000);
    let leaves = leaves(engine);
    let (leaf, stamp, id, interval) = {
        let mut state = multihost.state.lock();
        if !state.is_beating {
            return None;
        }
        state.follow(&multihost.settings, leaves);
        if !state.is_on {
            drop(state);
            multihost.extend(engine);
            return None;
        }
        if !state.patience.is_zero() && now - state.sure > state.patience {
            state.is_beating = false;
            let silent = now - state.sure;
            drop(state);
            let ms = silent.as_millis();
            stop(engine, &format!("multihost heartbeats have not succeeded for {ms} ms"));
            return None;
        }
        let interval = match std::mem::take(&mut state.soon) {
            0 => multihost.settings.interval(),
            more => {
                state.soon = more - 1;
                SOON
            }
        };
        let next = pool.labels().next_to_beat(state.last_leaf, &state.pending);
        let Ok(leaf) = next.inspect_err(|_: &NoLeaf| {
            state.delayed(now);
            state.skipped(pool.uberblock().txg, now_s);
        }) else {
            return Some(interval / leaves);
        };
        state.last_leaf = Some(leaf);
        state.pending.insert(leaf);
        let (txg, delay_ns) = (pool.uberblock().txg, state.delay_ns);
        let record = BeatRecord { txg, timestamp_s: now_s, delay_ns, leaf: Some(leaf), ..Default::default() };
        let id = state.note(record);
        let stamp = (state.next_stamp(now_s), delay_ns);
        (leaf, stamp, id, interval)
    };
    multihost.extend(engine);
    let ((time_s, seq), delay_ns) = stamp;
    let recorded = multihost.settings.recorded(seq);
    let change = move |newest: Uberblock| {
        let timestamp_s = newest.timestamp_s.max(time_s);
        Uberblock { timestamp_s, ..newest }.with_mmp(Some((delay_ns, recorded)))
    };
    let weak = Arc::downgrade(engine);
    let writing = async move {
        let done = pool.labels().beat(leaf, Box::new(change)).await;
        drop(pool);
        if let Some(engine) = weak.upgrade() {
            ended(&engine, (leaf, id), now, done.is_ok());
        }
    };
    engine.runtime.spawn(writing).detach();
    Some(interval / leaves)
}

fn ended(engine: &Shared, (leaf, id): (Guid, u64), began: Instant, is_written: bool) {
    let (multihost, now, leaves) = (&engine.multihost, engine.runtime.now(), leaves(engine));
    let mut state = multihost.state.lock();
    state.pending.remove(&leaf);
    match is_written {
        true => {
            state.counts.written += 1;
            state.landed(&multihost.settings, began, now, leaves);
        }
        false => {
            state.counts.failed += 1;
            state.delayed(now);
        }
    }
    if let Some(record) = state.history.iter_mut().find(|record| record.id == id) {
        (record.duration_ns, record.failed) = (Some(nanos(now - began)), !is_written);
    }
    drop(state);
    multihost.extend(engine);
}

/// Another machine may take the pool from now on.
fn stop(engine: &Arc<Shared>, why: &str) {
    let pool = engine.on_disk.read().pool.clone();
    let txg = engine.txgs.open();
    if let Some(fence) = &pool.tree().found().fence {
        fence.shut();
    }
    // In this order: waiters for the fence find the error.
    let error = DatasetError::Stopped { pool: pool.name().into(), txg, why: why.into() };
    engine.txgs.done(Err(error));
    pool.suspension().fence(engine.runtime.now(), txg, why);
}

/// From now on the engine stops if a storage's lock is lost.
pub(crate) fn obey_fence(engine: &Arc<Shared>) {
    let Some(fence) = engine.on_disk.read().pool.tree().found().fence.clone() else { return };
    let (weak, runtime) = (Arc::downgrade(engine), engine.runtime.clone());
    fence.on_loss(move |why| {
        let (weak, why) = (weak.clone(), why.clone());
        // The device's operation that finds the loss may be under a lock.
        let stopping = async move {
            if let Some(engine) = weak.upgrade() {
                engine.multihost.state.lock().is_beating = false;
                stop(&engine, &why);
            }
        };
        runtime.spawn(stopping).detach();
    });
}

/// Multihost protection of an open pool.
#[derive(Clone, Copy)]
pub struct Heartbeats<'a>(&'a Engine);

impl Engine {
    /// Multihost protection.
    pub fn multihost(&self) -> Heartbeats<'_> {
        Heartbeats(self)
    }
}

impl<'a> Heartbeats<'a> {
    /// Tunables; [`Heartbeats::retune`] applies a change at once.
    pub fn settings(&self) -> &'a MultihostSettings {
        &self.0.0.multihost.settings
    }

    /// Wakes the task, which follows the tunables.
    pub fn retune(&self) {
        self.0.0.multihost.order();
    }

    /// Whether the property is on.
    pub fn is_on(&self) -> bool {
        self.0.0.multihost.state.lock().is_on
    }

    /// Keeps this right until the first change. Only the first call counts.
    pub fn hold(&self, stake: Stake) {
        drop(self.0.0.multihost.stake.set(stake));
    }

    /// Takes a claim back, if nothing has changed.
    pub async fn give_back(&self) {
        if let Some(stake) = self.0.0.multihost.stake.get().filter(|_| self.0.0.is_untouched()) {
            stake.give_back().await;
        }
    }

    /// Heartbeats so far.
    pub fn counts(&self) -> BeatCounts {
        self.0.0.multihost.state.lock().counts
    }

    /// Decaying average of the time between heartbeats; zero: multihost is off.
    pub fn delay(&self) -> Duration {
        Duration::from_nanos(self.0.0.multihost.state.lock().delay_ns)
    }

    /// The last heartbeats, the oldest first.
    pub fn history(&self) -> Vec<BeatRecord> {
        self.0.0.multihost.state.lock().history.iter().copied().collect()
    }

    /// Ends heartbeats: the pool's last txg is on disk.
    pub(crate) async fn end(&self) {
        self.give_back().await;
        self.0.0.multihost.end(&self.0.0).await;
    }
}

impl SyncContext {
    /// Turns multihost protection on or off, from this txg's uberblock on.
    pub fn set_multihost(&self, is_on: bool) {
        self.engine.multihost.set_on(&self.engine, is_on);
    }
}
