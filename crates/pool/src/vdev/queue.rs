//! The queue of a leaf: decides the order of a device's operations.
//!
//! Idea: a device serves few operations at a time, and users come first. Each operation has a class
//! ([`IoClass`]) with a minimum and a maximum number of operations under way:
//!
//! ```text
//!   sync read | sync write | async read | async write | scrub | removal | initialize | trim | rebuild
//!   1. the first class, in this order, that has work and less than its minimum under way
//!   2. if there is none: the first that has work and less than its maximum
//! ```
//!
//! So each class progresses under any load, and the most urgent gets the rest. Within a class, synchronous
//! operations go in order of arrival, others in ascending order of offset. An operation that has waited for
//! [`DEADLINE`] goes first. Waiting neighbours go together ([`join`]).
//!
//! Two bounds move. *Async writes* grow with the dirty data ([`QueueSettings::async_writes_max`]), so that a
//! txg is written gently while there is time. *Background work* (scrub, removal, initialize, rebuild) gets
//! only a few operations after each of the users', and its maximum once users have been quiet for some
//! operations.
//!
//! Locking: one mutex per queue, held for a decision, never across an await. A future dropped while it waits
//! leaves the queue; an operation that has begun keeps its [`Permit`] until the device is done. Groups are
//! formed under the lock and handed over after it. No operation starts until groups of writes are handed
//! over: their members may be dropped, and writes of the space's next owner must come later.
//!
//! Invariant: an operation waits only if its class may not start one more (or the device is full).
//!
//! Source: OpenZFS `vdev_queue.c`.

mod class;
mod join;
mod settings;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cenote_device::SIZE_BUCKETS;
use cenote_format::units::Guid;
use cenote_runtime::{Instant, Runtime};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::patience::Patience;
pub use class::{ClassLoad, IoClass, Moved};
pub(crate) use join::Ask;
use join::{Group, Limits, Member, Neighbours, Outcome, begin};
pub use settings::{QueueSettings, Transfer};

/// After this wait an operation goes first in its class.
const DEADLINE: Duration = Duration::from_millis(500);

pub(crate) struct Queue {
    leaf: Guid,
    runtime: Runtime,
    settings: Arc<QueueSettings>,
    patience: Arc<Patience>,
    state: Mutex<State>,
    /// Readable without the lock.
    depth: AtomicU64,
    /// End of the last operation, readable without the lock.
    reached: AtomicU64,
}

#[derive(Default)]
struct State {
    lines: [Line; IoClass::ALL.len()],
    neighbours: Neighbours,
    active: u32,
    /// Groups of writes being handed over.
    beginning: u32,
    /// Users' operations waiting or under way (`vq_ia_active`).
    users: u32,
    /// Background operations left, or done since users were active (`vq_nia_credit`).
    credit: u32,
    /// Start of the last operation in an ordered class.
    swept_to: u64,
    arrivals: u64,
    moved: [Moved; 2],
}

/// Waiting operations of a class.
#[derive(Default)]
struct Line {
    waiting: BTreeMap<Place, Waiter>,
    /// In order of arrival; some may have left.
    arrived: VecDeque<Place>,
    active: u32,
    /// Without waiting and active ones.
    counts: ClassLoad,
}

/// Offset (0 if in order of arrival), and number of arrival.
type Place = (u64, u64);

struct Waiter {
    since: Instant,
    ask: Ask,
    go: oneshot::Sender<Call>,
}

enum Call {
    Go,
    /// In a group, whose outcome will follow.
    Joined(oneshot::Receiver<Outcome>),
}

pub(crate) enum Turn {
    Go(Permit),
    /// Done in a group; the data of a read.
    Done(Bytes),
}

/// Permits one operation. Dropping it starts the next.
pub(crate) struct Permit {
    queue: Arc<Queue>,
    class: IoClass,
}

struct Waiting<'a> {
    queue: &'a Arc<Queue>,
    class: IoClass,
    place: Place,
    turn: oneshot::Receiver<Call>,
    is_over: bool,
}

impl Queue {
    pub(crate) fn new(
        runtime: &Runtime,
        leaf: Guid,
        settings: &Arc<QueueSettings>,
        patience: &Arc<Patience>,
    ) -> Queue {
        let (state, depth, reached) = Default::default();
        let (settings, patience) = (settings.clone(), patience.clone());
        Queue { leaf, runtime: runtime.clone(), settings, patience, state, depth, reached }
    }

    /// Waits for a permit or a group's outcome.
    pub(crate) async fn enter(self: &Arc<Queue>, ask: Ask) -> Turn {
        match self.wait(ask.clone()).await {
            Ok(permit) => Turn::Go(permit),
            Err(outcome) => match outcome.await {
                Ok(Some(bytes)) => Turn::Done(bytes),
                // The group failed: retried alone, each operation gets its own error.
                _ => Turn::Go(self.enter_alone(ask).await),
            },
        }
    }

