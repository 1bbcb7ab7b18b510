//! The future of a transfer, which may be complete already.
//!
//! A warm read is complete before its future exists. `BoxFuture` would still allocate for each of millions
//! of such reads; this type does not.

use crate::error::Result;
use futures::future::BoxFuture;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A transfer: a future of `Result<T>`.
#[must_use = "futures do nothing unless awaited"]
pub struct Io<'a, T>(IoState<'a, T>);

enum IoState<'a, T> {
    /// `None` once taken.
    Done(Option<Result<T>>),
    Pending(BoxFuture<'a, Result<T>>),
}

impl<'a, T> Io<'a, T> {
    /// A transfer that is complete.
    pub fn done(result: Result<T>) -> Io<'a, T> {
        Io(IoState::Done(Some(result)))
    }

    /// A transfer in progress.
    pub fn pending(future: impl Future<Output = Result<T>> + Send + 'a) -> Io<'a, T> {
        Io(IoState::Pending(Box::pin(future)))
    }

    /// Looks at the outcome as soon as there is one: at once if the transfer is complete, without delaying
    /// it.
    pub fn inspect(self, look: impl FnOnce(&Result<T>) + Send + 'a) -> Io<'a, T>
    where
        T: Send + 'a,
    {
        match self.0 {
            IoState::Done(result) => {
                result.as_ref().inspect(|result| look(result));
                Io(IoState::Done(result))
            }
            IoState::Pending(future) => Io::pending(async move {
                let result = future.await;
                look(&result);
                result
            }),
        }
    }

    /// Whether it is complete, so that awaiting it does not wait.
    pub fn is_done(&self) -> bool {
        matches!(self.0, IoState::Done(_))
    }
}

// Nothing in it is pinned in place: the pending future is boxed.
impl<T> Unpin for Io<'_, T> {}

impl<T> Future for Io<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            IoState::Done(result) => Poll::Ready(result.take().expect("a transfer is awaited once")),
            IoState::Pending(future) => future.as_mut().poll(context),
        }
    }
}
