//! Pools that the daemon should have and can't open: it keeps them, and tries again.
//!
//! ```text
//!   record, or named at the start --> does not open --> waits 0.25 s, 0.5 s ... 30 s --> opens
//!                                                         '--- export: forgotten
//! ```
//!
//! Idea: at a start anything may be missing for a while: disks of a slow controller, a network, a predecessor
//! that has not let go yet. So a reason not to open is never a reason to forget. The first tries come soon,
//! as most reasons pass in a moment.
//!
//! Locking: the table is locked for one look or change.

use std::time::Duration;

use cenote_format::units::Guid;
use cenote_runtime::{Instant, Runtime};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::record::NotedPool;

/// The time before the second try; each later one comes after twice the time.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);
/// The longest time between two tries.
const LAST_INTERVAL: Duration = Duration::from_secs(30);

/// A pool that waits.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// What is known of it.
    pub pool: NotedPool,
    /// Why it does not open.
    pub why: String,
    /// Since when it waits.
    pub since: Instant,
    /// Tries so far.
    pub tries: u32,
    /// When it is tried again.
    pub next: Instant,
}

/// All that wait.
#[derive(Default)]
pub struct WaitingPools {
    table: Mutex<Vec<Waiting>>,
    changed: Notify,
}

impl WaitingPools {
    /// A pool did not open. Answers whether the reason is a new one.
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

    /// A pool is open. Answers whether it waited.
    pub fn opened(&self, name: &str, guid: Guid) -> bool {
        self.take_out(|pool| pool.is(name, guid))
    }

    /// Forgets a pool, by name or guid. Answers whether it waited.
    pub fn forget(&self, name: &str) -> bool {
        self.take_out(|pool| is_meant(pool, name))
    }

    fn take_out(&self, is_meant: impl Fn(&NotedPool) -> bool) -> bool {
        let mut table = self.table.lock();
        let before = table.len();
        table.retain(|waiting| !is_meant(&waiting.pool));
        table.len() < before
    }

    /// All that wait.
    pub fn all(&self) -> Vec<Waiting> {
        self.table.lock().clone()
    }

    /// Those of this name or guid.
    pub fn named(&self, name: &str) -> Vec<Waiting> {
        let table = self.table.lock();
        table.iter().filter(|waiting| is_meant(&waiting.pool, name)).cloned().collect()
    }

    /// Waits until it is time to try the next one.
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

/// The time after so many tries.
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
