//! The future of a transfer: done already, or on its way.
//!
//! A warm read is done before its future exists. `BoxFuture` would still pay an allocation for each of millions of such
//! reads; this type does not.

use crate::error::Result;
use futures::future::BoxFuture;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A transfer: a future of `Result<T>`.
#[must_use = "futures do nothing unless awaited"]
pub struct Io<'a, T>(State<'a, T>);

enum State<'a, T> {
    /// `None` once taken.
    Done(Option<Result<T>>),
    Pending(BoxFuture<'a, Result<T>>),
}

impl<'a, T> Io<'a, T> {
    /// A transfer that is done.
    pub fn done(result: Result<T>) -> Io<'a, T> {
        Io(State::Done(Some(result)))
    }

    /// A transfer on its way.
    pub fn pending(future: impl Future<Output = Result<T>> + Send + 'a) -> Io<'a, T> {
        Io(State::Pending(Box::pin(future)))
    }

    /// Looks at the outcome when there is one: at once if the transfer is done, without making it wait.
    pub fn inspect(self, look: impl FnOnce(&Result<T>) + Send + 'a) -> Io<'a, T>
    where
        T: Send + 'a,
    {
        match self.0 {
            State::Done(result) => {
                result.as_ref().inspect(|result| look(result));
                Io(State::Done(result))
            }
            State::Pending(future) => Io::pending(async move {
                let result = future.await;
                look(&result);
                result
            }),
        }
    }

    /// Whether it is done, and awaiting it will not wait.
    pub fn is_done(&self) -> bool {
        matches!(self.0, State::Done(_))
    }
}

// Nothing in it is pinned in place: the pending future has its own box.
impl<T> Unpin for Io<'_, T> {}

impl<T> Future for Io<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            State::Done(result) => Poll::Ready(result.take().expect("a transfer is awaited once")),
            State::Pending(future) => future.as_mut().poll(context),
        }
    }
}
