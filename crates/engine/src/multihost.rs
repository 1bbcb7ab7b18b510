//! Heartbeats of a pool in use (multihost protection, MMP), and the end of its use if they fail.
//!
//! ```text
//!   first change --> stake --> beats: a leaf in turn, each `interval / leaves` -----> close: stopped
//!                                |  none landed for fail intervals
//!                                '--> fence shut, pool suspended, engine stopped: no write leaves any more
//! ```
//!
//! Idea: a task writes heartbeats as long as the engine lives, the property `multihost` is on, and the pool
//! is being changed. Each that lands extends the lease of the pool's fence, as does each txg. Two bounds
//! follow: the task stops the engine when nothing landed for `fail_intervals` intervals, and the fence
//! refuses writes from that moment on even if the task runs late.
//!
//! Time counts from the beginning of a heartbeat that landed: a process that is stopped right after one, and
//! wakes up when another machine has the pool, finds its lease ended. OpenZFS counts from its completion.
//!
//! A pool that waits for its devices keeps its heartbeats. So it goes on without a check when they work again
//! in time; OpenZFS stops heartbeats, and checks for other machines when the pool is resumed.
//!
//! A command that is refused changes nothing, so heartbeats begin with the first change. What another machine
//! did until then is found out by the stake (`cenote_pool::multihost`).
//!
//! Locking: one mutex, held for one look or change.
//!
//! Source: OpenZFS `mmp.c` (`mmp_thread`, `mmp_delay_update`), `uberblock.c` (`uberblock_update`).

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg};
use cenote_object::{DatasetError, Result};
use cenote_pool::label::NoLeaf;
use cenote_pool::multihost::{MultihostSettings, Stake};
use cenote_runtime::{AbortOnDrop, Instant, Runtime, Watched, Watcher};
use parking_lot::Mutex;

use crate::context::SyncContext;
use crate::engine::{Engine, Shared};

/// The delay is a decaying average of the last heartbeats.
const DECAY: u64 = 128;
/// After a reduction of the tunables, the time without heartbeats falls by this part at a time.
const SMOOTHING: u32 = 32;
/// `MMP_MIN_INTERVAL`: after a change of the tunables, heartbeats tell others soon.
const SOON: Duration = Duration::from_millis(100);
/// How long the end of a pool's use waits for its last heartbeats.
const LAST_BEATS: Duration = Duration::from_secs(2);
/// Heartbeats kept (`zfs_multihost_history`).
const HISTORY: usize = 100;

/// Multihost protection of a pool.
pub(crate) struct Multihost {
    runtime: Runtime,
    settings: MultihostSettings,
    state: Mutex<State>,
    /// Of a pool that another machine may claim before the first change.
    stake: OnceLock<Stake>,
    /// Wakes the task; closed with the engine.
    orders: Watched<u64>,
    task: Mutex<Option<AbortOnDrop<()>>>,
}

#[derive(Default)]
struct State {
    is_on: bool,
    /// The property is off in the syncing txg.
    is_ending: bool,
    /// Changes have begun, and not ended.
    is_beating: bool,
    /// When the last heartbeat that landed was begun: from then on no other machine can have watched.
    sure: Instant,
    /// When it landed.
    landed: Instant,
    delay_ns: u64,
    /// Of the last heartbeat.
    stamp: (u64, u16),
    last_leaf: Option<Guid>,
    pending: BTreeSet<Guid>,
    /// Time without heartbeats until the engine stops; zero: it never does.
    patience: Duration,
    known: (Duration, u32),
    /// Heartbeats to be written soon.
    soon: usize,
    counts: BeatCounts,
    history: VecDeque<BeatRecord>,
    next_id: u64,
}

/// Heartbeats so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BeatCounts {
    /// Written.
    pub written: u64,
    /// Failed.
    pub failed: u64,
    /// Not written, because no leaf could take one.
    pub skipped: u64,
}

/// A heartbeat, as in OpenZFS's kstat `multihost`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct BeatRecord {
    /// Number.
    pub id: u64,
    /// Txg of its uberblock.
    pub txg: Txg,
    /// When it was begun, in seconds since 1970.
    pub timestamp_s: u64,
    /// Decaying average of the time between heartbeats.
    pub delay_ns: u64,
    /// The leaf; none: it was skipped.
    pub leaf: Option<Guid>,
    /// Time it took; none: under way.
    pub duration_ns: Option<u64>,
    /// Whether it failed.
    pub failed: bool,
    /// Heartbeats skipped in a row.
    pub skipped: u64,
}

