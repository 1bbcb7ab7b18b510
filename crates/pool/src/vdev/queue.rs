//! The queue of a leaf: which of the operations that wait for a device goes next.
//!
//! Idea: a device works on few operations at a time, and those of users come first. Each operation has a
//! class ([`IoClass`]). Every class has a least and a most number of operations under way:
//!
//! ```text
//!   sync read | sync write | async read | async write | scrub | removal | initialize | trim | rebuild
//!   1. the first class, in this order, that has work and less than its minimum under way
//!   2. if there is none: the first that has work and less than its maximum
//! ```
//!
//! So each class progresses, however busy the others are, and what is left of the device goes to the most
//! urgent. Within a class, synchronous operations go in the order of their arrival, others in the order of
//! their offsets, in one direction; but what has waited for [`DEADLINE`] goes first.
//!
//! Two bounds move. *Async writes*: the more changes are in memory, the more of them are under way
//! ([`QueueSettings::async_writes_max`]), so that a txg is written gently while there is time.
//! *Background work* (scrub, removal, initialize, rebuild): while users' operations are under way it gets a
//! few operations after each of theirs and no more; its maximum only after users have been quiet for some
//! operations.
//!
//! Locking: one mutex a queue, held for a decision, never across an await. All methods may be called
//! concurrently. A future that is dropped while it waits leaves the queue; one that is dropped later gives
//! back its [`Permit`].
//!
//! Invariant: an operation waits only if its class may not start one more (or the device is full).
//!
//! Source: OpenZFS `vdev_queue.c`. Operations are merged elsewhere: reads in `extents`, writes in the device.

mod settings;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote_runtime::{Instant, Runtime};
use parking_lot::Mutex;
use tokio::sync::oneshot;

pub use settings::QueueSettings;

/// What waited so long goes before all others of its class.
const DEADLINE: Duration = Duration::from_millis(500);

/// What an operation is for (`zio_priority_t`), the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoClass {
    /// Somebody waits for what is read.
    SyncRead,
    /// Somebody waits until it is written: the intent log, labels.
    SyncWrite,
    /// Read ahead.
    AsyncRead,
    /// A txg.
    AsyncWrite,
    /// Scrub and resilver.
    Scrub,
    /// Copying off a vdev that is removed.
    Removal,
    /// Writing what was never allocated.
    Initializing,
    /// Discarding what is free.
    Trim,
    /// Sequential rebuild.
    Rebuild,
}

impl IoClass {
    /// All, the most urgent first.
    pub const ALL: [IoClass; 9] = [
        IoClass::SyncRead,
        IoClass::SyncWrite,
        IoClass::AsyncRead,
        IoClass::AsyncWrite,
        IoClass::Scrub,
        IoClass::Removal,
        IoClass::Initializing,
        IoClass::Trim,
        IoClass::Rebuild,
    ];

    /// Its name in tunables: `zfs_vdev_NAME_max_active`.
    pub fn name(self) -> &'static str {
        match self {
            IoClass::SyncRead => "sync_read",
            IoClass::SyncWrite => "sync_write",
            IoClass::AsyncRead => "async_read",
            IoClass::AsyncWrite => "async_write",
            IoClass::Scrub => "scrub",
            IoClass::Removal => "removal",
            IoClass::Initializing => "initializing",
            IoClass::Trim => "trim",
            IoClass::Rebuild => "rebuild",
        }
    }

    /// Goes in the order of arrival (`vdev_queue_class_fifo`).
    fn is_fifo(self) -> bool {
        matches!(self, IoClass::SyncRead | IoClass::SyncWrite | IoClass::Trim)
    }

    /// Gives way to all others (`vdev_queue_is_interactive` denies it).
    fn is_background(self) -> bool {
        matches!(self, IoClass::Scrub | IoClass::Removal | IoClass::Initializing | IoClass::Rebuild)
    }
}

/// Decides what a device does next.
pub(crate) struct Queue {
    runtime: Runtime,
    settings: Arc<QueueSettings>,
    state: Mutex<State>,
    /// Operations that wait or are under way, without a lock.
    depth: AtomicU64,
}

