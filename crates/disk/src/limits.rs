//! Limits on clients' memory and time.
//!
//! ```text
//!   half      divided among the possible connections, as a reserve for each
//!   quarter   for requests of any size        at most 32 MiB per client
//!   quarter   for requests up to 1 MiB        at most three quarters of it per client
//! ```
//!
//! Idea: a request holds permits for its bytes until its reply is sent. If it fits into its connection's
//! reserve, it never waits for others. A client is a user, a machine, or one connection of a trusted user. So
//! a client that sends without reading, or promises data that does not arrive, delays only itself.
//!
//! Many such clients do delay others, until detected. So the longer a request waits for memory, the less time
//! messages of other connections get ([`WANTED`]). A connection waits with one request at a time, and small
//! requests do not wait for large ones. So hundreds of stalled connections are gone within the time of a
//! single one without contention.
//!
//! Locking: `clients` while a connection begins, a queue while a request enters or leaves it; both are leaf
//! locks.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cenote_runtime::{Instant, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::origin::Origin;
use crate::stream::{Ended, Result};

/// Bytes per permit.
const UNIT_BYTES: u64 = 4 << 10;
/// A client's limit in the lane for any size.
const CLIENT_BYTES: u64 = 32 << 20;
/// Limit of the lane for small requests.
const SMALL_BYTES: u32 = 1 << 20;

/// Limit for a message's time plus another connection's wait for memory...
const WANTED: Duration = Duration::from_secs(10);
/// ...but a message always gets this time, plus its bytes at a rate every network has. Under contention it
/// gets at most `patience / IMPATIENCE`.
const LEAST: Duration = Duration::from_millis(1500);
const BYTES_PER_S: u32 = 4 << 20;
const IMPATIENCE: u32 = 3;
const TICK: Duration = Duration::from_millis(250);

/// Lanes of shared memory.
const ANY: usize = 0;
const SMALL: usize = 1;

/// Limits shared by all connections.
#[derive(Debug, Clone)]
pub struct Limits {
    runtime: Runtime,
    lanes: [Arc<Semaphore>; 2],
    client_units: [usize; 2],
    own_units: usize,
    /// Requests that wait for memory within their client's limit.
    waiting: Arc<Queue>,
    clients: Arc<Mutex<BTreeMap<Origin, Weak<Client>>>>,
    /// Connections so far.
    count: Arc<AtomicU64>,
    /// Time limit for a message.
    pub patience: Duration,
}

/// Waiting requests: since when, and their connections.
#[derive(Debug, Default)]
struct Queue(Mutex<BTreeSet<(Instant, u64)>>);

#[derive(Debug)]
struct Client {
    parts: [Arc<Semaphore>; 2],
    /// Requests of a client at its limit.
    waiting: Queue,
}

/// One connection's share.
#[derive(Debug, Clone)]
pub struct Share {
    number: u64,
    own: Arc<Semaphore>,
    client: Arc<Client>,
    /// Admits one waiting request at a time.
    turn: Arc<Semaphore>,
}

/// Memory of a request in progress.
#[derive(Debug)]
pub struct Permits {
    _client: OwnedSemaphorePermit,
    _all: Option<OwnedSemaphorePermit>,
}

impl Limits {
    /// Limits for all clients together (at least 256 MiB).
    pub fn new(runtime: &Runtime, memory_bytes: u64, connections: usize) -> Limits {
        let units = memory_bytes.max(8 * CLIENT_BYTES) / UNIT_BYTES / 2;
        let units = (units as usize).min(Semaphore::MAX_PERMITS);
        let lane_units = units / 2;
        Limits {
            runtime: runtime.clone(),
            lanes: [lane_units; 2].map(|units| Arc::new(Semaphore::new(units))),
            client_units: [(CLIENT_BYTES / UNIT_BYTES) as usize, lane_units / 4 * 3],
            own_units: (units / connections.max(1)).max(1),
            waiting: Arc::default(),
            clients: Arc::default(),
            count: Arc::default(),
            patience: Duration::from_secs(60),
        }
    }

    /// Share of a new connection. `from`: its client's origin; `None`: a client of its own.
    pub fn share(&self, from: Option<Origin>) -> Share {
        let new = || {
            let parts = self.client_units.map(|units| Arc::new(Semaphore::new(units)));
            Arc::new(Client { parts, waiting: Queue::default() })
        };
        let client = match from {
            None => new(),
            Some(origin) => {
                let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
                clients.retain(|_, client| client.strong_count() > 0);
                let known = clients.get(&origin).and_then(Weak::upgrade);
                known.unwrap_or_else(|| {
                    let new = new();
                    clients.insert(origin, Arc::downgrade(&new));
                    new
                })
            }
        };
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let [own, turn] = [self.own_units, 1].map(|permits| Arc::new(Semaphore::new(permits)));
        Share { number, own, client, turn }
    }

