//! A value whose changes tasks wait for.
//!
//! Idea: tokio's `watch`, but for the order in which waiters wake. tokio spreads them over several lists by
//! its own random numbers, so two runs of one seed would differ. Here they wake in the order of waiting.
//!
//! Locking: the lock of the value is held while it is changed or borrowed, never across an await, and no
//! other lock is taken under it. Between calls, the version has increased with every announced change.

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Changes the value. Its clones change the same one.
pub struct Watched<T>(Arc<Shared<T>>);

/// Waits for changes. A clone has seen the same changes.
pub struct Watcher<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The last [`Watched`] is gone: the value changes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nothing changes this value any more")]
pub struct Closed;

struct Shared<T> {
    state: RwLock<State<T>>,
    changed: Notify,
    /// Number of [`Watched`].
    owners: AtomicUsize,
}

struct State<T> {
    value: T,
    version: u64,
}

impl<T> Watched<T> {
    /// A value that nobody waits for yet.
    pub fn new(value: T) -> Watched<T> {
        let state = RwLock::new(State { value, version: 0 });
        Watched(Arc::new(Shared { state, changed: Notify::new(), owners: AtomicUsize::new(1) }))
    }

    /// The value now. Changes wait while it is borrowed.
    pub fn borrow(&self) -> MappedRwLockReadGuard<'_, T> {
        RwLockReadGuard::map(self.0.state.read(), |state| &state.value)
    }

    /// Changes the value, and wakes those that wait.
    pub fn modify(&self, change: impl FnOnce(&mut T)) {
        self.modify_if(|value| {
            change(value);
            true
        });
    }

    /// As [`Watched::modify`]; wakes nobody if `change` returns false.
    pub fn modify_if(&self, change: impl FnOnce(&mut T) -> bool) {
        let mut state = self.0.state.write();
        if change(&mut state.value) {
            state.version += 1;
            drop(state);
            self.0.changed.notify_waiters();
        }
    }

    /// A watcher that has seen the value as it is.
    pub fn watch(&self) -> Watcher<T> {
        let seen = self.0.state.read().version;
        Watcher { shared: self.0.clone(), seen }
    }
}

impl<T> Shared<T> {
    /// Waits for a version other than the one seen.
    async fn change_after(&self, seen: &mut u64) -> Result<(), Closed> {
        loop {
            let mut change = std::pin::pin!(self.changed.notified());
            // Changes from here on wake this task, so none is missed between the look and the wait.
            change.as_mut().enable();
            let version = self.state.read().version;
            if version != *seen {
                *seen = version;
                return Ok(());
            }
            if self.is_closed() {
                return Err(Closed);
            }
            change.await;
        }
    }

    fn is_closed(&self) -> bool {
        self.owners.load(Ordering::Acquire) == 0
    }
}

impl<T> Watcher<T> {
    /// The value now, which this watcher has seen from now on.
    pub fn see(&mut self) -> MappedRwLockReadGuard<'_, T> {
        let state = self.shared.state.read();
        self.seen = state.version;
        RwLockReadGuard::map(state, |state| &state.value)
    }

    /// Marks all changes so far as seen.
    pub fn catch_up(&mut self) {
        self.seen = self.shared.state.read().version;
    }

    /// Whether there are changes that this watcher has not seen, or none will come.
    pub fn has_news(&self) -> bool {
        self.shared.state.read().version != self.seen || self.shared.is_closed()
    }

    /// Waits for a change that this watcher has not seen, and marks it as seen.
    ///
    /// # Errors
    /// None will come.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        self.shared.change_after(&mut self.seen).await
    }

    /// Waits until the value is as asked; returns at once if it is.
    ///
    /// # Errors
    /// It will never be.
    pub async fn until(
        &mut self,
        mut is_reached: impl FnMut(&T) -> bool,
    ) -> Result<MappedRwLockReadGuard<'_, T>, Closed> {
        let Watcher { shared, seen } = self;
        loop {
            {
                let state = shared.state.read();
                *seen = state.version;
                if is_reached(&state.value) {
                    return Ok(RwLockReadGuard::map(state, |state| &state.value));
                }
            }
            shared.change_after(seen).await?;
        }
    }
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Watched<T> {
        self.0.owners.fetch_add(1, Ordering::Relaxed);
        Watched(self.0.clone())
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        if self.0.owners.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T> Clone for Watcher<T> {
    fn clone(&self) -> Watcher<T> {
        Watcher { shared: self.shared.clone(), seen: self.seen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Runtime, SimConfig};
    use parking_lot::Mutex;

    fn simulated<T>(work: impl AsyncFnOnce(Runtime) -> T) -> T {
        Runtime::simulate(SimConfig::seed(7), |runtime| work(runtime)).0
    }

    /// The order in which forty tasks that wait for one change are polled.
    fn order_of_waiters() -> Vec<usize> {
        simulated(async |runtime| {
            let (value, order) = (Watched::new(0), Arc::new(Mutex::new(Vec::new())));
            let waiters = (0..40).map(|number| {
                let (mut watcher, order) = (value.watch(), order.clone());
                runtime.spawn(async move {
                    watcher.changed().await.expect("an owner");
                    order.lock().push(number);
                })
            });
            let waiters: Vec<_> = waiters.collect();
            runtime.sleep(std::time::Duration::from_millis(1)).await;
            value.modify(|value| *value = 1);
            for waiter in waiters {
                waiter.await.expect("no panic");
            }
            order.lock().clone()
        })
    }

    #[test]
    fn a_seed_wakes_waiters_in_one_order() {
        let first = order_of_waiters();
        assert_eq!(first.len(), 40);
        (0..10).for_each(|_| assert_eq!(order_of_waiters(), first));
    }

    #[test]
    fn a_change_before_the_wait_is_not_missed() {
        simulated(async |_| {
            let value = Watched::new(0);
            let mut watcher = value.watch();
            assert!(!watcher.has_news());
            value.modify(|value| *value = 3);
            value.modify_if(|_| false);
            assert!(watcher.has_news());
            assert_eq!(watcher.changed().await, Ok(()));
            assert!(!watcher.has_news(), "a change that is not announced is no news");
            assert_eq!(watcher.until(|value| *value == 3).await.as_deref(), Ok(&3));
        });
    }

    #[test]
    fn waiters_end_with_the_last_owner() {
        simulated(async |runtime| {
            let value = Watched::new(0);
            let (mut watcher, other) = (value.watch(), value.clone());
            let end = Arc::new(Mutex::new(None));
            let told = end.clone();
            let waiter = runtime.spawn(async move {
                let value = watcher.until(|value| *value == 1).await.map(|value| *value);
                *told.lock() = Some(value);
            });
            drop(value);
            runtime.sleep(std::time::Duration::from_millis(1)).await;
            assert_eq!(*end.lock(), None, "another owner may change it");
            drop(other);
            waiter.await.expect("no panic");
            assert_eq!(*end.lock(), Some(Err(Closed)));
        });
    }
}