/// How many operations of a class wait and are under way, and what waiting cost so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ClassLoad {
    /// Operations that wait.
    pub waiting: u64,
    /// Operations under way.
    pub active: u64,
    /// Operations that began.
    pub begun: u64,
    /// How long all of them together have waited, ns.
    pub waited_ns: u64,
}

impl ClassLoad {
    /// Adds those of another queue.
    pub fn add(&mut self, other: &ClassLoad) {
        self.waiting += other.waiting;
        self.active += other.active;
        self.begun += other.begun;
        self.waited_ns += other.waited_ns;
    }

    /// What began after `before`; what waits and is under way is that of now.
    pub fn since(&self, before: &ClassLoad) -> ClassLoad {
        ClassLoad {
            begun: self.begun.saturating_sub(before.begun),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
            ..*self
        }
    }

    /// How long one waited on average.
    pub fn average_wait_ns(&self) -> Option<u64> {
        self.waited_ns.checked_div(self.begun)
    }
}

#[derive(Default)]
struct State {
    lines: [Line; IoClass::ALL.len()],
    active: u32,
    /// Operations of users under way or waiting (`vq_ia_active`).
    users: u32,
    /// Background operations that may start while users are busy, or that ran since they were
    /// (`vq_nia_credit`).
    credit: u32,
    /// Where the last operation of an ordered class began.
    swept_to: u64,
    arrivals: u64,
}

/// Those of one class who wait, in the order in which they go.
#[derive(Default)]
struct Line {
    waiting: BTreeMap<Place, Waiter>,
    /// In the order of arrival; some may have gone.
    arrived: VecDeque<Place>,
    active: u32,
    begun: u64,
    waited_ns: u64,
}

/// Offset (0 in lines that go by arrival), and number of arrival.
type Place = (u64, u64);

struct Waiter {
    since: Instant,
    go: oneshot::Sender<()>,
}

/// The right to have one operation under way. Dropping it lets the next one go.
pub(crate) struct Permit<'a> {
    queue: &'a Queue,
    class: IoClass,
}

/// A place in a line, which is left when this is dropped.
struct Waiting<'a> {
    queue: &'a Queue,
    class: IoClass,
    place: Place,
    is_over: bool,
}

impl Queue {
    pub(crate) fn new(runtime: &Runtime, settings: &Arc<QueueSettings>) -> Queue {
        let (state, depth) = Default::default();
        Queue { runtime: runtime.clone(), settings: settings.clone(), state, depth }
    }

    /// Waits until an operation of this class at this offset may start.
    pub(crate) async fn enter(&self, class: IoClass, offset_bytes: u64) -> Permit<'_> {
        let (turn, mut waiting) = {
            self.depth.fetch_add(1, Ordering::Relaxed);
            let mut state = self.state.lock();
            state.arrive(class);
            if state.lines[class as usize].waiting.is_empty() && state.may_start(class, &self.settings) {
                state.start(class, offset_bytes);
                return Permit { queue: self, class };
            }
            let (go, turn) = oneshot::channel();
            let place = (if class.is_fifo() { 0 } else { offset_bytes }, state.arrivals);
            state.arrivals += 1;
            let line = &mut state.lines[class as usize];
            line.waiting.insert(place, Waiter { since: self.runtime.now(), go });
            line.arrived.push_back(place);
            (turn, Waiting { queue: self, class, place, is_over: false })
        };
        // The sender is dropped only with the queue, which is borrowed here.
        let _ = turn.await;
        waiting.is_over = true;
        Permit { queue: self, class }
    }

    /// What waits and is under way, by class.
    pub(crate) fn load(&self) -> [ClassLoad; IoClass::ALL.len()] {
        let state = self.state.lock();
        IoClass::ALL.map(|class| {
            let line = &state.lines[class as usize];
            ClassLoad {
                waiting: line.waiting.len() as u64,
                active: line.active.into(),
                begun: line.begun,
                waited_ns: line.waited_ns,
            }
        })
    }

    /// Operations that wait or are under way.
    pub(crate) fn depth(&self) -> u64 {
        self.depth.load(Ordering::Relaxed)
    }

    /// An operation is over: the next ones go.
    fn leave(&self, class: IoClass) {
        self.depth.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.finish(class, &self.settings);
        state.start_next(&self.settings, self.runtime.now());
    }
}

