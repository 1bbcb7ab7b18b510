//! Bounded parallelism: many items, a task each, never more than a limit at once.
//!
//! This is the engine's only form of fan-out: memory and queue depth are `limit` times one item's. Items are
//! taken lazily, the first error stops the rest, and dropping the stream aborts running tasks.

use crate::Runtime;
use crate::task::{AbortOnDrop, JoinError};
use futures::stream::{Stream, StreamExt};
use std::future::Future;

impl Runtime {
    /// Runs `step` in a task per item, at most `limit` at once; results come in order. A panic continues in
    /// the caller.
    pub fn map_bounded<I, F, Step>(
        &self,
        limit: usize,
        items: I,
        step: F,
    ) -> impl Stream<Item = Step::Output> + use<I, F, Step>
    where
        I: IntoIterator,
        F: FnMut(I::Item) -> Step,
        Step: Future<Output: Send + 'static> + Send + 'static,
    {
        self.map_bounded_stream(limit, futures::stream::iter(items), step)
    }

    /// [`Runtime::map_bounded`] over a stream.
    pub fn map_bounded_stream<S, F, Step>(
        &self,
        limit: usize,
        items: S,
        mut step: F,
    ) -> impl Stream<Item = Step::Output> + use<S, F, Step>
    where
        S: Stream,
        F: FnMut(S::Item) -> Step,
        Step: Future<Output: Send + 'static> + Send + 'static,
    {
        let runtime = self.clone();
        items.map(move |item| joined(runtime.spawn(step(item)).abort_on_drop())).buffered(limit.max(1))
    }

    /// Runs `step` on every item, at most `limit` at once; returns the first error in the items' order.
    pub async fn for_each_bounded<I, F, Step, E>(&self, limit: usize, items: I, step: F) -> Result<(), E>
    where
        I: IntoIterator,
        F: FnMut(I::Item) -> Step,
        Step: Future<Output = Result<(), E>> + Send + 'static,
        E: Send + 'static,
    {
        let mut results = std::pin::pin!(self.map_bounded(limit, items, step));
        while let Some(result) = results.next().await {
            result?;
        }
        Ok(())
    }
}

async fn joined<T>(task: AbortOnDrop<T>) -> T {
    match task.await {
        Ok(output) => output,
        Err(JoinError::Panicked(message)) => panic!("{message}"),
        // Only a runtime that shuts down can cancel it, and the caller with it.
        Err(JoinError::Cancelled) => std::future::pending().await,
    }
}
