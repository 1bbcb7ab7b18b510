//! Runs steps of writing in tasks of several steps each.

use std::pin::pin;

use cenote_runtime::Runtime;
use futures::{Stream, StreamExt, TryStreamExt};

use crate::error::Result;

/// For each core: one computes while others wait for disks.
const TASKS_PER_CORE: usize = 2;

/// Concurrent steps of a task: their writes meet in the queue and merge.
const STEPS_AT_ONCE: usize = 16;

/// Runs `step` on all items, `per_task` in a task. Results come in order as each task ends, so that memory is
/// released early. One task's worth runs without a task.
pub(super) fn in_batches<I, T, F, Step>(
    runtime: &Runtime,
    items: impl IntoIterator<Item = I>,
    per_task: usize,
    step: F,
) -> impl Stream<Item = Result<Vec<T>>>
where
    I: Send + 'static,
    T: Send + 'static,
    F: Fn(I) -> Step,
    Step: Future<Output = Result<T>> + Send + 'static,
{
    let mut steps = items.into_iter().map(step).peekable();
    let first: Vec<Step> = steps.by_ref().take(per_task).collect();
    if steps.peek().is_none() {
        return futures::stream::once(side_by_side(first)).left_stream();
    }
    let rest = std::iter::from_fn(move || {
        let batch: Vec<Step> = steps.by_ref().take(per_task).collect();
        (!batch.is_empty()).then_some(batch)
    });
    let limit = TASKS_PER_CORE * runtime.parallelism();
    runtime.map_bounded(limit, std::iter::once(first).chain(rest), side_by_side).right_stream()
}

async fn side_by_side<T>(steps: Vec<impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    all(futures::stream::iter(steps).buffered(STEPS_AT_ONCE).map_ok(|done| [done])).await
}

/// The first error is returned after every step has ended: then no block is in flight.
pub(super) async fn all<T>(
    results: impl Stream<Item = Result<impl IntoIterator<Item = T>>>,
) -> Result<Vec<T>> {
    let mut results = pin!(results);
    let (mut all, mut failed) = (Vec::new(), None);
    while let Some(result) = results.next().await {
        match result {
            Ok(done) if failed.is_none() => all.extend(done),
            Ok(_) => {}
            Err(error) => _ = failed.get_or_insert(error),
        }
    }
    failed.map_or(Ok(all), Err)
}
