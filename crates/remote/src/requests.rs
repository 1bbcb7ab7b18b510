//! Requests without an answer, in all states of the connections.
//!
//! ```text
//!   send --> unsent --a connection takes it--> sent --answered--> the caller
//!              ^                                |
//!              +------- the session ended ------+      after DEADLINE without a session: errors, for good
//! ```
//!
//! Idea: one table of requests by cookie outlives connections. A connection's calls name their session's
//! number: the rest of an ended one changes nothing.
//!
//! Invariants: `unsent` and `again` are cookies in `waiting`. While `again_left` is not 0, only `again` is
//! sent: repeated writes come before all other requests, which may depend on them.
//!
//! Locking: one mutex, for a look or change; callers are told after it is released. `wake` tells connections
//! that there is work, or that the device was closed; `closed` tells `drive`.

mod unflushed;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cenote_device::TellFenced;
use cenote_runtime::{Instant, Runtime};
use futures::channel::oneshot;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::ServerError;
use unflushed::Unflushed;

/// Time without a server after which requests fail: less than commands wait for a pool at a standstill (8 s).
pub const DEADLINE: Duration = Duration::from_secs(7);
/// Time within which a server must answer a request, however busy it is.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);
/// A session without a sign of life for this long, though an answer is due, has ended...
const SILENCE: Duration = Duration::from_secs(4);
/// ...or for this long, if a flush is under way.
const FLUSH_SILENCE: Duration = Duration::from_secs(15);
/// Time for connecting even after a silence.
const AGAIN: Duration = Duration::from_secs(3);
/// Requests sent with one call.
const BATCH: usize = 16;
/// Bytes sent with one call, unless a request has more.
const BATCH_BYTES: u32 = 1 << 20;

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// A write of zeros, sent without them.
    Zeroes,
    Trim,
    Flush,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) kind: Kind,
    /// A write is durable once answered.
    pub(crate) is_through: bool,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// The content of a write, also if sent as zeros.
    pub(crate) data: Vec<Bytes>,
}

impl Ask {
    /// A request without data to send.
    pub(crate) fn bare(kind: Kind, offset: u64, len: u32) -> Ask {
        Ask { kind, is_through: false, offset, len, data: Vec::new() }
    }
}

/// An awaited answer: the data of a read, otherwise nothing.
pub(crate) struct Answer(oneshot::Receiver<io::Result<Bytes>>);

impl Future for Answer {
    type Output = io::Result<Bytes>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<Bytes>> {
        let polled = std::pin::Pin::new(&mut self.0).poll(context);
        polled.map(|told| told.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())))
    }
}

enum Asker {
    Caller(oneshot::Sender<io::Result<Bytes>>),
    /// A repeated write answered before.
    Again,
    /// A flush of our own.
    Own,
}

struct Waiting {
    ask: Arc<Ask>,
    asker: Asker,
    since: Instant,
    /// The connection, and when.
    sent: Option<(usize, Instant)>,
    /// The writes that a flush covers.
    covers: u64,
}

enum State {
    Up,
    Down {
        since: Instant,
        why: Arc<ServerError>,
    },
    /// No session for the whole deadline: for good.
    GivenUp(ServerError),
}

struct Table {
    state: State,
    session: u64,
    waiting: BTreeMap<u64, Waiting>,
    cookie: u64,
    unsent: VecDeque<u64>,
    again: VecDeque<u64>,
    again_left: usize,
    unflushed: Unflushed,
    has_own_flush: bool,
    /// Answered writes may be lost: the next flush fails.
    is_lost: bool,
    size_bytes: u64,
    is_closed: bool,
    /// Told if the storage gives the device to another machine.
    ears: Vec<TellFenced>,
}

/// All requests of a device.
pub(crate) struct Requests {
    runtime: Runtime,
    table: Mutex<Table>,
    wake: Notify,
    closed: Notify,
    /// The last sign of life of a connection.
    pub(crate) alive_ns: Arc<AtomicU64>,
}

/// A connection of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) session: u64,
    pub(crate) number: usize,
}

