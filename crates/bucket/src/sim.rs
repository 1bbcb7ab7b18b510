//! A simulated object store, for tests.
//!
//! Fault model: requests and answers take time, so they overtake each other. An answer may be lost: the
//! request was carried out, was not, or will be, up to a minute later. The store may be busy. A machine may
//! be cut off: its requests under way are carried out or not, and it hears nothing any more.
//!
//! Locking: one mutex for the objects, held for one request.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cenote_runtime::Runtime;
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::store::{Body, Call, Created, Page, Store, StoreError};

/// Names in one answer to a list.
const PAGE_KEYS: usize = 100;
/// A request without an answer is carried out this late at most.
const LATE: Duration = Duration::from_secs(60);

/// The behaviour of a machine's connection to the store. Chances are per request.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// Time of a request or an answer under way.
    pub latency: Range<Duration>,
    /// Chance that there is no answer.
    pub lost: f64,
    /// Chance that the store is busy.
    pub busy: f64,
    /// Chance that the machine is stopped for a while, before a request and after its answer.
    pub stall: f64,
    /// Longest stop.
    pub longest_stall: Duration,
}

impl Behaviour {
    /// No faults.
    pub fn good() -> Behaviour {
        let latency = Duration::from_millis(5)..Duration::from_millis(50);
        Behaviour { latency, lost: 0.0, busy: 0.0, stall: 0.0, longest_stall: Duration::ZERO }
    }
}

/// A simulated object store, which machines reach by [`SimStore::client`].
#[derive(Clone, Default)]
pub struct SimStore(Arc<Shared>);

#[derive(Default)]
struct Shared {
    objects: Mutex<BTreeMap<String, (Bytes, u64)>>,
    tags: AtomicU64,
    creates: AtomicU64,
    reads: AtomicU64,
    /// Refused or not, conditional replacements are carried out: moto's fault.
    ignores_tags: AtomicBool,
}

/// A machine's connection to the store.
pub struct SimClient {
    store: Arc<Shared>,
    behaviour: Behaviour,
    runtime: Runtime,
    is_cut: Arc<AtomicBool>,
}

impl SimStore {
    /// Connects a machine.
    pub fn client(&self, behaviour: Behaviour, runtime: &Runtime) -> SimClient {
        SimClient { store: self.0.clone(), behaviour, runtime: runtime.clone(), is_cut: Arc::default() }
    }

    /// Names and sizes of all objects.
    pub fn objects(&self) -> Vec<(String, usize)> {
        self.0.objects.lock().iter().map(|(key, (body, _))| (key.clone(), body.len())).collect()
    }

    /// Requests that created an object.
    pub fn creates(&self) -> u64 {
        self.0.creates.load(Ordering::Relaxed)
    }

    /// Reads of objects or parts.
    pub fn reads(&self) -> u64 {
        self.0.reads.load(Ordering::Relaxed)
    }

    /// Makes the store carry out replacements whose condition does not hold.
    pub fn ignore_tags(&self) {
        self.0.ignores_tags.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn put(&self, key: String, body: &Body) -> Created {
        let tag = self.tags.fetch_add(1, Ordering::Relaxed);
        self.creates.fetch_add(1, Ordering::Relaxed);
        self.objects.lock().insert(key, (body.concat().into(), tag));
        Created::New { tag: tag.to_string() }
    }

    fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let missing = || StoreError::Missing(key.into());
        let body = self.objects.lock().get(key).map(|(body, _)| body.clone()).ok_or_else(missing)?;
        let Some(range) = range else { return Ok(body) };
        let outside = || StoreError::Malformed(format!("{key} has {} bytes: {range:?}", body.len()).into());
        let is_within = range.start <= range.end && range.end <= body.len() as u64;
        is_within.then(|| body.slice(range.start as usize..range.end as usize)).ok_or_else(outside)
    }
}