    pub(crate) async fn enter_alone(self: &Arc<Queue>, ask: Ask) -> Permit {
        let class = ask.class;
        // An operation that may not join is never joined.
        self.wait(ask.alone())
            .await
            .unwrap_or_else(|_| unreachable!("{class:?} joined others against its will"))
    }

    async fn wait(self: &Arc<Queue>, ask: Ask) -> Result<Permit, oneshot::Receiver<Outcome>> {
        let class = ask.class;
        let mut waiting = {
            self.depth.fetch_add(1, Ordering::Relaxed);
            let mut state = self.state.lock();
            state.arrive(class);
            if state.lines[class as usize].waiting.is_empty() && state.may_start(class, &self.settings) {
                state.start(class, ask.offset_bytes);
                self.begins(&mut state, class, (&ask, &ask), 1);
                drop(state);
                return Ok(Permit { queue: self.clone(), class });
            }
            let (go, turn) = oneshot::channel();
            let arrival = state.arrivals;
            let place = place(&ask, arrival);
            state.neighbours.add(&ask, arrival);
            state.arrivals += 1;
            let line = &mut state.lines[class as usize];
            line.waiting.insert(place, Waiter { since: self.runtime.now(), ask, go });
            line.arrived.push_back(place);
            Waiting { queue: self, class, place, turn, is_over: false }
        };
        // The sender is dropped only with the queue, which is borrowed here.
        let call = (&mut waiting.turn).await.unwrap_or(Call::Go);
        waiting.is_over = true;
        match call {
            Call::Go => Ok(Permit { queue: self.clone(), class }),
            Call::Joined(outcome) => Err(outcome),
        }
    }

    pub(crate) fn load(&self) -> [ClassLoad; IoClass::ALL.len()] {
        let state = self.state.lock();
        IoClass::ALL.map(|class| {
            let line = &state.lines[class as usize];
            ClassLoad { waiting: line.waiting.len() as u64, active: line.active.into(), ..line.counts }
        })
    }

    pub(crate) fn moved(&self) -> [Moved; 2] {
        self.state.lock().moved
    }