impl Multihost {
    pub(crate) fn new(runtime: &Runtime, is_on: bool) -> Multihost {
        let settings = MultihostSettings::default();
        let delay_ns = if is_on { nanos(settings.interval()) } else { 0 };
        Multihost {
            runtime: runtime.clone(),
            state: State { is_on, delay_ns, ..State::default() }.into(),
            settings,
            stake: OnceLock::new(),
            orders: Watched::new(0),
            task: Mutex::default(),
        }
    }

    /// An uberblock of a txg with the present settings.
    pub(crate) fn stamp(&self, uberblock: Uberblock) -> Uberblock {
        let state = self.state.lock();
        let is_on = state.is_on && !state.is_ending;
        uberblock.with_mmp(is_on.then(|| (state.delay_ns, self.settings.recorded(0))))
    }

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
        let sure = match self.stake.get().filter(|_| is_on) {
            Some(stake) => stake.take(&self.settings).await?,
            None => self.runtime.now(),
        };
        let leaves = leaves(engine);
        let mut state = self.state.lock();
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

    /// Ends heartbeats: the pool's last txg is on disk.
    async fn end(&self, engine: &Shared) {
        self.state.lock().is_beating = false;
        self.task.lock().take();
        if engine.is_untouched() {
            if let Some(stake) = self.stake.get() {
                stake.give_back().await;
            }
            return;
        }
        let pool = engine.on_disk.read().pool.clone();
        // One that a device holds back is older than the next owner's uberblocks.
        self.runtime.timeout(LAST_BEATS, pool.labels().beats_ended()).await.ok();
        self.extend(engine);
    }

    fn order(&self) {
        self.orders.modify(|orders| *orders += 1);
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

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl State {
    /// Follows the tunables. A shorter patience comes gradually, so that heartbeats at the old pace suffice.
    fn follow(&mut self, settings: &MultihostSettings, leaves: u32) {
        let (interval, fails) = (settings.interval(), settings.fail_intervals());
        let patience = interval * fails;
        self.patience = match patience < self.patience && fails > 0 {
            true => (self.patience * (SMOOTHING - 1) + patience) / SMOOTHING,
            false => patience,
        };
        if self.known != (interval, fails) && self.known != Default::default() {
            self.soon += leaves as usize;
        }
        self.known = (interval, fails);
    }

    fn landed(&mut self, settings: &MultihostSettings, began: Instant, now: Instant, leaves: u32) {
        let since_ns = nanos(now - self.landed);
        self.delayed(now);
        (self.sure, self.landed) = (self.sure.max(began), now);
        if self.is_on && since_ns < self.delay_ns {
            let least_ns = nanos(settings.interval() / leaves.max(1));
            self.delay_ns = (since_ns.saturating_add(self.delay_ns * (DECAY - 1)) / DECAY).max(least_ns);
        }
    }

    /// A sudden delay counts at once, since an importer must wait for it.
    fn delayed(&mut self, now: Instant) {
        let since_ns = nanos(now - self.landed);
        self.delay_ns = if self.is_on { self.delay_ns.max(since_ns).max(1) } else { 0 };
    }

    /// The time and number of the next heartbeat. Numbers begin anew with each second.
    fn next_stamp(&mut self, now_s: u64) -> (u64, u16) {
        let (second, seq) = self.stamp;
        self.stamp = if second == now_s { (second, seq.saturating_add(1)) } else { (now_s, 1) };
        self.stamp
    }

    fn note(&mut self, record: BeatRecord) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(BeatRecord { id, ..record });
        id
    }

    fn skipped(&mut self, txg: Txg, now_s: u64) {
        self.counts.skipped += 1;
        match self.history.back_mut().filter(|last| last.leaf.is_none()) {
            Some(last) => last.skipped += 1,
            None => {
                let record = BeatRecord {
                    txg,
                    timestamp_s: now_s,
                    delay_ns: self.delay_ns,
                    skipped: 1,
                    ..Default::default()
                };
                self.note(record);
            }
        }
    }
}

/// Writes heartbeats as long as the engine lives.
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
            stop(engine, silent);
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
fn stop(engine: &Arc<Shared>, silent: Duration) {
    let pool = engine.on_disk.read().pool.clone();
    let txg = engine.txgs.open();
    let why = format!("multihost heartbeats have not succeeded for {} ms", silent.as_millis());
    if let Some(fence) = &pool.tree().found().fence {
        fence.shut();
    }
    // In this order: waiters for the fence find the error.
    let error = DatasetError::Stopped { pool: pool.name().into(), txg, why: why.as_str().into() };
    engine.txgs.done(Err(error));
    pool.suspension().fence(engine.runtime.now(), txg, &why);
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
        self.0.0.multihost.end(&self.0.0).await;
    }
}

impl SyncContext {
    /// Turns multihost protection on or off, from this txg's uberblock on.
    pub fn set_multihost(&self, is_on: bool) {
        self.engine.multihost.set_on(&self.engine, is_on);
    }
}
