//! Operations under way in a session, and how it is paused.
//!
//! Idea: an operation begins with a guard and has ended when that is dropped, after its answer has reached
//! the kernel. While a session is paused none begins; those that would wait as tasks, no thread does.
//!
//! Locking: `state` is held for one look or change.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::{Condvar, Mutex};

/// Operations that are there at the same time, before the readers of `/dev/fuse` wait, too.
const OPERATIONS: usize = 1024;

/// Operations under way.
#[derive(Debug, Default)]
pub struct Traffic {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    operations: usize,
    is_paused: bool,
    /// Those that wait for the end of the pause.
    held: Vec<Waker>,
}

/// An operation that has begun.
#[derive(Debug)]
pub struct Underway(Arc<Traffic>);

/// Nothing begins while this lives.
#[derive(Debug)]
pub struct Paused(Arc<Traffic>);

impl Traffic {
    /// Waits until there is room for one more. This blocks.
    pub fn wait_for_room(&self) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.operations + state.held.len() >= OPERATIONS);
    }

    /// One begins, as soon as it may.
    pub async fn begin(self: &Arc<Self>) -> Underway {
        poll_fn(|context| {
            let mut state = self.state.lock();
            if state.is_paused {
                state.held.push(context.waker().clone());
                return Poll::Pending;
            }
            state.operations += 1;
            Poll::Ready(Underway(self.clone()))
        })
        .await
    }

    /// Keeps operations from beginning, calls `hurry`, and waits for those under way. One at a time. This
    /// blocks.
    pub fn pause(self: &Arc<Self>, hurry: impl FnOnce()) -> Paused {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.is_paused);
        state.is_paused = true;
        drop(state);
        hurry();
        self.changed.wait_while(&mut self.state.lock(), |state| state.operations > 0);
        Paused(self.clone())
    }

    /// Whether somebody pauses it, or is about to.
    pub fn is_paused(&self) -> bool {
        self.state.lock().is_paused
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.state.lock().operations -= 1;
        self.0.changed.notify_all();
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let held = {
            let mut state = self.0.state.lock();
            state.is_paused = false;
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(Waker::wake);
        self.0.changed.notify_all();
    }
}