    /// Waits for permits for this many bytes.
    pub async fn take(&self, share: &Share, bytes: u32) -> Option<Permits> {
        if let Some(permits) = self.try_take(share, bytes) {
            return Some(permits);
        }
        let units = units(bytes);
        let of_all = async {
            let _turn = share.turn.acquire().await.ok()?;
            let place = (self.runtime.now(), share.number);
            if bytes > SMALL_BYTES {
                return self.take_from(ANY, share, units, Some(place)).await;
            }
            tokio::select! {
                biased;
                permits = self.take_from(ANY, share, units, None) => permits,
                permits = self.take_from(SMALL, share, units, Some(place)) => permits,
            }
        };
        if units as usize > self.own_units {
            return of_all.await;
        }
        tokio::select! {
            biased;
            own = share.own.clone().acquire_many_owned(units) => {
                Some(Permits { _client: own.ok()?, _all: None })
            }
            permits = of_all => permits,
        }
    }

    /// `place`: the entry in the queues; `None` if the request has one elsewhere.
    async fn take_from(
        &self,
        lane: usize,
        share: &Share,
        units: u32,
        place: Option<(Instant, u64)>,
    ) -> Option<Permits> {
        let waiting = place.map(|place| Waiting::at(&share.client.waiting, place));
        let _client = share.client.parts[lane].clone().acquire_many_owned(units).await.ok()?;
        drop(waiting);
        let _waiting = place.map(|place| Waiting::at(&self.waiting, place));
        let _all = self.lanes[lane].clone().acquire_many_owned(units).await.ok()?;
        Some(Permits { _client, _all: Some(_all) })
    }

    /// Takes permits if available.
    pub fn try_take(&self, share: &Share, bytes: u32) -> Option<Permits> {
        let units = units(bytes);
        if let Ok(_client) = share.own.clone().try_acquire_many_owned(units) {
            return Some(Permits { _client, _all: None });
        }
        let lanes = if bytes > SMALL_BYTES { &[ANY][..] } else { &[ANY, SMALL] };
        lanes.iter().find_map(|&lane| {
            let _client = share.client.parts[lane].clone().try_acquire_many_owned(units).ok()?;
            let _all = self.lanes[lane].clone().try_acquire_many_owned(units).ok()?;
            Some(Permits { _client, _all: Some(_all) })
        })
    }

    /// Waits within the time limit for a message to be received or sent.
    ///
    /// # Errors
    /// The message's own, or [`Ended::Stalled`].
    pub async fn patiently<T>(
        &self,
        share: &Share,
        bytes: usize,
        message: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut message = pin!(message);
        let begun = self.runtime.now();
        loop {
            let tick = TICK.min(self.patience / IMPATIENCE);
            if let Ok(done) = self.runtime.timeout(tick, &mut message).await {
                return done;
            }
            let now = self.runtime.now();
            let span = now.since(begun);
            if span >= self.patience
                || self.wanted_since(share).is_some_and(|since| {
                    let left = WANTED.saturating_sub(now.since(since)).max(LEAST);
                    let at_that_rate = Duration::from_secs(bytes as u64) / BYTES_PER_S;
                    span >= (left + at_that_rate).min(self.patience / IMPATIENCE)
                })
            {
                return Err(Ended::Stalled);
            }
        }
    }