impl Requests {
    pub(crate) fn new(runtime: &Runtime, size_bytes: u64) -> Requests {
        let why = Arc::new(ServerError::Lost(Arc::new(io::ErrorKind::NotConnected.into())));
        let table = Table {
            state: State::Down { since: runtime.now(), why },
            session: 0,
            waiting: BTreeMap::new(),
            cookie: 0,
            unsent: VecDeque::new(),
            again: VecDeque::new(),
            again_left: 0,
            unflushed: Unflushed::default(),
            has_own_flush: false,
            is_lost: false,
            size_bytes,
            is_closed: false,
            ears: Vec::new(),
        };
        let (wake, closed, alive_ns) = Default::default();
        Requests { runtime: runtime.clone(), table: table.into(), wake, closed, alive_ns }
    }

    /// Sends a request, now or when there is a session.
    pub(crate) fn send(&self, ask: Ask) -> Answer {
        let (tell, told) = oneshot::channel();
        let now = self.runtime.now();
        let mut table = self.table.lock();
        match &table.state {
            State::GivenUp(error) => drop(tell.send(Err(error.clone().into()))),
            _ => table.add(ask, Asker::Caller(tell), now),
        }
        drop(table);
        self.wake.notify_one();
        Answer(told)
    }

    /// Sends a flush. It fails if writes since the last one may be lost.
    pub(crate) fn flush(&self) -> Answer {
        self.send(Ask::bare(Kind::Flush, 0, 0))
    }

    /// Whether there was no session for the whole deadline.
    pub(crate) fn has_given_up(&self) -> bool {
        matches!(self.table.lock().state, State::GivenUp(_))
    }

