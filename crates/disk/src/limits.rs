//! What clients may take of this machine's memory and patience.
//!
//! Idea: requests take permits for the bytes that they carry, first of their connection and then of all, and
//! give them back when their replies are sent. A client that sends and does not read waits for itself alone.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What one permit stands for.
const UNIT_BYTES: u64 = 4 << 10;
/// What requests of one connection carry at most.
const CONNECTION_BYTES: u64 = 64 << 20;

/// What all connections share.
#[derive(Debug, Clone)]
pub struct Limits {
    memory: Arc<Semaphore>,
    /// How long a message may take that has begun.
    pub patience: Duration,
}

/// What a request holds until it is answered.
#[derive(Debug)]
pub struct Permits {
    _connection: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Limits {
    /// At most so many bytes for the requests of all clients together.
    pub fn new(memory_bytes: u64) -> Limits {
        let units = (memory_bytes.max(CONNECTION_BYTES) / UNIT_BYTES) as usize;
        let memory = Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS)));
        Limits { memory, patience: Duration::from_secs(60) }
    }

    /// The share of one connection.
    pub fn connection() -> Arc<Semaphore> {
        Arc::new(Semaphore::new((CONNECTION_BYTES / UNIT_BYTES) as usize))
    }

    /// Waits until a request that carries so many bytes may be taken.
    pub async fn take(&self, connection: &Arc<Semaphore>, bytes: u32) -> Option<Permits> {
        let units = u64::from(bytes).div_ceil(UNIT_BYTES).max(1) as u32;
        let _connection = connection.clone().acquire_many_owned(units).await.ok()?;
        let _all = self.memory.clone().acquire_many_owned(units).await.ok()?;
        Some(Permits { _connection, _all })
    }

    /// The same at once, or not at all.
    pub fn try_take(&self, connection: &Arc<Semaphore>, bytes: u32) -> Option<Permits> {
        let units = u64::from(bytes).div_ceil(UNIT_BYTES).max(1) as u32;
        let _connection = connection.clone().try_acquire_many_owned(units).ok()?;
        let _all = self.memory.clone().try_acquire_many_owned(units).ok()?;
        Some(Permits { _connection, _all })
    }
}