impl SimClient {
    /// Cuts the machine off for good.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    fn ask<T: Send + 'static>(
        &self,
        carry_out: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Call<T> {
        let (runtime, behaviour) = (self.runtime.clone(), self.behaviour.clone());
        let (store, is_cut) = (self.store.clone(), self.is_cut.clone());
        async move {
            let mut rng = runtime.rng();
            let mut pause =
                |longest: Duration| Duration::from_nanos(rng.below(longest.as_nanos() as u64 + 1));
            let spread = behaviour.latency.end.saturating_sub(behaviour.latency.start);
            let (there, back) = (pause(spread), pause(spread));
            let (stalls, late) = ([(); 2].map(|()| pause(behaviour.longest_stall)), pause(LATE));
            let chances = [behaviour.stall, behaviour.stall, behaviour.lost, behaviour.busy, 0.5, 0.5];
            let [stalls_first, stalls_last, is_lost, is_busy, is_done, is_late] =
                chances.map(|chance| rng.chance(chance));
            if stalls_first {
                runtime.sleep(stalls[0]).await;
            }
            if is_cut.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let (answer, answered) = oneshot::channel();
            // The request goes on without the machine.
            let (clock, cut) = (runtime.clone(), is_cut.clone());
            let there = behaviour.latency.start + there;
            runtime
                .spawn(async move {
                    clock.sleep(there).await;
                    let is_lost = is_lost || cut.load(Ordering::Relaxed);
                    if is_lost && !is_done {
                        if !is_late {
                            return;
                        }
                        clock.sleep(late).await;
                    }
                    let outcome = match is_busy {
                        true => Err(StoreError::Busy("slow down".into())),
                        false => carry_out(&store),
                    };
                    if !is_lost {
                        drop(answer.send(outcome));
                    }
                })
                .detach();
            let outcome = answered.await;
            runtime.sleep(behaviour.latency.start + back).await;
            if stalls_last {
                runtime.sleep(stalls[1]).await;
            }
            if is_cut.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            outcome.unwrap_or_else(|_| Err(StoreError::Unknown("the connection was reset".into())))
        }
        .boxed()
    }
}

impl Store for SimClient {
    fn create(&self, key: &str, body: Body) -> Call<Created> {
        let key = key.to_owned();
        self.ask(move |store| {
            let exists = store.objects.lock().contains_key(&key);
            Ok(if exists { Created::Refused } else { store.put(key, &body) })
        })
    }

    fn replace(&self, key: &str, tag: &str, body: Body) -> Call<Created> {
        let (key, tag) = (key.to_owned(), tag.to_owned());
        self.ask(move |store| {
            let has_tag = store.objects.lock().get(&key).is_some_and(|(_, now)| now.to_string() == tag);
            let is_allowed = has_tag || store.ignores_tags.load(Ordering::Relaxed);
            Ok(if is_allowed { store.put(key, &body) } else { Created::Refused })
        })
    }

    fn read(&self, key: &str, range: Option<Range<u64>>) -> Call<Bytes> {
        let key = key.to_owned();
        self.ask(move |store| store.read(&key, range))
    }

    fn read_tagged(&self, key: &str) -> Call<(Bytes, String)> {
        let key = key.to_owned();
        self.ask(move |store| {
            let objects = store.objects.lock();
            let (body, tag) = objects.get(&key).ok_or_else(|| StoreError::Missing(key.as_str().into()))?;
            Ok((body.clone(), tag.to_string()))
        })
    }

    fn list(&self, prefix: &str, after: &str) -> Call<Page> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        self.ask(move |store| {
            let objects = store.objects.lock();
            let all = objects.keys().filter(|key| key.starts_with(&prefix) && **key > after);
            let mut keys: Vec<String> = all.take(PAGE_KEYS + 1).cloned().collect();
            let has_more = keys.len() > PAGE_KEYS;
            keys.truncate(PAGE_KEYS);
            Ok(Page { keys, has_more })
        })
    }

    fn delete(&self, key: &str) -> Call<()> {
        let key = key.to_owned();
        self.ask(move |store| {
            store.objects.lock().remove(&key);
            Ok(())
        })
    }
}