    /// Size as last told by the server.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.table.lock().size_bytes
    }

    /// The server tells another size.
    pub(crate) fn resized(&self, size_bytes: u64) {
        self.table.lock().size_bytes = size_bytes;
    }

    /// Has `tell` called if the storage gives the device to another machine; at once, if it has.
    pub(crate) fn on_fenced(&self, tell: TellFenced) {
        let mut table = self.table.lock();
        if let State::GivenUp(ServerError::Fenced { why }) = &table.state {
            let why = why.clone();
            drop(table);
            return tell(&why);
        }
        table.ears.push(tell);
    }

    /// The device was closed. Requests under way are still answered.
    pub(crate) fn close(&self) {
        self.table.lock().is_closed = true;
        self.wake.notify_waiters();
        self.closed.notify_one();
    }

    /// Waits until the device is closed and nothing waits.
    pub(crate) async fn closed(&self) {
        while !self.table.lock().is_over() {
            self.closed.notified().await;
        }
    }

    /// A session begins: writes are repeated, then everything without an answer is sent. Returns its number.
    pub(crate) fn up(&self, size_bytes: u64) -> u64 {
        let now = self.runtime.now();
        let mut table = self.table.lock();
        table.state = State::Up;
        table.session += 1;
        table.size_bytes = size_bytes;
        if table.unflushed.has_let_go() {
            table.is_lost = true;
            table.unflushed.forget();
        }
        for (offset, data) in table.unflushed.all() {
            let (len, data) = (data.len() as u32, vec![data]);
            table.add(Ask { kind: Kind::Write, is_through: false, offset, len, data }, Asker::Again, now);
        }
        table.again_left = table.again.len();
        self.alive_ns.fetch_max(now.as_ns(), Ordering::Relaxed);
        let session = table.session;
        drop(table);
        self.wake.notify_waiters();
        session
    }

    /// A session has ended: its requests wait for the next one.
    pub(crate) fn down(&self, why: ServerError) {
        let now = self.runtime.now();
        let mut late = Vec::new();
        let mut table = self.table.lock();
        table.session += 1;
        let oldest = table.waiting.values().filter_map(|waiting| waiting.sent).map(|(_, at)| at).min();
        let alive = Instant::default() + Duration::from_nanos(self.alive_ns.load(Ordering::Relaxed));
        // Nothing was due: the connection was fine until now.
        let since = oldest.map_or(now, |oldest| oldest.max(alive).min(now));
        let since = if now.since(since) + AGAIN > DEADLINE { at(now, DEADLINE - AGAIN) } else { since };
        // A server that answers all but some requests is not asked for ever.
        let is_late = |waiting: &Waiting| now.since(waiting.since) >= ANSWER;
        let gone: Vec<u64> = table
            .waiting
            .iter()
            .filter(|(_, one)| !one.is_repeatable() || is_late(one))
            .map(|(cookie, _)| *cookie)
            .collect();
        late.extend(gone.into_iter().filter_map(|cookie| table.waiting.remove(&cookie)));
        table.has_own_flush = false;
        (table.again, table.again_left) = (VecDeque::new(), 0);
        table.waiting.values_mut().for_each(|waiting| waiting.sent = None);
        table.unsent = table.waiting.keys().copied().collect();
        table.state = State::Down { since, why: Arc::new(why) };
        drop(table);
        late.into_iter().for_each(|waiting| waiting.tell(Err(ServerError::Silent { since: ANSWER }.into())));
        self.wake.notify_waiters();
        self.closed.notify_one();
    }

    /// Another attempt to connect has failed.
    pub(crate) fn still_down(&self, error: ServerError) {
        if let State::Down { why, .. } = &mut self.table.lock().state {
            *why = Arc::new(error);
        }
    }

    /// Gives up if there has been no session for the whole deadline: everything fails from then on, and
    /// nothing is written later, when the pool has gone on without the disk. Returns whether it has.
    pub(crate) fn expire(&self) -> bool {
        let now = self.runtime.now();
        let table = self.table.lock();
        let State::Down { since, why } = &table.state else { return false };
        let since = now.since(*since);
        if since < DEADLINE {
            return false;
        }
        let error = ServerError::GivenUp { since, why: why.clone() };
        drop(table);
        self.end(error);
        true
    }

    /// Ends the device: all requests fail from now on.
    pub(crate) fn end(&self, error: ServerError) {
        let mut table = self.table.lock();
        if matches!(table.state, State::GivenUp(_)) {
            return;
        }
        table.state = State::GivenUp(error.clone());
        table.session += 1;
        let all = std::mem::take(&mut table.waiting);
        table.unsent.clear();
        table.again.clear();
        table.again_left = 0;
        table.unflushed.forget();
        let ears = std::mem::take(&mut table.ears);
        drop(table);
        if let ServerError::Fenced { why } = &error {
            ears.iter().for_each(|tell| tell(why));
        }
        all.into_values().for_each(|waiting| waiting.tell(Err(error.clone().into())));
        self.wake.notify_waiters();
        self.closed.notify_one();
    }

    /// How long an answer has been due from a session without signs of life, if too long.
    pub(crate) fn silence(&self) -> Option<Duration> {
        let now = self.runtime.now();
        let table = self.table.lock();
        let oldest = table.waiting.values().filter_map(|waiting| waiting.sent).map(|(_, at)| at).min()?;
        let flushes = table.waiting.values().any(|waiting| waiting.ask.kind == Kind::Flush);
        drop(table);
        let alive = Instant::default() + Duration::from_nanos(self.alive_ns.load(Ordering::Relaxed));
        let (due, silent) = (now.since(oldest), now.since(oldest.max(alive)));
        let limit = if flushes { FLUSH_SILENCE } else { SILENCE };
        (due >= ANSWER || silent >= limit).then_some(silent.max(SILENCE))
    }

    /// The next requests for a connection, at most so many; `None`: it ends. May be dropped while it waits.
    pub(crate) async fn next(&self, lane: Lane, most: usize) -> Option<Vec<(u64, Arc<Ask>)>> {
        loop {
            let mut woken = std::pin::pin!(self.wake.notified());
            // Registered before the look, or the last notification could fall between the two.
            woken.as_mut().enable();
            {
                let mut table = self.table.lock();
                if table.session != lane.session || table.is_over() {
                    return None;
                }
                let batch = table.take(lane, self.runtime.now(), most.min(BATCH));
                let has_more = !table.unsent.is_empty() || !table.again.is_empty();
                drop(table);
                if !batch.is_empty() {
                    if has_more {
                        self.wake.notify_one();
                    }
                    return Some(batch);
                }
            }
            woken.await;
        }
    }

    /// The request with this cookie, if the connection has sent it and has no answer yet.
    pub(crate) fn asked(&self, lane: Lane, cookie: u64) -> Option<Arc<Ask>> {
        let table = self.table.lock();
        let waiting = table.waiting.get(&cookie).filter(|_| table.session == lane.session)?;
        let (number, _) = waiting.sent?;
        (number == lane.number).then(|| waiting.ask.clone())
    }

    /// Sends a request of this connection again, unless it has been tried for long: then returns `false`.
    pub(crate) fn repeat(&self, lane: Lane, cookie: u64) -> bool {
        let now = self.runtime.now();
        let mut table = self.table.lock();
        if table.session != lane.session {
            return true;
        }
        let Some(waiting) = table.waiting.get_mut(&cookie) else { return true };
        let is_first = matches!(waiting.asker, Asker::Again);
        if now.since(waiting.since) >= ANSWER {
            return false;
        }
        waiting.sent = None;
        let queue = if is_first { &mut table.again } else { &mut table.unsent };
        queue.push_back(cookie);
        drop(table);
        self.wake.notify_one();
        true
    }

    /// The answer to a request of this connection.
    pub(crate) fn answer(&self, lane: Lane, cookie: u64, result: io::Result<Bytes>) {
        let mut table = self.table.lock();
        if table.session != lane.session {
            return;
        }
        let Some(waiting) = table.waiting.remove(&cookie) else { return };
        let may_go_on = table.note(&waiting, result.is_ok());
        // Also a flush sent before the loss, and again after it.
        let tells_loss = waiting.is_callers_flush() && std::mem::take(&mut table.is_lost);
        let result = if tells_loss { Err(ServerError::UnflushedLost.into()) } else { result };
        if table.unflushed.is_much() && !table.has_own_flush {
            table.has_own_flush = true;
            table.add(Ask::bare(Kind::Flush, 0, 0), Asker::Own, self.runtime.now());
            self.wake.notify_one();
        }
        let is_over = table.is_over();
        drop(table);
        if may_go_on || is_over {
            self.wake.notify_waiters();
        }
        if is_over {
            self.closed.notify_one();
        }
        waiting.tell(result);
    }
}