impl State {
    fn arrive(&mut self, class: IoClass) {
        if !class.is_background() {
            self.users += 1;
            if self.users == 1 {
                self.credit = 1;
            }
        }
    }

    fn depart(&mut self, class: IoClass, settings: &QueueSettings) {
        if class.is_background() {
            if self.users == 0 {
                self.credit = self.credit.saturating_add(1);
            }
        } else {
            self.users -= 1;
            self.credit = if self.users == 0 { 0 } else { settings.background_credit() };
        }
    }

    fn start(&mut self, class: IoClass, offset_bytes: u64) {
        let line = &mut self.lines[class as usize];
        line.active += 1;
        line.begun += 1;
        self.active += 1;
        if class.is_background() && self.users > 0 {
            self.credit = self.credit.saturating_sub(1);
        }
        if !class.is_fifo() {
            self.swept_to = offset_bytes;
        }
    }

    fn finish(&mut self, class: IoClass, settings: &QueueSettings) {
        self.lines[class as usize].active -= 1;
        self.active -= 1;
        self.depart(class, settings);
    }

    /// Whether one more operation of a class may be under way.
    fn may_start(&self, class: IoClass, settings: &QueueSettings) -> bool {
        self.active < settings.max_active() && self.lines[class as usize].active < self.most(class, settings)
    }

    fn least(&self, class: IoClass, settings: &QueueSettings) -> u32 {
        let least = settings.min_active(class);
        if class.is_background() && self.users > 0 { least.min(self.credit) } else { least }
    }

    fn most(&self, class: IoClass, settings: &QueueSettings) -> u32 {
        let least = settings.min_active(class);
        match class {
            IoClass::AsyncWrite => settings.async_writes_max(),
            _ if !class.is_background() => settings.max_active_of(class),
            _ if self.users > 0 => least.min(self.credit),
            _ if self.credit < settings.background_delay() => least.max(1),
            _ => settings.max_active_of(class),
        }
    }

    fn next_class(&self, settings: &QueueSettings) -> Option<IoClass> {
        if self.active >= settings.max_active() {
            return None;
        }
        let waits = |class: &IoClass| !self.lines[*class as usize].waiting.is_empty();
        let under = |bound: fn(&State, IoClass, &QueueSettings) -> u32| {
            let mut classes = IoClass::ALL.into_iter().filter(waits);
            classes.find(|class| self.lines[*class as usize].active < bound(self, *class, settings))
        };
        under(State::least).or_else(|| under(State::most))
    }

    fn start_next(&mut self, settings: &QueueSettings, now: Instant) {
        while let Some(class) = self.next_class(settings) {
            let swept_to = self.swept_to;
            let Some((place, waiter)) = self.lines[class as usize].take(swept_to, now) else { return };
            self.start(class, place.0);
            // Those who gave up have left the line, so somebody listens.
            let _ = waiter.go.send(());
        }
    }
}

impl Line {
    /// Who goes next: who waited too long, else the next in the direction of the sweep.
    fn take(&mut self, swept_to: u64, now: Instant) -> Option<(Place, Waiter)> {
        while self.arrived.front().is_some_and(|place| !self.waiting.contains_key(place)) {
            self.arrived.pop_front();
        }
        let oldest = *self.arrived.front()?;
        let is_late = self.waiting.get(&oldest).is_some_and(|waiter| now.since(waiter.since) >= DEADLINE);
        let ahead = self.waiting.range((swept_to, 0)..).next().or_else(|| self.waiting.iter().next());
        let place = if is_late { oldest } else { ahead.map_or(oldest, |(place, _)| *place) };
        let waiter = self.waiting.remove(&place)?;
        self.waited_ns += u64::try_from(now.since(waiter.since).as_nanos()).unwrap_or(u64::MAX);
        Some((place, waiter))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.queue.leave(self.class);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.queue.depth.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.queue.state.lock();
        if state.lines[self.class as usize].waiting.remove(&self.place).is_some() {
            state.depart(self.class, &self.queue.settings);
        } else {
            // Its turn had come.
            state.finish(self.class, &self.queue.settings);
        }
        state.start_next(&self.queue.settings, self.queue.runtime.now());
    }
}

#[cfg(test)]
mod tests;