    /// Since when another connection has waited for memory that this one may hold.
    fn wanted_since(&self, share: &Share) -> Option<Instant> {
        let first = |queue: &Queue| queue.lock().iter().find(|(_, of)| *of != share.number).copied();
        let first = [&self.waiting, &share.client.waiting].into_iter().filter_map(first).min();
        first.map(|(since, _)| since)
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<(Instant, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn units(bytes: u32) -> u32 {
    u64::from(bytes).div_ceil(UNIT_BYTES).max(1) as u32
}

/// A queue entry, until dropped.
struct Waiting<'a>(&'a Queue, (Instant, u64));

impl<'a> Waiting<'a> {
    fn at(queue: &'a Queue, place: (Instant, u64)) -> Waiting<'a> {
        queue.lock().insert(place);
        Waiting(queue, place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use cenote_runtime::SimConfig;
    use futures::FutureExt;

    use super::*;

    const MIB: u32 = 1 << 20;

    fn at(last: u8) -> Option<Origin> {
        Some(Origin::at(std::net::IpAddr::from([192, 0, 2, last])))
    }

    #[test]
    fn who_takes_all_memory_holds_up_nobody_else() {
        let work = |runtime: Runtime| async move {
            let limits = Limits::new(&runtime, 256 << 20, 1024);
            let try_all = |shares: &[Share]| -> Vec<_> {
                shares.iter().filter_map(|share| limits.try_take(share, 32 * MIB)).collect()
            };
            let shares: Vec<Share> = (0..8).map(|_| limits.share(at(1))).collect();
            let taken = try_all(&shares);
            assert_eq!(taken.len(), 1, "32 MiB for one address");
            let others: Vec<_> = (2..6).map(|last| limits.share(at(last))).collect();
            let taken_too = try_all(&others);
            assert_eq!(taken_too.len(), 1, "64 MiB for all");

            // The rest is the lane for small requests.
            let small = |share| (0..99).map_while(|_| limits.try_take(share, MIB)).collect::<Vec<_>>();
            let (small, small_too) = (small(&shares[7]), small(&others[0]));
            assert_eq!((small.len(), small_too.len()), (48, 16));

            let own: Vec<_> = (0..64).map_while(|_| limits.try_take(&others[3], 4096)).collect();
            assert_eq!(own.len(), 32, "out of its own");
            // The next one waits for its connection's own requests.
            let mut waits = std::pin::pin!(limits.take(&others[3], 128 << 10));
            assert!(waits.as_mut().now_or_never().is_none());
            drop(own);
            assert!(waits.now_or_never().is_some_and(|permits| permits.is_some()));
            assert!(limits.waiting.lock().is_empty() && others[3].client.waiting.lock().is_empty());
        };
        Runtime::simulate(SimConfig::default(), work);
    }

    /// Seconds that a stalled message gets, with or without contention.
    fn took(bytes: usize, is_wanted: bool) -> u64 {
        let stalls = |runtime: Runtime| async move {
            let limits = Limits::new(&runtime, 0, 1024);
            let shares = [1, 2].map(|last| limits.share(at(last)));
            let _all = shares.each_ref().map(|share| limits.try_take(share, 32 * MIB).unwrap());
            let other = limits.share(at(3));
            let mut waits = std::pin::pin!(limits.take(&other, 2 * MIB));
            if is_wanted {
                assert!(waits.as_mut().now_or_never().is_none());
            }
            let begun = runtime.now();
            let message = std::future::pending::<Result<()>>();
            let ended = limits.patiently(&shares[0], bytes, message).await;
            assert!(matches!(ended, Err(Ended::Stalled)));
            runtime.now().since(begun).as_secs()
        };
        Runtime::simulate(SimConfig::default(), stalls).0
    }

    #[test]
    fn a_message_takes_less_time_while_somebody_waits_for_memory() {
        assert_eq!((took(1 << 20, false), took(1 << 20, true)), (60, 5));
        assert_eq!((took(64 << 20, false), took(64 << 20, true)), (60, 17));
        assert_eq!(took(1 << 30, true), 20);
    }

    #[test]
    fn who_waits_for_its_own_part_hurries_only_its_own() {
        let work = |runtime: Runtime| async move {
            let limits = Limits::new(&runtime, 0, 1024);
            let [one, same, other] = [1, 1, 2].map(|last| limits.share(at(last)));
            let _taken = limits.try_take(&one, 32 * MIB).unwrap();
            let mut waits = std::pin::pin!(limits.take(&one, 2 * MIB));
            assert!(waits.as_mut().now_or_never().is_none());
            let is_hurried = [&one, &same, &other].map(|share| limits.wanted_since(share).is_some());
            assert_eq!(is_hurried, [false, true, false]);
        };
        Runtime::simulate(SimConfig::default(), work);
    }

    /// Hundreds of connections stop reading; the next one reads.
    #[test]
    fn a_request_comes_through_soon_behind_hundreds_of_clients_that_stall() {
        for (from, sizes, most_s) in [
            (at(1), [MIB, MIB], 20),
            (at(1), [32 * MIB, 32 * MIB], 1),
            (at(1), [MIB, 32 * MIB], 20),
            (None, [MIB, MIB], 20),
            (None, [MIB, 32 * MIB], 20),
        ] {
            let work = move |runtime: Runtime| async move {
                let limits = Limits::new(&runtime, 0, 1024);
                for number in 0..300 {
                    let (limits, share, bytes) = (limits.clone(), limits.share(from), sizes[number % 2]);
                    let stalls = async move {
                        // Takes more and more; ends when its first answer stalls.
                        let Some(_first) = limits.take(&share, bytes).await else { return };
                        let message = std::future::pending::<Result<()>>();
                        let sending = limits.patiently(&share, bytes as usize, message);
                        let asking = async {
                            let mut more = Vec::new();
                            loop {
                                more.push(limits.take(&share, bytes).await);
                            }
                        };
                        tokio::select! { _ = sending => {}, () = asking => {} }
                    };
                    runtime.spawn(stalls).detach();
                }
                runtime.sleep(Duration::from_secs(1)).await;
                let (share, begun) = (limits.share(from), runtime.now());
                assert!(limits.take(&share, MIB).await.is_some());
                runtime.now().since(begun).as_secs()
            };
            let (waited_s, _) = Runtime::simulate(SimConfig::default(), work);
            assert!(waited_s <= most_s, "{waited_s} s behind requests of {sizes:?}");
        }
    }
}