/// This long before.
fn at(now: Instant, before: Duration) -> Instant {
    Instant::default() + now.since(Instant::default()).saturating_sub(before)
}

impl Table {
    fn add(&mut self, ask: Ask, asker: Asker, since: Instant) {
        self.cookie += 1;
        let queue = if matches!(asker, Asker::Again) { &mut self.again } else { &mut self.unsent };
        queue.push_back(self.cookie);
        let covers = self.unflushed.number();
        self.waiting.insert(self.cookie, Waiting { ask: Arc::new(ask), asker, since, sent: None, covers });
    }

    fn is_over(&self) -> bool {
        self.is_closed && !self.waiting.values().any(|waiting| matches!(waiting.asker, Asker::Caller(_)))
    }

    fn take(&mut self, lane: Lane, now: Instant, most: usize) -> Vec<(u64, Arc<Ask>)> {
        let queue = match self.again_left {
            0 => &mut self.unsent,
            _ => &mut self.again,
        };
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < most && bytes < BATCH_BYTES {
            let Some(cookie) = queue.pop_front() else { break };
            if let Some(waiting) = self.waiting.get_mut(&cookie) {
                waiting.sent = Some((lane.number, now));
                bytes += if waiting.ask.kind == Kind::Write { waiting.ask.len } else { 0 };
                batch.push((cookie, waiting.ask.clone()));
            }
        }
        batch
    }

    /// Notes an answer for a later repetition. Returns whether other requests may now follow repeated writes.
    fn note(&mut self, waiting: &Waiting, is_done: bool) -> bool {
        let ask = &waiting.ask;
        match (&waiting.asker, ask.kind) {
            (Asker::Again, _) => {
                self.is_lost |= !is_done;
                self.again_left -= 1;
                return self.again_left == 0;
            }
            (asker, Kind::Flush) => {
                let is_own = matches!(asker, Asker::Own);
                self.has_own_flush &= !is_own;
                // The server reports an error once; the next flush of a caller passes it on.
                self.is_lost |= is_own && !is_done;
                self.unflushed.flushed(waiting.covers);
            }
            (_, Kind::Write | Kind::Zeroes) if is_done && !ask.is_through => {
                self.unflushed.keep(ask.offset, &ask.data);
            }
            (_, Kind::Write | Kind::Zeroes | Kind::Trim) if is_done => {
                self.unflushed.cut(ask.offset, ask.len.into());
            }
            _ => {}
        }
        false
    }
}

impl Waiting {
    /// Writes of our own are found again among the unflushed ones, and flushes when due.
    fn is_repeatable(&self) -> bool {
        matches!(self.asker, Asker::Caller(_))
    }

    fn is_callers_flush(&self) -> bool {
        self.ask.kind == Kind::Flush && matches!(self.asker, Asker::Caller(_))
    }

    fn tell(self, result: io::Result<Bytes>) {
        if let Asker::Caller(tell) = self.asker {
            // The caller may be gone.
            drop(tell.send(result));
        }
    }
}
