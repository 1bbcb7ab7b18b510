//! Time, tasks and randomness behind one handle.
//!
//! Every engine crate takes a [`Runtime`] and uses nothing else to spawn, sleep, read a clock or draw a
//! random number. So the same engine runs in two worlds:
//!
//! ```text
//!                    Runtime (cheap to clone)
//!                   /                         \
//!        real: tokio, many threads      simulated: one thread, virtual
//!        host clock, thread pool        nanoseconds, every choice from a seed
//! ```
//!
//! In the simulator a seed replays the same interleaving of tasks, random numbers and instants, so a race or
//! a crash can be reproduced. Virtual time jumps from timer to timer, so hours pass in milliseconds.
//!
//! An engine must:
//! * declare the CPU work of a step with [`Runtime::work`], which the simulator charges to modelled cores;
//! * keep no visible order that depends on addresses or on `HashMap`'s random state;
//! * avoid `tokio::spawn`, `tokio::time` and `std::thread`; `tokio::sync` needs no runtime, but its `watch`
//!   wakes tasks in a random order: [`Watched`] does not.
//!
//! Locking: a [`Runtime`] may be used from any task and thread. No lock is held while a future is polled or a
//! blocking call runs, so both may use the runtime freely.

mod bounded;
mod memory;
mod real;
mod rng;
mod sim;
mod task;
mod threads;
mod time;
mod to_end;
mod watch;
mod watched;
mod work;

pub use rng::Rng;
pub use sim::{SimConfig, SimReport, Step};
pub use task::{AbortOnDrop, JoinError, JoinHandle};
pub use time::{Elapsed, Instant};
pub use to_end::ToEnd;
pub use watch::Watch;
pub use watched::{Closed, Watched, Watcher};
pub use work::{Cost, CostModel, WorkKind};

use parking_lot::Mutex;
use real::Real;
use sim::Simulation;
use std::any::Any;
use std::future::Future;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Time, tasks and randomness. Cloning it costs one atomic increment.
#[derive(Clone)]
pub struct Runtime {
    backend: Arc<Backend>,
}

enum Backend {
    Real(Real),
    Simulated(Machine),
}

/// A machine of a simulation.
struct Machine {
    simulation: Arc<Simulation>,
    /// One of each type.
    parts: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl Deref for Machine {
    type Target = Simulation;

    fn deref(&self) -> &Simulation {
        &self.simulation
    }
}

impl Runtime {
    /// Starts the real back end with this many worker threads (default: one per core). Without workers, tasks
    /// run only while a thread is in [`Runtime::block_on`].
    ///
    /// # Panics
    /// If the host refuses threads or descriptors; see [`Runtime::try_real`].
    pub fn real(worker_threads: Option<usize>) -> Runtime {
        let runtime = Runtime::try_real(worker_threads);
        runtime.unwrap_or_else(|error| panic!("cannot start worker threads: {error}"))
    }

    /// As [`Runtime::real`].
    ///
    /// # Errors
    /// The host refuses threads or descriptors.
    pub fn try_real(worker_threads: Option<usize>) -> std::io::Result<Runtime> {
        Ok(Runtime { backend: Arc::new(Backend::Real(Real::new(worker_threads)?)) })
    }

    /// Makes a simulator, at virtual time zero; [`Runtime::block_on`] runs it on the calling thread.
    pub fn simulated(config: SimConfig) -> Runtime {
        Runtime::of_machine(Arc::new(Simulation::new(config)))
    }

    fn of_machine(simulation: Arc<Simulation>) -> Runtime {
        Runtime { backend: Arc::new(Backend::Simulated(Machine { simulation, parts: Mutex::default() })) }
    }

    /// Another machine of the same simulation, without parts: with the same clock, beside this one.
    ///
    /// # Panics
    /// In the real back end.
    pub fn another_machine(&self) -> Runtime {
        match &*self.backend {
            Backend::Real(_) => panic!("a real machine has no other"),
            Backend::Simulated(sim) => Runtime::of_machine(sim.simulation.clone()),
        }
    }

    /// Runs one simulation and reports on it. Tasks still waiting when `main` ends are dropped.
    pub fn simulate<F: Future>(config: SimConfig, main: impl FnOnce(Runtime) -> F) -> (F::Output, SimReport) {
        let runtime = Runtime::simulated(config);
        let output = runtime.block_on(main(runtime.clone()));
        let Backend::Simulated(sim) = &*runtime.backend else { unreachable!("made above as a simulation") };
        sim.drop_tasks();
        (output, sim.report())
    }

    /// Runs a future on the calling thread, together with spawned tasks.
    ///
    /// # Panics
    /// Inside another `block_on`. In the simulator also on a deadlock (nothing is ready, no timer is set,
    /// `main` waits), at the step limit, and when a task without a handle panicked.
    pub fn block_on<F: Future>(&self, main: F) -> F::Output {
        match &*self.backend {
            Backend::Real(real) => real.block_on(main),
            Backend::Simulated(sim) => sim.block_on(main),
        }
    }

    /// Starts a task. Dropping the handle detaches it.
    #[track_caller]
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        // Boxed, so that the task runner is compiled once per value type, not per task.
        let task: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(task);
        match &*self.backend {
            Backend::Real(real) => JoinHandle::real(real.handle().spawn(task)),
            Backend::Simulated(sim) => {
                JoinHandle::simulated(self.clone(), sim.spawn(task, Location::caller()))
            }
        }
    }

