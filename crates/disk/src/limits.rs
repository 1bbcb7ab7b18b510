//! What clients may take of this machine's memory and patience.
//!
//! Idea: requests take permits for the bytes that they carry, and give them back when their replies are sent.
//! Half of the memory is divided among the connections that there may be; a request that fits into its
//! connection's own share never waits for others. The rest is everybody's, but one address gets only half of
//! it. So a machine that sends and does not read, or promises data that does not come, holds up itself alone.
//! Several that do hold up large requests of others, until they are found out: while somebody waits for
//! memory, nobody else's message may take long.
//!
//! Locking: `addresses` while a connection begins; nothing else is locked meanwhile.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use cenote_runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::stream::{Ended, Result};

/// What one permit stands for.
const UNIT_BYTES: u64 = 4 << 10;
/// What requests of one address carry at most, or of one connection from this machine, besides what is each
/// connection's own.
const CLIENT_BYTES: u64 = 64 << 20;
/// The part of its time that a message gets while somebody waits for memory.
const IMPATIENCE: u32 = 3;

/// What all connections share.
#[derive(Debug, Clone)]
pub struct Limits {
    memory: Arc<Semaphore>,
    own_units: usize,
    /// Requests that wait for memory.
    waiting: Arc<AtomicUsize>,
    addresses: Arc<Mutex<BTreeMap<IpAddr, Weak<Semaphore>>>>,
    /// How long a message may take that has begun.
    pub patience: Duration,
}

/// What one connection may take.
#[derive(Debug, Clone)]
pub struct Share {
    own: Arc<Semaphore>,
    /// The client's part of what is everybody's.
    of_all: Arc<Semaphore>,
}

/// What a request holds until it is answered.
#[derive(Debug)]
pub struct Permits {
    _connection: OwnedSemaphorePermit,
    _all: Option<OwnedSemaphorePermit>,
}

impl Limits {
    /// At most so many bytes for the requests of all clients together, over at most so many connections.
    pub fn new(memory_bytes: u64, connections: usize) -> Limits {
        let units = memory_bytes.max(4 * CLIENT_BYTES) / UNIT_BYTES / 2;
        let units = (units as usize).min(Semaphore::MAX_PERMITS);
        let memory = Arc::new(Semaphore::new(units));
        let own_units = (units / connections.max(1)).max(1);
        let (waiting, addresses) = Default::default();
        Limits { memory, own_units, waiting, addresses, patience: Duration::from_secs(60) }
    }

    /// The share of a connection. `from`: the address of its client; none: it is of this machine.
    pub fn share(&self, from: Option<IpAddr>) -> Share {
        let client = || Arc::new(Semaphore::new((CLIENT_BYTES / UNIT_BYTES) as usize));
        let of_all = match from {
            None => client(),
            Some(address) => {
                let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
                addresses.retain(|_, share| share.strong_count() > 0);
                let known = addresses.get(&address).and_then(Weak::upgrade);
                known.unwrap_or_else(|| {
                    let new = client();
                    addresses.insert(address, Arc::downgrade(&new));
                    new
                })
            }
        };
        Share { own: Arc::new(Semaphore::new(self.own_units)), of_all }
    }

    /// Waits until a request that carries so many bytes may be taken.
    pub async fn take(&self, share: &Share, bytes: u32) -> Option<Permits> {
        if let Some(permits) = self.try_take(share, bytes) {
            return Some(permits);
        }
        let units = units(bytes);
        let of_all = async {
            let _connection = share.of_all.clone().acquire_many_owned(units).await.ok()?;
            let _waiting = Waiting::one_more(&self.waiting);
            let _all = self.memory.clone().acquire_many_owned(units).await.ok()?;
            Some(Permits { _connection, _all: Some(_all) })
        };
        if units as usize > self.own_units {
            return of_all.await;
        }
        tokio::select! {
            biased;
            own = share.own.clone().acquire_many_owned(units) => {
                Some(Permits { _connection: own.ok()?, _all: None })
            }
            permits = of_all => permits,
        }
    }

    /// The same at once, or not at all.
    pub fn try_take(&self, share: &Share, bytes: u32) -> Option<Permits> {
        let units = units(bytes);
        if let Ok(_connection) = share.own.clone().try_acquire_many_owned(units) {
            return Some(Permits { _connection, _all: None });
        }
        let _connection = share.of_all.clone().try_acquire_many_owned(units).ok()?;
        let _all = self.memory.clone().try_acquire_many_owned(units).ok()?;
        Some(Permits { _connection, _all: Some(_all) })
    }

    /// Waits for a message to come, or to leave: as long as patience lasts.
    ///
    /// # Errors
    /// Its own, or it takes too long.
    pub async fn patiently<T>(
        &self,
        runtime: &Runtime,
        message: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut message = pin!(message);
        for _ in 0..IMPATIENCE {
            if let Ok(done) = runtime.timeout(self.patience / IMPATIENCE, &mut message).await {
                return done;
            }
            if self.waiting.load(Ordering::Relaxed) > 0 {
                break;
            }
        }
        Err(Ended::Stalled)
    }
}

fn units(bytes: u32) -> u32 {
    u64::from(bytes).div_ceil(UNIT_BYTES).max(1) as u32
}

/// A request that waits is counted as long as this lives.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn one_more(count: &AtomicUsize) -> Waiting<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use cenote_runtime::SimConfig;
    use futures::FutureExt;

    use super::*;

    const MIB: u32 = 1 << 20;

    fn at(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn who_takes_all_memory_holds_up_nobody_else() {
        let limits = Limits::new(256 << 20, 1024);
        let shares: Vec<Share> = (0..8).map(|_| limits.share(at(1))).collect();
        let taken: Vec<_> = shares.iter().filter_map(|share| limits.try_take(share, 32 * MIB)).collect();
        assert_eq!(taken.len(), 2, "64 MiB for one address");
        let others: Vec<_> = (2..6).map(|last| limits.share(at(last))).collect();
        let taken_too: Vec<_> = others.iter().filter_map(|share| limits.try_take(share, 32 * MIB)).collect();
        assert_eq!(taken_too.len(), 2, "128 MiB for all");

        let small: Vec<_> = (0..32).map_while(|_| limits.try_take(&others[3], 4096)).collect();
        assert_eq!(small.len(), 32, "out of its own");
        // One more waits for those before it, whatever the others do.
        let mut waits = std::pin::pin!(limits.take(&others[3], 128 << 10));
        assert!(waits.as_mut().now_or_never().is_none());
        drop(small);
        assert!(waits.now_or_never().is_some_and(|permits| permits.is_some()));
    }

    #[test]
    fn a_message_takes_less_time_while_somebody_waits_for_memory() {
        let took = |somebody_waits: bool| {
            let stalls = |runtime: Runtime| async move {
                let limits = Limits::new(0, 1024);
                let shares = [1, 1, 2, 2].map(|last| limits.share(at(last)));
                let _all: Vec<_> =
                    shares.iter().filter_map(|share| limits.try_take(share, 32 * MIB)).collect();
                let other = limits.share(at(3));
                let mut waits = std::pin::pin!(limits.take(&other, MIB));
                if somebody_waits {
                    assert!(waits.as_mut().now_or_never().is_none());
                }
                let begun = runtime.now();
                let ended = limits.patiently(&runtime, std::future::pending::<Result<()>>()).await;
                assert!(matches!(ended, Err(Ended::Stalled)));
                runtime.now().since(begun).as_secs()
            };
            Runtime::simulate(SimConfig::default(), stalls).0
        };
        assert_eq!((took(false), took(true)), (60, 20));
    }
}
