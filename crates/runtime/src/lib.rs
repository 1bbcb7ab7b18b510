//! Time, tasks and randomness behind one handle.
//!
//! Every engine crate takes a [`Runtime`] and uses nothing else to spawn, to sleep, to read a clock or to draw a random
//! number. That one rule lets the same engine run in two worlds:
//!
//! ```text
//!                    Runtime (cheap to clone)
//!                   /                         \
//!        real: tokio, many threads      simulated: one thread, virtual
//!        host clock, thread pool        nanoseconds, every choice from a seed
//! ```
//!
//! In the simulator a seed is a history: the same seed replays the same interleaving of tasks, the same random numbers
//! and the same instants, so a race or a crash that was found once is found again. Virtual time jumps from timer to
//! timer, so hours pass in milliseconds.
//!
//! What an engine owes in return:
//! * it states the CPU work of a step with [`Runtime::work`], which is free here and charged to modelled cores there;
//! * it keeps no order that depends on addresses or on `HashMap`'s random state where the order is visible;
//! * `tokio::sync` is welcome (it needs no runtime), `tokio::spawn`, `tokio::time` and `std::thread` are not.

mod bounded;
mod memory;
mod real;
mod rng;
mod sim;
mod task;
mod threads;
mod time;
mod work;

pub use rng::Rng;
pub use sim::{SimConfig, SimReport, Step};
pub use task::{AbortOnDrop, JoinError, JoinHandle};
pub use time::{Elapsed, Instant};
pub use work::{Cost, CostModel, WorkKind};

use real::Real;
use sim::Simulation;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// The handle to time, tasks and randomness. Cloning it costs one atomic increment.
#[derive(Clone)]
pub struct Runtime {
    backend: Arc<Backend>,
}

enum Backend {
    Real(Real),
    Simulated(Box<Simulation>),
}

impl Runtime {
    /// Starts the real back end with this many worker threads (default: one a core).
    ///
    /// # Panics
    /// If the host refuses to start threads: nothing could run.
    pub fn real(worker_threads: Option<usize>) -> Runtime {
        Runtime { backend: Arc::new(Backend::Real(Real::new(worker_threads))) }
    }

    /// Makes a simulator. It runs on the thread that calls [`Runtime::block_on`] and starts at virtual time zero.
    pub fn simulated(config: SimConfig) -> Runtime {
        Runtime { backend: Arc::new(Backend::Simulated(Box::new(Simulation::new(config)))) }
    }

    /// Runs one simulation from start to end and says what happened. Tasks that still wait when `main` is done are dropped.
    pub fn simulate<F: Future>(config: SimConfig, main: impl FnOnce(Runtime) -> F) -> (F::Output, SimReport) {
        let simulation = Arc::new(Backend::Simulated(Box::new(Simulation::new(config))));
        let runtime = Runtime { backend: simulation };
        let output = runtime.block_on(main(runtime.clone()));
        let Backend::Simulated(sim) = &*runtime.backend else { unreachable!("made above as a simulation") };
        sim.drop_tasks();
        (output, sim.report())
    }

    /// Runs a future to its end on the calling thread, and spawned tasks along with it.
    ///
    /// # Panics
    /// Inside another `block_on`. In the simulator also on a deadlock (nothing is ready, no timer is set, `main` waits),
    /// at the step limit, and when a task panicked whose handle nobody holds.
    pub fn block_on<F: Future>(&self, main: F) -> F::Output {
        match &*self.backend {
            Backend::Real(real) => real.block_on(main),
            Backend::Simulated(sim) => sim.block_on(main),
        }
    }

