//! Requests to a store, repeated until answered, or a deadline has passed.
//!
//! Idea: a failing or busy store is asked again, at growing intervals with jitter. All requests of a disk
//! share a number of places: a busy store halves it, and answers raise it again, as TCP does. A read much
//! slower than others is sent twice, and the first answer counts.
//!
//! Repetition is harmless: names of segments and maps are never used twice, so "exists" means "mine". Commits
//! are compared with the one that exists ([`crate::log`]).
//!
//! Locking: relaxed atomics, and tokio's semaphore.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cenote_runtime::Runtime;
use futures::future::{Either, select};
use tokio::sync::Semaphore;

use crate::counts::{Counts, Kind};
use crate::store::{Body, Call, Created, Store, StoreError};

/// Requests under way at once, at most and at least.
const PLACES: usize = 32;
const PLACES_MIN: usize = 4;
/// A place is added after this number of answers.
const ANSWERS_PER_PLACE: u64 = 16;
/// First and longest interval between two tries.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A read is sent twice after this multiple of the usual time, and not before this time.
const HEDGE_TIMES: u64 = 4;
const HEDGE_MIN: Duration = Duration::from_millis(100);
/// At most one read in this number is sent twice.
const HEDGE_SHARE: u64 = 16;

/// How long to wait for a store.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For one answer.
    pub answer: Duration,
    /// For an answer to any of the tries.
    pub deadline: Duration,
}

impl Patience {
    /// For disks of pools.
    pub const USUAL: Patience =
        Patience { answer: Duration::from_secs(10), deadline: Duration::from_secs(30) };
}

pub(crate) struct Patient {
    store: Arc<dyn Store>,
    pub(crate) runtime: Runtime,
    patience: Patience,
    pub(crate) counts: Arc<Counts>,
    places: Semaphore,
    /// Places in the semaphore, taken or not.
    width: AtomicUsize,
    answers: AtomicU64,
    /// Usual time of a read.
    read_ns: AtomicU64,
    reads: AtomicU64,
    hedges: Arc<AtomicU64>,
}

impl Patient {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        patience: Patience,
        counts: Arc<Counts>,
        runtime: &Runtime,
    ) -> Patient {
        Patient {
            store,
            runtime: runtime.clone(),
            patience,
            counts,
            places: Semaphore::new(PLACES),
            width: AtomicUsize::new(PLACES),
            answers: AtomicU64::new(0),
            read_ns: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            hedges: Arc::default(),
        }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Creates an object with a name of this writer alone.
    pub(crate) async fn create(&self, key: &str, body: &Body) -> Result<Created, StoreError> {
        let bytes = body.iter().map(|piece| piece.len() as u64).sum();
        let created = self.repeat(Kind::Put, || self.store.create(key, body.clone())).await?;
        self.counts.sent(bytes);
        Ok(created)
    }

    pub(crate) async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, StoreError> {
        let begun = self.runtime.now();
        let bytes = self.repeat(Kind::Get, || self.hedged(key, range.clone())).await?;
        if range.as_ref().is_some_and(|range| range.end - range.start != bytes.len() as u64) {
            return Err(StoreError::Malformed(format!("{key}: {} bytes came", bytes.len()).into()));
        }
        self.counts.received(bytes.len() as u64);
        // A moving average over some sixteen reads.
        let (took, usual) = (self.runtime.now().since(begun).as_nanos() as u64, &self.read_ns);
        let before = usual.load(Ordering::Relaxed);
        usual.store(if before == 0 { took } else { before - before / 16 + took / 16 }, Ordering::Relaxed);
        Ok(bytes)
    }

    fn hedged(&self, key: &str, range: Option<Range<u64>>) -> Call<Bytes> {
        let first = self.store.read(key, range.clone());
        let usual = self.read_ns.load(Ordering::Relaxed);
        let hedges = self.hedges.load(Ordering::Relaxed);
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        if usual == 0 || hedges * HEDGE_SHARE > reads {
            return first;
        }
        let wait = Duration::from_nanos(usual.saturating_mul(HEDGE_TIMES)).max(HEDGE_MIN);
        let (runtime, counts) = (self.runtime.clone(), self.counts.clone());
        let (store, key, hedges) = (self.store.clone(), key.to_owned(), self.hedges.clone());
        Box::pin(async move {
            let timer = Box::pin(async move { runtime.sleep(wait).await });
            let first = match select(first, timer).await {
                Either::Left((answer, _)) => return answer,
                Either::Right(((), first)) => first,
            };
            hedges.fetch_add(1, Ordering::Relaxed);
            counts.hedge();
            counts.ask(Kind::Get);
            match select(first, store.read(&key, range)).await {
                Either::Left((Err(error), second)) if error.is_passing() => second.await,
                Either::Right((Err(error), first)) if error.is_passing() => first.await,
                Either::Left((answer, _)) | Either::Right((answer, _)) => answer,
            }
        })
    }

    /// All names that begin with `prefix` and come after `after`.
    pub(crate) async fn list(&self, prefix: &str, after: &str) -> Result<Vec<String>, StoreError> {
        let mut keys: Vec<String> = Vec::new();
        loop {
            let last = keys.last().map_or(after, String::as_str).to_owned();
            let page = self.repeat(Kind::List, || self.store.list(prefix, &last)).await?;
            let is_empty = page.keys.is_empty();
            keys.extend(page.keys);
            if !page.has_more || is_empty {
                return Ok(keys);
            }
        }
    }

    pub(crate) async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.repeat(Kind::Delete, || self.store.delete(key)).await
    }

    /// One try, for the probe.
    pub(crate) async fn once<T>(&self, call: Call<T>) -> Result<T, StoreError> {
        self.counts.ask(Kind::Put);
        let answer = self.runtime.timeout(self.patience.answer, call).await;
        answer.unwrap_or_else(|_| Err(StoreError::Unknown("too late".into())))
    }

    async fn repeat<T: Send>(&self, kind: Kind, call: impl Fn() -> Call<T>) -> Result<T, StoreError> {
        let begun = self.runtime.now();
        let mut pause = PAUSE;
        loop {
            let place = self.places.acquire().await.expect("never closed");
            self.counts.ask(kind);
            let answer = self.runtime.timeout(self.patience.answer, call()).await;
            drop(place);
            let late = || Err(StoreError::Unknown(format!("within {:?}", self.patience.answer).into()));
            let error = match answer.unwrap_or_else(|_| late()) {
                Ok(answer) => {
                    self.widen();
                    return Ok(answer);
                }
                Err(error) if !error.is_passing() => return Err(error),
                Err(error) => error,
            };
            if matches!(error, StoreError::Busy(_)) {
                self.narrow();
            }
            // Half to three halves of the interval.
            let jitter = self.runtime.random_u64() % (pause.as_nanos() as u64);
            let waited = pause / 2 + Duration::from_nanos(jitter);
            if self.runtime.now().since(begun) + waited >= self.patience.deadline {
                return Err(error);
            }
            self.counts.repeat();
            self.runtime.sleep(waited).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn narrow(&self) {
        let width = self.width.load(Ordering::Relaxed);
        let forgotten = self.places.forget_permits((width / 2).min(width.saturating_sub(PLACES_MIN)));
        self.width.fetch_sub(forgotten, Ordering::Relaxed);
    }

    fn widen(&self) {
        let is_time = self.answers.fetch_add(1, Ordering::Relaxed).is_multiple_of(ANSWERS_PER_PLACE);
        if is_time && self.width.load(Ordering::Relaxed) < PLACES {
            self.width.fetch_add(1, Ordering::Relaxed);
            self.places.add_permits(1);
        }
    }
}
