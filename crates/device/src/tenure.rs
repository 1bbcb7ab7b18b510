//! A machine's tenure of a pool, granted by a witness that all machines of the pool ask.
//!
//! Idea: the witness keeps two promises. Until the lease ends, no other machine gets the pool. And the
//! witness knows which leaves lack data before anything counts as durable without them: a machine that finds
//! only such leaves later is refused the pool.
//!
//! The keeper of the lease is `cenote_ha`; the fence before the devices ([`crate::Fence`]) obeys it.
//!
//! Locking: one atomic.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_runtime::Instant;
use futures::future::BoxFuture;

/// Ends with an error if the pool is lost meanwhile.
pub type Agreed = BoxFuture<'static, Result<(), Arc<str>>>;

type Agree = dyn Fn(BTreeSet<u64>) -> Agreed + Send + Sync;

/// A tenure, at first without a lease. Clones share it.
#[derive(Clone)]
pub struct Tenure {
    until_ns: Arc<AtomicU64>,
    agree: Arc<Agree>,
}

impl Tenure {
    /// `agree` lets the witness know the guids of leaves that lack data.
    pub fn new(agree: impl Fn(BTreeSet<u64>) -> Agreed + Send + Sync + 'static) -> Tenure {
        Tenure { until_ns: Arc::default(), agree: Arc::new(agree) }
    }

    /// Lets writes pass until then; `None`: without limit, because the storage has locks of its own.
    pub fn extend(&self, until: Option<Instant>) {
        self.until_ns.store(until.map_or(u64::MAX, Instant::as_ns), Ordering::Release);
    }

    /// Whether the lease has ended.
    pub fn has_ended(&self, now: Instant) -> bool {
        now.as_ns() > self.until_ns.load(Ordering::Acquire)
    }

    /// Waits until the witness knows that these leaves lack data, by guid.
    ///
    /// # Errors
    /// The pool is lost: another machine has, or may have it.
    pub async fn agree(&self, lacking: BTreeSet<u64>) -> Result<(), Arc<str>> {
        if lacking.is_empty() { Ok(()) } else { (self.agree)(lacking).await }
    }
}