    /// Starts a task. Dropping the handle lets the task run on; awaiting it gives its value or why there is none.
    #[track_caller]
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        match &*self.backend {
            Backend::Real(real) => JoinHandle::real(real.handle().spawn(task)),
            Backend::Simulated(sim) => {
                JoinHandle::simulated(self.clone(), sim.spawn(task, Location::caller()))
            }
        }
    }

    /// Monotonic time since this runtime began.
    pub fn now(&self) -> Instant {
        match &*self.backend {
            Backend::Real(real) => real.now(),
            Backend::Simulated(sim) => sim.now(),
        }
    }

    /// Wall-clock time in nanoseconds since 1970 (UTC). In the simulator: a fixed start plus virtual time.
    pub fn unix_time_ns(&self) -> u64 {
        match &*self.backend {
            Backend::Real(real) => real.unix_time_ns(),
            Backend::Simulated(sim) => sim.unix_time_ns(),
        }
    }

    /// Waits. The real back end rounds up to a millisecond; the simulator is exact.
    pub async fn sleep(&self, duration: Duration) {
        match &*self.backend {
            Backend::Real(real) => real.sleep(duration).await,
            Backend::Simulated(sim) => sim.sleep(duration).await,
        }
    }

    /// Waits for `future`, at most this long; then drops it.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, Elapsed> {
        let future = std::pin::pin!(future);
        let timer = std::pin::pin!(self.sleep(limit));
        match futures::future::select(future, timer).await {
            futures::future::Either::Left((output, _)) => Ok(output),
            futures::future::Either::Right(((), _)) => Err(Elapsed { limit }),
        }
    }

    /// Lets other ready tasks run first.
    pub async fn yield_now(&self) {
        // Waking oneself and returning Pending is all it takes in both back ends.
        let mut yielded = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return std::task::Poll::Ready(());
            }
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
    }

    /// A random number: from the operating system's entropy here, from the seed there.
    pub fn random_u64(&self) -> u64 {
        match &*self.backend {
            Backend::Real(real) => real.random_u64(),
            Backend::Simulated(sim) => sim.random_u64(),
        }
    }

    /// Fills bytes at random such that nobody can guess them, for keys and all that keeps them safe: from the operating system here,
    /// from the seed there.
    ///
    /// # Panics
    /// The operating system has no randomness to give.
    pub fn fill_secret(&self, bytes: &mut [u8]) {
        match &*self.backend {
            Backend::Real(real) => real.fill_secret(bytes),
            Backend::Simulated(sim) => sim.fill_secret(bytes),
        }
    }

    /// A generator of one's own, seeded from [`Runtime::random_u64`]: no lock per draw.
    pub fn rng(&self) -> Rng {
        Rng::new(self.random_u64())
    }

    /// Runs a call that blocks its thread (a system call, a long computation) where that hurts nobody: on a thread pool
    /// here, inline there. A panic in `call` goes on in the caller.
    pub async fn blocking<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        match &*self.backend {
            Backend::Real(real) => real.blocking(call).await,
            Backend::Simulated(_) => call(),
        }
    }

    /// Starts such a call and does not wait for it.
    pub fn start_blocking(&self, call: impl FnOnce() + Send + 'static) {
        match &*self.backend {
            Backend::Real(real) => real.start_blocking(call),
            Backend::Simulated(_) => call(),
        }
    }

    /// States the CPU work of a step. In the real back end the caller has done or will do that work itself and this is
    /// ready at once; in the simulator it waits for a modelled core and for the time the work takes on it.
    #[inline]
    pub async fn work(&self, kind: WorkKind, bytes: u64) {
        if let Backend::Simulated(sim) = &*self.backend {
            sim.work(kind, bytes).await;
        }
    }

    /// Whether this is the simulator. For devices that must not hand work to real threads in it; engines never ask.
    pub fn is_simulated(&self) -> bool {
        matches!(&*self.backend, Backend::Simulated(_))
    }

    /// How many tasks can run at one instant: worker threads here, modelled cores there. A good default for limits.
    pub fn parallelism(&self) -> usize {
        match &*self.backend {
            Backend::Real(real) => real.parallelism(),
            Backend::Simulated(sim) => sim.cores(),
        }
    }

    /// Bytes of memory that the program may use: the machine's, or less if it was given less. Bounds are shares of it.
    pub fn memory_bytes(&self) -> u64 {
        match &*self.backend {
            Backend::Real(_) => memory::host_bytes(),
            Backend::Simulated(sim) => sim.memory_bytes(),
        }
    }

    /// What the simulator has recorded so far; `None` in the real back end.
    pub fn sim_report(&self) -> Option<SimReport> {
        match &*self.backend {
            Backend::Real(_) => None,
            Backend::Simulated(sim) => Some(sim.report()),
        }
    }

    fn abort_simulated(&self, task: sim::TaskId) {
        if let Backend::Simulated(sim) = &*self.backend {
            sim.abort(task);
        }
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_simulated() { "Runtime(simulated)" } else { "Runtime(real)" })
    }
}
