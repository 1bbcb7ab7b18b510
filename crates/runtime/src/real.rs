//! The real back end: tokio's multi-threaded scheduler, the host's clocks, the operating system's entropy.
//! Without workers, the thread that blocks runs all tasks: for programs that only wait for a daemon, as each
//! thread costs a tenth of a millisecond.
//!
//! Locking: a mutex around the random generator, for one draw.

use crate::rng::Rng;
use crate::threads::Threads;
use crate::time::Instant;
use crate::watch::Watch;
use futures::channel::oneshot;
use rustix::time::{ClockId, clock_gettime};
use std::any::Any;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) struct Real {
    /// `None` only while dropping: see `Drop`.
    tokio: Option<tokio::runtime::Runtime>,
    handle: tokio::runtime::Handle,
    threads: Threads,
    started: std::time::Instant,
    started_coarse_ns: u64,
    rng: parking_lot::Mutex<Rng>,
    parallelism: usize,
    /// See `Runtime::shared`.
    shared: OnceLock<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Real {
    /// # Errors
    /// The host refuses threads or descriptors.
    pub(crate) fn new(worker_threads: Option<usize>) -> std::io::Result<Real> {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let workers = worker_threads.unwrap_or_else(cores);
        may_start_threads(workers)?;
        let mut builder = match workers {
            0 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        if workers > 0 {
            builder.worker_threads(workers).thread_name("cenote");
        }
        // Timers, and the signal driver if the program uses tokio's.
        let tokio = builder.enable_all().build()?;
        // RandomState takes its seed from the operating system's entropy.
        let seed = RandomState::new().hash_one(std::process::id());
        Ok(Real {
            handle: tokio.handle().clone(),
            tokio: Some(tokio),
            threads: Threads::default(),
            started: std::time::Instant::now(),
            started_coarse_ns: coarse_clock_ns(),
            rng: parking_lot::Mutex::new(Rng::new(seed)),
            parallelism: workers.max(1),
            shared: OnceLock::new(),
        })
    }

    pub(crate) fn shared<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce() -> Option<Arc<T>>,
    ) -> Option<Arc<T>> {
        let made = self.shared.get_or_init(|| make().map(|made| made as Arc<dyn Any + Send + Sync>));
        made.clone().and_then(|made| made.downcast().ok())
    }

    pub(crate) fn watch(&self, file: OwnedFd) -> std::io::Result<Watch> {
        let _context = self.handle.enter();
        Watch::new(file)
    }

    pub(crate) fn handle(&self) -> &tokio::runtime::Handle {
        &self.handle
    }

    pub(crate) fn block_on<F: Future>(&self, main: F) -> F::Output {
        match &self.tokio {
            // The handle's method runs no tasks of a scheduler without workers.
            Some(tokio) => tokio.block_on(main),
            None => self.handle.block_on(main),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn coarse_now(&self) -> Instant {
        Instant(coarse_clock_ns().saturating_sub(self.started_coarse_ns))
    }

    pub(crate) fn unix_time_ns(&self) -> u64 {
        // A clock set before 1970 reads as 1970.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        let timer = {
            // The caller may be polled outside tokio (by a test's own executor).
            let _context = self.handle.enter();
            tokio::time::sleep(duration)
        };
        timer.await;
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.rng.lock().next_u64()
    }

    pub(crate) fn fill_secret(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).unwrap_or_else(|error| panic!("the system has no randomness: {error}"));
    }

    pub(crate) async fn blocking<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        let (reply, outcome) = oneshot::channel();
        // The caller may be gone.
        self.start_blocking(move || drop(reply.send(catch_unwind(AssertUnwindSafe(call)))));
        match outcome.await {
            Ok(Ok(output)) => output,
            Ok(Err(panic)) => resume_unwind(panic),
            // Every call is made, so the program is ending.
            Err(oneshot::Canceled) => std::future::pending().await,
        }
    }

    pub(crate) fn start_blocking(&self, call: impl FnOnce() + Send + 'static) {
        self.threads.start(Box::new(call));
    }

    pub(crate) fn parallelism(&self) -> usize {
        self.parallelism
    }
}

/// tokio cannot tell: it panics when a thread is refused.
fn may_start_threads(count: usize) -> std::io::Result<()> {
    let (release, released) = std::sync::mpsc::sync_channel::<()>(0);
    let released = Arc::new(parking_lot::Mutex::new(released));
    let mut threads = Vec::new();
    let mut refused = None;
    for _ in 0..count {
        let released = released.clone();
        // It waits until the channel is closed.
        match std::thread::Builder::new().spawn(move || _ = released.lock().recv()) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    drop(release);
    threads.into_iter().for_each(|thread| _ = thread.join());
    refused.map_or(Ok(()), Err)
}

/// As of the last tick.
fn coarse_clock_ns() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

impl Drop for Real {
    fn drop(&mut self) {
        // The last handle may be dropped inside a task, where waiting for threads would panic.
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
    }
}
