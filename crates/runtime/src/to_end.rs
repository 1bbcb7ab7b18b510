//! Work that, once begun, is completed even without a waiter.
//!
//! Idea: futures may be dropped at any await, but half of a change must not stay. Work that owns everything
//! it needs can change hands: when the waiting future is dropped, a task takes over the rest.
//!
//! ```text
//!   not begun --poll--> under way --poll--> ended
//!       | drop              | drop
//!     nothing            its own task, to the end
//! ```
//!
//! On the usual path this costs one box, and no task.

use crate::Runtime;
use futures::future::BoxFuture;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Waits for work that goes on without it: see [`Runtime::to_end`].
#[must_use = "nothing is done before it is polled"]
pub struct ToEnd<'a, T: Send + 'static> {
    runtime: &'a Runtime,
    /// `None` at its end, and while polled, so that work that panicked is not continued.
    work: Option<BoxFuture<'static, T>>,
    has_begun: bool,
}

impl<'a, T: Send> ToEnd<'a, T> {
    pub(crate) fn new(runtime: &'a Runtime, work: BoxFuture<'static, T>) -> ToEnd<'a, T> {
        ToEnd { runtime, work: Some(work), has_begun: false }
    }
}

impl<T: Send> Future for ToEnd<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.has_begun = true;
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: Send> Drop for ToEnd<'_, T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take().filter(|_| self.has_begun) {
            self.runtime.spawn(work).detach();
        }
    }
}
