//! The future of an operation, which may be complete already.
//!
//! Idea: an operation of the kernel can't be taken back. So an [`Io`] only waits: the operation owns its
//! buffers, file and turn among overlapping changes, and goes on if the `Io` is dropped.
//!
//! ```text
//!   call --> Io --polled--> result
//!             | dropped
//!             a task completes the operation; its result is lost
//! ```
//!
//! A warm read is complete before its future exists. `BoxFuture` would still allocate for each of millions of
//! such reads.

use crate::error::Result;
use cenote_runtime::Runtime;
use futures::future::BoxFuture;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An operation of a device. Dropping it does not stop the operation.
#[must_use = "the outcome of an operation is lost; say `drop` if that is meant"]
pub struct Io<T: Send + 'static>(IoState<T>);

enum IoState<T: Send + 'static> {
    Done(Option<Result<T>>),
    UnderWay(UnderWay<T>),
}

struct UnderWay<T: Send + 'static> {
    /// `None` at its end, and while polled, so that no panicked operation is continued.
    steps: Option<BoxFuture<'static, Result<T>>>,
    /// `None` if it never ends.
    runtime: Option<Runtime>,
}

impl<T: Send> Io<T> {
    /// A completed operation.
    pub fn done(result: Result<T>) -> Io<T> {
        Io(IoState::Done(Some(result)))
    }

    /// An operation with steps left.
    pub fn pending(runtime: &Runtime, steps: impl Future<Output = Result<T>> + Send + 'static) -> Io<T> {
        Io(IoState::UnderWay(UnderWay { steps: Some(Box::pin(steps)), runtime: Some(runtime.clone()) }))
    }

    /// An operation lost by the device: it neither ends nor does anything.
    pub fn never() -> Io<T> {
        let steps: BoxFuture<'static, Result<T>> = Box::pin(std::future::pending());
        Io(IoState::UnderWay(UnderWay { steps: Some(steps), runtime: None }))
    }

    /// Maps the result once there is one.
    pub fn map<U: Send>(self, make: impl FnOnce(Result<T>) -> Result<U> + Send + 'static) -> Io<U> {
        match self.0 {
            IoState::Done(result) => Io::done(make(taken(result))),
            IoState::UnderWay(under_way) => under_way.chain(|steps| async move { make(steps.await) }),
        }
    }

    /// Both operations, the second once the first has succeeded.
    pub fn then<U: Send>(self, next: impl FnOnce(T) -> Io<U> + Send + 'static) -> Io<U> {
        match self.0 {
            IoState::Done(result) => match taken(result) {
                Ok(done) => next(done),
                Err(error) => Io::done(Err(error)),
            },
            IoState::UnderWay(first) => first.chain(|steps| async move { next(steps.await?).await }),
        }
    }

    /// Keeps a value until the operation is over.
    pub fn holding(self, kept: impl Send + 'static) -> Io<T> {
        self.map(move |result| {
            drop(kept);
            result
        })
    }

    /// Inspects the result once there is one.
    pub fn inspect(self, look: impl FnOnce(&Result<T>) + Send + 'static) -> Io<T> {
        self.map(move |result| {
            look(&result);
            result
        })
    }

    /// Whether awaiting it does not wait.
    pub fn is_done(&self) -> bool {
        matches!(self.0, IoState::Done(_))
    }
}

fn taken<T>(result: Option<T>) -> T {
    result.expect("an operation is awaited once")
}

impl<T: Send> UnderWay<T> {
    fn chain<U: Send, F: Future<Output = Result<U>> + Send + 'static>(
        mut self,
        more: impl FnOnce(BoxFuture<'static, Result<T>>) -> F,
    ) -> Io<U> {
        let (steps, runtime) = (taken(self.steps.take()), self.runtime.take());
        Io(IoState::UnderWay(UnderWay { steps: Some(Box::pin(more(steps))), runtime }))
    }
}

impl<T: Send + 'static> Drop for UnderWay<T> {
    fn drop(&mut self) {
        if let (Some(steps), Some(runtime)) = (self.steps.take(), &self.runtime) {
            runtime.spawn(steps).detach();
        }
    }
}

// Nothing in it is pinned in place: the steps are boxed.
impl<T: Send> Unpin for Io<T> {}

impl<T: Send> Future for Io<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            IoState::Done(result) => Poll::Ready(taken(result.take())),
            IoState::UnderWay(under_way) => {
                let mut steps = taken(under_way.steps.take());
                let polled = steps.as_mut().poll(context);
                if polled.is_pending() {
                    under_way.steps = Some(steps);
                }
                polled
            }
        }
    }
}
