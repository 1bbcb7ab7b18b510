//! Pools that the daemon should have but can't open: keeps them and retries.
//!
//! ```text
//!   record, or named at the start --> does not open --> waits 0.25 s, 0.5 s ... 30 s --> opens
//!                                                         '--- export: forgotten
//! ```
//!
//! Idea: at startup anything may be late: disks of a slow controller, a network, an ending predecessor. So
//! the daemon never forgets a pool that fails to open. The first retries come soon, as most causes are brief.
//!
//! Locking: the table is locked for one look or change.

use std::time::Duration;

use cenote_format::units::Guid;
use cenote_runtime::{Instant, Runtime};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::record::NotedPool;

/// Delay of the first retry; doubles with each further one.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);
const LAST_INTERVAL: Duration = Duration::from_secs(30);

/// A waiting pool.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The recorded pool.
    pub pool: NotedPool,
    /// The last error.
    pub why: String,
    /// Start of the wait.
    pub since: Instant,
    /// Tries so far.
    pub tries: u32,
    /// Time of the next try.
    pub next: Instant,
}

/// All waiting pools.
#[derive(Default)]
pub struct WaitingPools {
    table: Mutex<Vec<Waiting>>,
    changed: Notify,
}

impl WaitingPools {
    /// Adds a pool after a failure to open it. Returns whether the reason is new.
    pub fn add(&self, runtime: &Runtime, pool: NotedPool, why: &str) -> bool {
        let now = runtime.now();
        let is_new = {
            let mut table = self.table.lock();
            match table.iter_mut().find(|waiting| waiting.pool == pool) {
                Some(waiting) => {
                    waiting.next = now + interval(waiting.tries);
                    waiting.tries += 1;
                    std::mem::replace(&mut waiting.why, why.into()) != why
                }
                None => {
                    let next = now + interval(0);
                    table.push(Waiting { pool, why: why.into(), since: now, tries: 1, next });
                    true
                }
            }
        };
        self.changed.notify_one();
        is_new
    }

    /// Removes an opened pool. Returns whether it waited.
    pub fn opened(&self, name: &str, guid: Guid) -> bool {
        self.take_out(|pool| pool.is(name, guid))
    }

    /// Forgets a pool, by name or guid. Returns whether it waited.
    pub fn forget(&self, name: &str) -> bool {
        self.take_out(|pool| is_meant(pool, name))
    }

    fn take_out(&self, is_meant: impl Fn(&NotedPool) -> bool) -> bool {
        let mut table = self.table.lock();
        let before = table.len();
        table.retain(|waiting| !is_meant(&waiting.pool));
        table.len() < before
    }

    /// All waiting pools.
    pub fn all(&self) -> Vec<Waiting> {
        self.table.lock().clone()
    }

    /// Waiting pools with this name or guid.
    pub fn named(&self, name: &str) -> Vec<Waiting> {
        let table = self.table.lock();
        table.iter().filter(|waiting| is_meant(&waiting.pool, name)).cloned().collect()
    }

    /// Waits until the next pool is due.
    pub async fn next(&self, runtime: &Runtime) -> NotedPool {
        loop {
            let changed = self.changed.notified();
            let first = self.all().into_iter().min_by_key(|waiting| waiting.next);
            let Some(first) = first else {
                changed.await;
                continue;
            };
            let left = first.next.as_ns().saturating_sub(runtime.now().as_ns());
            if left == 0 {
                return first.pool;
            }
            runtime.timeout(Duration::from_nanos(left), changed).await.ok();
        }
    }
}

fn is_meant(pool: &NotedPool, name: &str) -> bool {
    pool.name == name || pool.guid != 0 && pool.guid.to_string() == name
}

/// The delay after that many tries.
fn interval(tries: u32) -> Duration {
    FIRST_INTERVAL.saturating_mul(1 << tries.min(16)).min(LAST_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_rare_and_never_end() {
        let rt = Runtime::real(Some(1));
        let waiting = WaitingPools::default();
        let pool = || NotedPool::named("tank");
        assert!(waiting.add(&rt, pool(), "no disks"));
        assert!(!waiting.add(&rt, pool(), "no disks"), "the same reason is told once");
        assert!(waiting.add(&rt, pool(), "in use"));
        assert_eq!(waiting.named("tank")[0].tries, 3);
        assert_eq!(interval(0), FIRST_INTERVAL);
        assert_eq!((interval(7), interval(u32::MAX)), (LAST_INTERVAL, LAST_INTERVAL));
        assert!(!waiting.forget("other") && waiting.opened("tank", Guid(1)));
        assert!(waiting.all().is_empty());
    }

    #[test]
    fn the_one_whose_time_has_come_is_next() {
        let rt = Runtime::real(Some(1));
        let waiting = WaitingPools::default();
        waiting.add(&rt, NotedPool::named("late"), "");
        waiting.add(&rt, NotedPool::named("late"), "");
        waiting.add(&rt, NotedPool::named("soon"), "");
        assert_eq!(rt.block_on(waiting.next(&rt)).name, "soon");
    }
}
