//! Timers by virtual time. An ordered map rather than a heap, because most timers are cancelled timeouts.

use super::Simulation;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Instant in nanoseconds, then order of creation: unique and fair.
type TimerKey = (u64, u64);

#[derive(Default)]
pub(super) struct Timers {
    set: BTreeMap<TimerKey, Waker>,
    made: u64,
}

impl Timers {
    /// Takes all timers of the next instant.
    pub(super) fn take_next(&mut self) -> Option<(u64, Vec<Waker>)> {
        let (&(at_ns, _), _) = self.set.first_key_value()?;
        let mut due = Vec::new();
        while let Some(entry) = self.set.first_entry().filter(|entry| entry.key().0 == at_ns) {
            due.push(entry.remove());
        }
        Some((at_ns, due))
    }
}

/// Dropping it cancels the timer.
pub(crate) struct Sleep<'a> {
    sim: &'a Simulation,
    until: Instant,
    key: Option<TimerKey>,
}

impl<'a> Sleep<'a> {
    pub(super) fn until(sim: &'a Simulation, until: Instant) -> Sleep<'a> {
        Sleep { sim, until, key: None }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.sim.state.lock();
        if state.now_ns >= self.until.as_ns() {
            return Poll::Ready(());
        }
        let key = self.key.unwrap_or_else(|| {
            state.timers.made += 1;
            (self.until.as_ns(), state.timers.made)
        });
        let replaced = state.timers.set.insert(key, context.waker().clone());
        drop(state);
        drop(replaced); // a waker's destructor is foreign code and must not run under our lock
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let cancelled = self.sim.state.lock().timers.set.remove(&key);
            drop(cancelled);
        }
    }
}
