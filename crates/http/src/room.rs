//! Room for concurrent commands: limits, and eviction of stalled clients.
//!
//! Idea: a client that does not read blocks its command. That is harmless while there is room (people pause
//! downloads), so it has the full patience of [`Patient`](crate::patient::Patient). When room runs out, a new
//! command waits up to [`WAIT`], and the client that has stalled longest, and at least [`GRACE`], is
//! disconnected. A user of this machine, or an address, gets at most half of the room, and at that limit can
//! only displace its own commands.
//!
//! Locking: `inside` is a leaf lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use cenote_disk::Origin;
use cenote_runtime::{Instant, Runtime};
use futures::task::AtomicWaker;
use parking_lot::Mutex;

/// Most concurrent commands.
pub const COMMANDS_MAX: usize = 64;
/// Stall time tolerated when room is short.
const GRACE: Duration = Duration::from_secs(5);
/// Time to wait for room. Longer than `GRACE`, so that a stalled command can be evicted and end.
const WAIT: Duration = Duration::from_secs(7);
/// Interval between attempts.
const TICK: Duration = Duration::from_millis(100);

/// A client's connection. It runs one command at a time.
#[derive(Debug)]
pub struct Connection {
    /// Origin of the client; `None` for root and the daemon's user, who have no limit of their own.
    stranger: Option<Origin>,
    /// Runtime clock, in nanoseconds, when the current stall began, or [`READING`].
    stalled_ns: AtomicU64,
    is_cut: AtomicBool,
    waker: AtomicWaker,
}

/// No write is pending.
const READING: u64 = u64::MAX;

impl Connection {
    /// Creates a connection. `stranger`: origin of a client limited to a share.
    pub fn new(stranger: Option<Origin>) -> Arc<Connection> {
        let (stalled_ns, is_cut) = (READING.into(), false.into());
        Arc::new(Connection { stranger, stalled_ns, is_cut, waker: AtomicWaker::new() })
    }

    /// Records progress of a write.
    pub fn reads(&self) {
        self.stalled_ns.store(READING, Ordering::Relaxed);
    }

