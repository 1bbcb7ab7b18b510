//! Transaction groups: which one is open, who holds it open, what is on disk.
//!
//! Idea: an operation takes a hold on the open group, changes memory and lets go. To close a group, new holds are kept waiting
//! until the old ones are gone; so no operation sees two open groups, and a closed group changes no more. That takes as long as
//! the longest operation under way, once a group.
//!
//! ```text
//!   open n --close: new holds wait, old ones end--> open n+1, and n is written
//! ```
//!
//! Source: OpenZFS `txg.c`, with quiescing made a moment rather than a state.

use std::sync::Arc;

use cenote_format::units::Txg;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::room::Asked;
use crate::error::DatasetError;

/// The groups of a pool.
pub(super) struct Groups {
    state: Mutex<State>,
    /// A hold ended, or the next group is open.
    changed: Notify,
    /// The last group on disk, or why there will be no further one.
    synced: Mutex<Result<Txg, DatasetError>>,
}

struct State {
    open: Txg,
    holds: u64,
    closing: bool,
}

/// A hold on the open group: it is not closed before this is dropped.
pub struct Hold {
    groups: Arc<Groups>,
    txg: Txg,
    asked: Option<Asked>,
}

impl Groups {
    /// The next group after `synced`, the last on disk, is open.
    pub(super) fn after(synced: Txg) -> Groups {
        let state = State { open: Txg(synced.0 + 1), holds: 0, closing: false };
        Groups { state: Mutex::new(state), changed: Notify::new(), synced: Mutex::new(Ok(synced)) }
    }

    /// The group that is open.
    pub(super) fn open(&self) -> Txg {
        self.state.lock().open
    }

    /// The last group on disk.
    ///
    /// # Errors
    /// Why no group can be written any more.
    pub(super) fn synced(&self) -> Result<Txg, DatasetError> {
        self.synced.lock().clone()
    }

    /// Takes a hold on the open group.
    ///
    /// # Errors
    /// Why no group can be written any more.
    pub(super) async fn hold(self: &Arc<Groups>) -> Result<Hold, DatasetError> {
        loop {
            self.synced()?;
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the look, or the last notice could fall between the two.
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                if !state.closing {
                    state.holds += 1;
                    return Ok(Hold { groups: self.clone(), txg: state.open, asked: None });
                }
            }
            changed.await;
        }
    }

    /// Closes the open group: waits until nobody holds it, runs `freeze` with the next group's number, and opens that.
    pub(super) async fn close<T>(&self, freeze: impl FnOnce(Txg) -> T) -> (Txg, T) {
        self.state.lock().closing = true;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state.lock().holds == 0 {
                break;
            }
            changed.await;
        }
        let closed = self.open();
        let next = Txg(closed.0 + 1);
        // First, so that a dataset that is opened meanwhile, and not frozen, begins in the next group.
        self.state.lock().open = next;
        let frozen = freeze(next);
        self.state.lock().closing = false;
        self.changed.notify_waiters();
        (closed, frozen)
    }

    /// A group is on disk, or can't be brought there.
    pub(super) fn done(&self, outcome: Result<Txg, DatasetError>) {
        *self.synced.lock() = outcome;
    }
}

impl Hold {
    /// The group held open.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// For a change that has asked for room.
    pub(super) fn with(mut self, asked: Asked) -> Hold {
        self.asked = Some(asked);
        self
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.asked = None;
        let mut state = self.groups.state.lock();
        state.holds -= 1;
        if state.holds == 0 && state.closing {
            drop(state);
            self.groups.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_runtime::{Runtime, SimConfig};
    use std::time::Duration;

    #[test]
    fn a_group_closes_when_its_last_holder_lets_go_and_new_ones_get_the_next() {
        let main = |rt: Runtime| async move {
            let groups = Arc::new(Groups::after(Txg(4)));
            let first = groups.hold().await.unwrap();
            assert_eq!(first.txg(), Txg(5));
            let (g, r) = (groups.clone(), rt.clone());
            let closing = rt.spawn(async move { (g.close(|next| next).await, r.now()) });
            rt.sleep(Duration::from_millis(1)).await;
            let g = groups.clone();
            let late = rt.spawn(async move { g.hold().await.unwrap().txg() });
            rt.sleep(Duration::from_millis(1)).await;
            let let_go = rt.now();
            drop(first);
            let ((closed, next), at) = closing.await.unwrap();
            assert_eq!((closed, next), (Txg(5), Txg(6)));
            assert!(at >= let_go);
            assert_eq!(late.await.unwrap(), Txg(6));
        };
        Runtime::simulate(SimConfig::default(), main);
    }
}
