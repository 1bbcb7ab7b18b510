//! Operations under way in a session, and its pauses.
//!
//! Idea: an operation is under way until its guard is dropped, after its answer has reached the kernel.
//! During a pause none begins; held ones wait as tasks.
//!
//! An operation may need the kernel to write back pages, for which the kernel needs other operations. Such an
//! operation steps aside: it does not count as under way, so a pause does not wait for it. Few may do so,
//! because each takes up one of the kernel's request slots.
//!
//! Too many operations leave the next requests in the kernel's queue, until one has ended ([`Unread`]).
//!
//! Locking: `state` is held for one look or change. Only tasks wait.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use crate::readers::Unread;

/// Most operations, running and held, before no request is read from `/dev/fuse`.
const OPERATIONS: usize = 1024;

/// Most operations standing aside: fewer than a ring queue has slots.
const ASIDE: usize = 2;

#[derive(Debug, Default)]
pub struct Traffic {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    operations: usize,
    aside: usize,
    is_paused: bool,
    /// Held by the pause.
    held: Vec<Waker>,
    /// Pauses that wait for operations under way, or for another pause to end.
    pausing: Vec<Waker>,
    /// To be read when there is room.
    unread: Option<Unread>,
}

/// An operation under way.
#[derive(Debug)]
pub struct Underway(Arc<Traffic>);

/// An operation that stands aside; it must come back before it ends.
#[derive(Debug)]
pub struct Aside {
    traffic: Arc<Traffic>,
    is_back: bool,
}

/// No operation begins while it lives.
#[derive(Debug)]
pub struct Paused(Arc<Traffic>);

impl Traffic {
    /// Whether a further request may be read; otherwise `unread` is used when one may.
    pub fn has_room(&self, unread: Unread) -> bool {
        let mut state = self.state.lock();
        if !state.has_room() {
            state.unread = Some(unread);
        }
        state.has_room()
    }

    /// Begins an operation, after the pause if any.
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

    /// Lets an operation step aside. `None`: too many do.
    pub fn step_aside(self: &Arc<Self>) -> Option<Aside> {
        let mut state = self.state.lock();
        if state.aside >= ASIDE {
            return None;
        }
        state.aside += 1;
        state.operations -= 1;
        drop(state);
        self.has_ended();
        Some(Aside { traffic: self.clone(), is_back: false })
    }

    /// Holds back new operations, calls `hurry`, and waits for those under way. One pause at a time. Dropped
    /// early, it ends.
    pub async fn pause(self: &Arc<Self>, hurry: impl FnOnce()) -> Paused {
        let paused = poll_fn(|context| {
            let mut state = self.state.lock();
            if state.is_paused {
                state.pausing.push(context.waker().clone());
                return Poll::Pending;
            }
            state.is_paused = true;
            Poll::Ready(Paused(self.clone()))
        })
        .await;
        hurry();
        poll_fn(|context| {
            let mut state = self.state.lock();
            if state.operations > 0 {
                state.pausing.push(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        paused
    }

    /// An operation has ended, or stands aside.
    fn has_ended(&self) {
        let (pausing, unread) = {
            let mut state = self.state.lock();
            let unread = if state.has_room() { state.unread.take() } else { None };
            (std::mem::take(&mut state.pausing), unread)
        };
        pausing.into_iter().for_each(Waker::wake);
        if let Some(unread) = unread {
            unread.again();
        }
    }

    pub fn is_paused(&self) -> bool {
        self.state.lock().is_paused
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.operations + self.held.len() < OPERATIONS
    }
}

impl Underway {
    /// Whether a pause waits for it.
    pub fn is_paused(&self) -> bool {
        self.0.is_paused()
    }
}

impl Aside {
    /// Continues, after the pause if any.
    pub async fn back(mut self) {
        poll_fn(|context| {
            let mut state = self.traffic.state.lock();
            if state.is_paused {
                state.held.push(context.waker().clone());
                return Poll::Pending;
            }
            state.aside -= 1;
            state.operations += 1;
            Poll::Ready(())
        })
        .await;
        self.is_back = true;
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_back {
            let mut state = self.traffic.state.lock();
            state.aside -= 1;
            state.operations += 1;
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.state.lock().operations -= 1;
        self.0.has_ended();
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
        self.0.has_ended();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_pause_does_not_wait_for_an_operation_that_stands_aside_and_keeps_it_there() {
        let traffic = Arc::<Traffic>::default();
        let underway = ready(traffic.begin()).unwrap();
        let aside = traffic.step_aside().unwrap();
        let paused = ready(traffic.pause(|| {})).unwrap();
        let mut back = Box::pin(aside.back());
        assert!(back.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(paused);
        assert!(back.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        drop((back, underway));
        assert_eq!(traffic.state.lock().operations, 0);
    }

    #[test]
    fn a_pause_waits_for_operations_and_for_another_pause() {
        let traffic = Arc::<Traffic>::default();
        let underway = ready(traffic.begin()).unwrap();
        let mut first = Box::pin(traffic.pause(|| {}));
        let mut second = Box::pin(traffic.pause(|| {}));
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(underway);
        let Poll::Ready(paused) = first.as_mut().poll(&mut context) else { panic!("nothing is under way") };
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(paused);
        assert!(second.as_mut().poll(&mut context).is_ready());
        assert!(ready(traffic.begin()).is_some(), "a pause that was given up holds nothing");
    }

    #[test]
    fn few_stand_aside_at_a_time() {
        let traffic = Arc::<Traffic>::default();
        let underway: Vec<Underway> = (0..4).map(|_| ready(traffic.begin()).unwrap()).collect();
        let aside: Vec<Option<Aside>> = underway.iter().map(|_| traffic.step_aside()).collect();
        assert_eq!(aside.iter().flatten().count(), ASIDE);
        drop((aside, underway));
        let state = traffic.state.lock();
        assert_eq!((state.operations, state.aside), (0, 0));
    }
}