    /// Runs work that must not stay half done: once begun, it is completed even if dropped.
    pub fn to_end<T: Send>(&self, work: impl Future<Output = T> + Send + 'static) -> ToEnd<'_, T> {
        ToEnd::new(self, Box::pin(work))
    }

    /// Monotonic time since this runtime began.
    pub fn now(&self) -> Instant {
        match &*self.backend {
            Backend::Real(real) => real.now(),
            Backend::Simulated(sim) => sim.now(),
        }
    }

    /// [`Runtime::now`] as of the last tick, up to 10 ms ago, at a fifth of the cost. The simulator is exact.
    pub fn coarse_now(&self) -> Instant {
        match &*self.backend {
            Backend::Real(real) => real.coarse_now(),
            Backend::Simulated(sim) => sim.now(),
        }
    }

    /// Wall-clock time in nanoseconds since 1970 (UTC); virtual in the simulator.
    pub fn unix_time_ns(&self) -> u64 {
        match &*self.backend {
            Backend::Real(real) => real.unix_time_ns(),
            Backend::Simulated(sim) => sim.unix_time_ns(),
        }
    }

    /// Waits. The real back end rounds up to a millisecond.
    pub async fn sleep(&self, duration: Duration) {
        match &*self.backend {
            Backend::Real(real) => real.sleep(duration).await,
            Backend::Simulated(sim) => sim.sleep(duration).await,
        }
    }

    /// Waits for `future` at most this long, then drops it.
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
        // Waking itself and returning Pending is enough in both back ends.
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

    /// A random number, from the operating system or the simulator's seed.
    pub fn random_u64(&self) -> u64 {
        match &*self.backend {
            Backend::Real(real) => real.random_u64(),
            Backend::Simulated(sim) => sim.random_u64(),
        }
    }

    /// Fills bytes with secret random numbers, from the operating system or the simulator's seed.
    ///
    /// # Panics
    /// If the operating system cannot provide randomness.
    pub fn fill_secret(&self, bytes: &mut [u8]) {
        match &*self.backend {
            Backend::Real(real) => real.fill_secret(bytes),
            Backend::Simulated(sim) => sim.fill_secret(bytes),
        }
    }

    /// A private generator, whose draws take no lock.
    pub fn rng(&self) -> Rng {
        Rng::new(self.random_u64())
    }

    /// Runs a blocking call on a thread pool, or inline in the simulator. A panic continues in the caller.
    pub async fn blocking<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        match &*self.backend {
            Backend::Real(real) => real.blocking(call).await,
            Backend::Simulated(_) => call(),
        }
    }

    /// Starts a blocking call without waiting for it.
    pub fn start_blocking(&self, call: impl FnOnce() + Send + 'static) {
        match &*self.backend {
            Backend::Real(real) => real.start_blocking(call),
            Backend::Simulated(_) => call(),
        }
    }

    /// Declares the CPU work of a step. Only the simulator waits: for a core, and for the work's duration.
    #[inline]
    pub async fn work(&self, kind: WorkKind, bytes: u64) {
        if let Backend::Simulated(sim) = &*self.backend {
            sim.work(kind, bytes).await;
        }
    }

    /// Whether this is the simulator, for devices, which must not use real threads in it.
    pub fn is_simulated(&self) -> bool {
        matches!(&*self.backend, Backend::Simulated(_))
    }

    /// A value made once per runtime: the ring of `cenote-device`. `None` in the simulator, or on failure.
    pub fn shared<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> Option<Arc<T>>) -> Option<Arc<T>> {
        match &*self.backend {
            Backend::Real(real) => real.shared(make),
            Backend::Simulated(_) => None,
        }
    }

    /// Gives the simulated machine a part that real machines have anyway, such as disks or a kernel.
    ///
    /// # Panics
    /// In the real back end.
    pub fn equip<T: Send + Sync + 'static>(&self, part: Arc<T>) {
        match &*self.backend {
            Backend::Real(_) => panic!("a real machine has its parts"),
            Backend::Simulated(sim) => sim.parts.lock().push(part),
        }
    }

    /// The simulated machine's part of this type. `None`: it has none, or the machine is real.
    pub fn part<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        match &*self.backend {
            Backend::Real(_) => None,
            Backend::Simulated(sim) => sim.parts.lock().iter().find_map(|part| part.clone().downcast().ok()),
        }
    }

    /// Watches a descriptor, for devices only.
    ///
    /// # Errors
    /// It can't be watched; always so in the simulator.
    pub fn watch(&self, file: OwnedFd) -> std::io::Result<Watch> {
        match &*self.backend {
            Backend::Real(real) => real.watch(file),
            Backend::Simulated(_) => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    /// Worker threads, or modelled cores.
    pub fn parallelism(&self) -> usize {
        match &*self.backend {
            Backend::Real(real) => real.parallelism(),
            Backend::Simulated(sim) => sim.cores(),
        }
    }

    /// Usable memory in bytes. Bounds are shares of it.
    pub fn memory_bytes(&self) -> u64 {
        match &*self.backend {
            Backend::Real(_) => memory::host_bytes(),
            Backend::Simulated(sim) => sim.memory_bytes(),
        }
    }

    /// Usable memory not in use, in bytes; all in the simulator.
    pub fn available_memory_bytes(&self) -> u64 {
        match &*self.backend {
            Backend::Real(_) => memory::host_available_bytes(),
            Backend::Simulated(sim) => sim.memory_bytes(),
        }
    }

    /// Private memory in bytes, with the allocator's reserve; 0 in the simulator.
    pub fn own_memory_bytes(&self) -> u64 {
        match &*self.backend {
            Backend::Real(_) => memory::own_bytes(),
            Backend::Simulated(_) => 0,
        }
    }

    /// The simulator's report so far; `None` in the real back end.
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