    /// Records a stall. Ready once the connection is to be cut.
    pub fn poll_stalls(&self, cx: &mut Context<'_>, now: Instant) -> Poll<()> {
        self.stalled_ns.compare_exchange(READING, now.as_ns(), Ordering::Relaxed, Ordering::Relaxed).ok();
        self.waker.register(cx.waker());
        if self.is_cut.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn stalled(&self, now: Instant) -> Option<Duration> {
        let since_ns = self.stalled_ns.load(Ordering::Relaxed);
        (since_ns != READING).then(|| Duration::from_nanos(now.as_ns().saturating_sub(since_ns)))
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// The room for all commands.
#[derive(Debug)]
pub struct Rooms {
    most: usize,
    inside: Mutex<Vec<Arc<Connection>>>,
}

/// Room held by one command until dropped.
#[derive(Debug)]
pub struct Room {
    rooms: Arc<Rooms>,
    connection: Arc<Connection>,
}

impl Rooms {
    /// Room for `most` commands.
    pub fn new(most: usize) -> Arc<Rooms> {
        Arc::new(Rooms { most, inside: Mutex::default() })
    }

    /// Waits up to [`WAIT`] for room for a connection's next command.
    pub async fn enter(self: &Arc<Rooms>, runtime: &Runtime, connection: &Arc<Connection>) -> Option<Room> {
        let begun = runtime.now();
        loop {
            if let Some(room) = self.try_enter(connection, runtime.now()) {
                return Some(room);
            }
            if runtime.now().since(begun) >= WAIT {
                return None;
            }
            runtime.sleep(TICK).await;
        }
    }

    /// Takes room if available, else cuts the longest-stalled connection past `GRACE`, if any.
    fn try_enter(self: &Arc<Rooms>, connection: &Arc<Connection>, now: Instant) -> Option<Room> {
        let mut inside = self.inside.lock();
        let is_from_there = |other: &Arc<Connection>| other.stranger == connection.stranger;
        let is_share_used = connection.stranger.is_some()
            && inside.iter().filter(|other| is_from_there(other)).count() >= self.most.div_ceil(2);
        if inside.len() < self.most && !is_share_used {
            inside.push(connection.clone());
            return Some(Room { rooms: self.clone(), connection: connection.clone() });
        }
        let others = inside.iter().filter(|other| !is_share_used || is_from_there(other));
        let stalled = others.filter(|other| !other.is_cut.load(Ordering::Relaxed));
        let stalled = stalled.filter_map(|other| Some((other.stalled(now)?, other)));
        if let Some((_, longest)) = stalled.filter(|(span, _)| *span >= GRACE).max_by_key(|(span, _)| *span) {
            longest.cut();
        }
        None
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut inside = self.rooms.inside.lock();
        if let Some(at) = inside.iter().position(|other| Arc::ptr_eq(other, &self.connection)) {
            inside.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use cenote_runtime::SimConfig;

    use super::*;

    /// A client whose command holds room until cut off.
    async fn stall(runtime: &Runtime, room: Room) -> Duration {
        let begun = runtime.now();
        let connection = room.connection.clone();
        poll_fn(|cx| connection.poll_stalls(cx, begun)).await;
        runtime.now().since(begun)
    }

    fn at(last: u8) -> Arc<Connection> {
        Connection::new(Some(Origin::at(std::net::IpAddr::from([192, 0, 2, last]))))
    }

    #[test]
    fn who_reads_nothing_makes_room_for_others() {
        let work = |runtime: Runtime| async move {
            let rooms = Rooms::new(4);
            let mut inside = Vec::new();
            for from in [1, 1, 2, 2] {
                inside.push(rooms.enter(&runtime, &at(from)).await.unwrap());
            }
            let [first, second, third, fourth] = <[Room; 4]>::try_from(inside).unwrap();
            // Two stall, the first for longer; two read.
            let begun = runtime.now();
            let first = async { stall(&runtime, first).await };
            let second = async {
                runtime.sleep(Duration::from_secs(1)).await;
                stall(&runtime, second).await
            };
            let new = async { (rooms.enter(&runtime, &at(3)).await, runtime.now().since(begun)) };
            let both = async {
                futures::select_biased! {
                    after = Box::pin(futures::FutureExt::fuse(first)) => Some(after),
                    _ = Box::pin(futures::FutureExt::fuse(second)) => None,
                }
            };
            let (cut, (entered, waited)) = futures::join!(both, new);
            assert_eq!(cut.unwrap().as_secs(), GRACE.as_secs());
            assert!(entered.is_some() && waited < GRACE + Duration::from_secs(1), "{waited:?}");
            drop((third, fourth));
        };
        Runtime::simulate(SimConfig::default(), work);
    }

    #[test]
    fn clients_that_read_are_not_cut_off_and_an_address_pushes_out_only_its_own() {
        let work = |runtime: Runtime| async move {
            let rooms = Rooms::new(4);
            let mine = [rooms.enter(&runtime, &at(1)).await, rooms.enter(&runtime, &at(1)).await];
            let other = rooms.enter(&runtime, &at(2)).await.unwrap();
            let connection = other.connection.clone();
            poll_fn(|cx| {
                _ = connection.poll_stalls(cx, runtime.now());
                Poll::Ready(())
            })
            .await;
            assert!(rooms.enter(&runtime, &at(1)).await.is_none(), "it has its half");
            assert!(!connection.is_cut.load(Ordering::Relaxed), "of another address");
            assert!(rooms.enter(&runtime, &Connection::new(None)).await.is_some(), "this machine's");
            drop(mine);
            assert_eq!(rooms.inside.lock().len(), 1);
        };
        Runtime::simulate(SimConfig::default(), work);
    }
}