    pub(crate) fn depth(&self) -> u64 {
        self.depth.load(Ordering::Relaxed)
    }

    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }

    /// `vdev_queue_aggregate`. A file counts as non-rotational; a remote device states its best size.
    fn limits(&self) -> Limits {
        let info = self.patience.device.info();
        self.settings.limits(info.rotational == Some(true), info.nature.best_io_bytes)
    }

    /// Counts `operations` sent as one, from `first` to `last`.
    fn begins(&self, state: &mut State, class: IoClass, (first, last): (&Ask, &Ask), operations: usize) {
        let bytes = last.end() - first.offset_bytes;
        let counts = &mut state.lines[class as usize].counts;
        counts.begun += operations as u64;
        let sizes = if operations == 1 { &mut counts.alone } else { &mut counts.joined };
        sizes[(bytes.max(1).ilog2() as usize).min(SIZE_BUCKETS - 1)] += 1;
        let moved = &mut state.moved[usize::from(first.data.is_some())];
        moved.operations += 1;
        moved.bytes += bytes;
        self.reached.store(last.end(), Ordering::Relaxed);
        self.settings.transfers().note(|| Transfer {
            now_ns: self.runtime.now().as_ns(),
            leaf: self.leaf,
            class,
            is_write: first.data.is_some(),
            offset_bytes: first.offset_bytes,
            bytes,
            operations: operations as u32,
        });
    }

    fn leave(self: &Arc<Queue>, class: IoClass) {
        self.depth.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.finish(class, &self.settings);
        self.start_next(state);
    }

    fn start_next<'a>(self: &'a Arc<Queue>, mut state: MutexGuard<'a, State>) {
        loop {
            let mut groups = Vec::new();
            let now = self.runtime.now();
            while let Some(group) = state.start_next(self, now) {
                groups.extend(group);
            }
            if groups.is_empty() {
                return;
            }
            let is_write = |group: &&Group| group.members.iter().any(|member| member.ask.data.is_some());
            let beginning = groups.iter().filter(is_write).count() as u32;
            state.beginning += beginning;
            drop(state);
            for group in groups {
                // They are one operation from now on.
                self.depth.fetch_sub(group.members.len() as u64 - 1, Ordering::Relaxed);
                self.runtime.spawn(begin(self, group)).detach();
            }
            state = self.state.lock();
            state.beginning -= beginning;
        }
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
        self.lines[class as usize].active += 1;
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

    fn may_start(&self, class: IoClass, settings: &QueueSettings) -> bool {
        self.may_start_any(settings) && self.lines[class as usize].active < self.most(class, settings)
    }

    fn may_start_any(&self, settings: &QueueSettings) -> bool {
        self.beginning == 0 && self.active < settings.max_active()
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
        if !self.may_start_any(settings) {
            return None;
        }
        let waits = |class: &IoClass| !self.lines[*class as usize].waiting.is_empty();
        let under = |bound: fn(&State, IoClass, &QueueSettings) -> u32| {
            let mut classes = IoClass::ALL.into_iter().filter(waits);
            classes.find(|class| self.lines[*class as usize].active < bound(self, *class, settings))
        };
        under(State::least).or_else(|| under(State::most))
    }

    /// `None`: none may start; `Some(None)`: one started alone; else the group to start.
    fn start_next(&mut self, queue: &Queue, now: Instant) -> Option<Option<Group>> {
        let class = self.next_class(&queue.settings)?;
        let (place, waiter) = self.lines[class as usize].next(self.swept_to, now)?;
        self.neighbours.remove(&waiter.ask, place.1);
        let [before, after] = self.neighbours.beside(&waiter.ask, queue.limits());
        if before.is_empty() && after.is_empty() {
            self.start(class, waiter.ask.offset_bytes);
            queue.begins(self, class, (&waiter.ask, &waiter.ask), 1);
            // An abandoned operation has left the line, so the receiver exists.
            let _ = waiter.go.send(Call::Go);
            return Some(None);
        }
        let mut group = Group { class, members: Vec::with_capacity(before.len() + after.len() + 1) };
        self.join(&before, &mut group, now);
        group.members.push(waiter.join());
        self.join(&after, &mut group, now);
        // The group counts as one operation of users.
        self.users -= if class.is_background() { 0 } else { group.members.len() as u32 - 1 };
        if let [first, .., last] = &group.members[..] {
            self.start(class, last.ask.offset_bytes);
            queue.begins(self, class, (&first.ask, &last.ask), group.members.len());
        }
        Some(Some(group))
    }

    fn join(&mut self, starts: &[(join::Start, IoClass)], group: &mut Group, now: Instant) {
        for &((offset, arrival), class) in starts {
            let place = (if class.is_fifo() { 0 } else { offset }, arrival);
            if let Some(waiter) = self.lines[class as usize].take(place, now) {
                self.neighbours.remove(&waiter.ask, arrival);
                group.members.push(waiter.join());
            }
        }
    }
}

impl Line {
    /// Past its deadline, or next in the sweep.
    fn next(&mut self, swept_to: u64, now: Instant) -> Option<(Place, Waiter)> {
        while self.arrived.front().is_some_and(|place| !self.waiting.contains_key(place)) {
            self.arrived.pop_front();
        }
        let oldest = *self.arrived.front()?;
        let is_late = self.waiting.get(&oldest).is_some_and(|waiter| now.since(waiter.since) >= DEADLINE);
        let ahead = self.waiting.range((swept_to, 0)..).next().or_else(|| self.waiting.iter().next());
        let place = if is_late { oldest } else { ahead.map_or(oldest, |(place, _)| *place) };
        Some((place, self.take(place, now)?))
    }

    fn take(&mut self, place: Place, now: Instant) -> Option<Waiter> {
        let waiter = self.waiting.remove(&place)?;
        self.counts.has_waited(u64::try_from(now.since(waiter.since).as_nanos()).unwrap_or(u64::MAX));
        Some(waiter)
    }
}

impl Waiter {
    fn join(self) -> Member {
        let (tell, outcome) = oneshot::channel();
        // An abandoned operation has left the line, so the receiver exists.
        let _ = self.go.send(Call::Joined(outcome));
        Member { ask: self.ask, tell }
    }
}

fn place(ask: &Ask, arrival: u64) -> Place {
    (if ask.class.is_fifo() { 0 } else { ask.offset_bytes }, arrival)
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.queue.leave(self.class);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.queue.state.lock();
        let waiter = state.lines[self.class as usize].waiting.remove(&self.place);
        match waiter {
            Some(waiter) => {
                state.neighbours.remove(&waiter.ask, self.place.1);
                state.depart(self.class, &self.queue.settings);
            }
            // Its turn had come.
            None if matches!(self.turn.try_recv(), Ok(Call::Go)) => {
                state.finish(self.class, &self.queue.settings);
            }
            // It is in a group.
            None => return,
        }
        self.queue.depth.fetch_sub(1, Ordering::Relaxed);
        self.queue.start_next(state);
    }
}

#[cfg(test)]
mod tests;
