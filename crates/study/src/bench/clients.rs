//! Concurrent clients, each with one operation in flight.

use std::sync::Arc;
use std::time::Duration;

use cenote_runtime::{Instant, Rng};
use parking_lot::Mutex;

use super::pool::Bench;
use crate::error::Result;

/// Client and network time between operations.
const THINKS: Duration = Duration::from_micros(100);
const LASTS: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clients {
    pub(crate) clients: u64,
    pub(crate) operations: u64,
    /// Seeds the clients' choices.
    pub(crate) pass: u64,
}

pub(crate) struct Took {
    /// In ascending order.
    each: Vec<Duration>,
    pub(crate) whole: Duration,
}

impl Took {
    pub(crate) fn operations(&self) -> u64 {
        self.each.len() as u64
    }

    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        self.each.get(self.each.len() * percent / 100).copied().unwrap_or_default()
    }
}

impl Bench {
    /// Runs clients until `operations` are done or [`LASTS`] is over.
    pub(crate) async fn clients<F: Future<Output = Result<()>> + Send + 'static>(
        &self,
        Clients { clients, operations, pass }: Clients,
        operation: impl Fn(Bench, Rng) -> F + Clone + Send + Sync + 'static,
    ) -> Result<Took> {
        let (start, each) = (self.rt.now(), Arc::<Mutex<Vec<Duration>>>::default());
        let is_over = move |now: Instant, done: usize| now.since(start) >= LASTS || done as u64 >= operations;
        let client = |n: u64| {
            let (bench, each, operation) = (self.clone(), each.clone(), operation.clone());
            async move {
                let mut seeds = Rng::new(pass << 8 | n);
                while !is_over(bench.rt.now(), each.lock().len()) {
                    bench.rt.sleep(THINKS).await;
                    let from = bench.rt.now();
                    operation(bench.clone(), Rng::new(seeds.below(u64::MAX))).await?;
                    each.lock().push(bench.rt.now().since(from));
                }
                Ok::<_, crate::error::StudyError>(())
            }
        };
        let tasks: Vec<_> = (0..clients).map(|n| self.rt.spawn(client(n))).collect();
        for task in tasks {
            task.await??;
        }
        let whole = self.rt.now().since(start);
        let mut each = std::mem::take(&mut *each.lock());
        each.sort_unstable();
        Ok(Took { each, whole })
    }
}
