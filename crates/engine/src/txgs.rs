//! Transaction groups: which is open, its holds, and which is on disk.
//!
//! Idea: an operation takes a hold on the open txg, changes memory and lets go. Closing a txg delays new
//! holds until the old ones are gone; so no operation sees two open txgs, and a closed txg changes no more.
//! Closing takes as long as the longest operation under way.
//!
//! ```text
//!   open n --close: new holds wait, old ones end--> open n+1, and n is written
//! ```
//!
//! Locking: two mutexes, never held together nor across an await. Only the holder of `Shared::turn` closes.
//! While `closing` is set, no hold is granted and `holds` only falls.
//!
//! Source: OpenZFS `txg.c`, without its quiescing state.

use std::sync::Arc;

use cenote_format::units::Txg;
use cenote_object::DatasetError;
use cenote_runtime::{Instant, Runtime};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::room::Asked;

pub(crate) struct Txgs {
    state: Mutex<TxgState>,
    /// A hold ended, or the next txg is open.
    changed: Notify,
    /// The last txg on disk, or why no more can be written.
    synced: Mutex<Result<Txg, DatasetError>>,
}

struct TxgState {
    open: Txg,
    /// Initially, when the runtime began.
    opened: Instant,
    holds: u64,
    closing: bool,
}

/// Keeps a txg open until dropped.
pub struct Hold {
    txgs: Arc<Txgs>,
    txg: Txg,
    asked: Option<Asked>,
}

impl Txgs {
    /// `synced` is the last on disk.
    pub(crate) fn after(synced: Txg) -> Txgs {
        let state =
            TxgState { open: Txg(synced.0 + 1), opened: Instant::default(), holds: 0, closing: false };
        Txgs { state: Mutex::new(state), changed: Notify::new(), synced: Mutex::new(Ok(synced)) }
    }

    pub(crate) fn open(&self) -> Txg {
        self.state.lock().open
    }

    pub(crate) fn opened(&self) -> Instant {
        self.state.lock().opened
    }

    /// The last txg on disk.
    ///
    /// # Errors
    /// Why no txg can be written any more.
    pub(crate) fn synced(&self) -> Result<Txg, DatasetError> {
        self.synced.lock().clone()
    }

    /// Takes a hold on the open txg.
    ///
    /// # Errors
    /// Why no txg can be written any more.
    pub(crate) async fn hold(self: &Arc<Txgs>) -> Result<Hold, DatasetError> {
        loop {
            self.synced()?;
            let mut changed = std::pin::pin!(self.changed.notified());
            // Register before checking, or a notification could be missed.
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                if !state.closing {
                    state.holds += 1;
                    return Ok(Hold { txgs: self.clone(), txg: state.open, asked: None });
                }
            }
            changed.await;
        }
    }

    /// Waits for the open txg's holds, runs `freeze` with the next number, and opens that.
    pub(crate) async fn close<T>(&self, runtime: &Runtime, freeze: impl FnOnce(Txg) -> T) -> (Txg, T) {
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
        // First, so that a dataset opened meanwhile, and not frozen, begins in the next txg.
        {
            let mut state = self.state.lock();
            (state.open, state.opened) = (next, runtime.now());
        }
        let frozen = freeze(next);
        self.state.lock().closing = false;
        self.changed.notify_waiters();
        (closed, frozen)
    }

    /// After a failure, no later txg will be on disk.
    pub(crate) fn done(&self, outcome: Result<Txg, DatasetError>) {
        let mut synced = self.synced.lock();
        if synced.is_ok() {
            *synced = outcome;
        }
        drop(synced);
        // Wakes waiting holds, which see the failure.
        self.changed.notify_waiters();
    }
}

impl Hold {
    /// The txg held open.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    pub(crate) fn with(mut self, asked: Asked) -> Hold {
        self.asked = Some(asked);
        self
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.asked = None;
        let mut state = self.txgs.state.lock();
        state.holds -= 1;
        if state.holds == 0 && state.closing {
            drop(state);
            self.txgs.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_runtime::{Runtime, SimConfig};
    use std::time::Duration;

    #[test]
    fn a_txg_closes_when_its_last_holder_lets_go_and_new_ones_get_the_next() {
        let main = |rt: Runtime| async move {
            let txgs = Arc::new(Txgs::after(Txg(4)));
            let first = txgs.hold().await.unwrap();
            assert_eq!(first.txg(), Txg(5));
            let (g, r) = (txgs.clone(), rt.clone());
            let closing = rt.spawn(async move { (g.close(&r, |next| next).await, r.now()) });
            rt.sleep(Duration::from_millis(1)).await;
            let g = txgs.clone();
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
