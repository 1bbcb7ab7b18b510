//! The simulator: one thread, a virtual clock, every choice from a seed.
//!
//! ```text
//!   loop:  ready tasks?  -- yes -->  pick one by the seed, poll it        (no time passes)
//!              | no
//!          a timer set?  -- yes -->  clock jumps to it, its tasks wake
//!              | no
//!          deadlock: panic, listing every waiting task and where it was spawned
//! ```
//!
//! Computing takes no virtual time unless `work` declares it, which occupies one of the modelled cores. Each
//! step (instant, task) and each random number is hashed into the *history*: equal hashes mean equal runs.
//!
//! Invariants: a task is in the ready list at most once; virtual time never goes back.
//!
//! Locking: all state is behind one mutex; the ready list has another, which is taken last. Neither is held
//! while a task is polled or dropped or another's waker runs, so tasks may call back freely.

mod cores;
mod history;
mod ready;
mod timers;

pub use history::{SimReport, Step};

use crate::rng::Rng;
use crate::task::{JoinError, panic_message};
use crate::time::Instant;
use crate::work::{CostModel, WorkKind};
use cores::Cores;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use history::History;
use parking_lot::Mutex;
use ready::{ReadyList, TaskWaker};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use timers::{Sleep, Timers};

/// In order of spawning; zero is the future given to `block_on`.
pub(crate) type TaskId = u64;
const MAIN: TaskId = 0;

/// The parameters of a simulation.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// Determines the next ready task and every random number.
    pub seed: u64,
    /// Modelled cores, at least one.
    pub cores: usize,
    /// Costs of work on a core.
    pub costs: CostModel,
    /// Memory of the modelled machine.
    pub memory_bytes: u64,
    /// Wall-clock time at the start, in nanoseconds since 1970.
    pub unix_start_ns: u64,
    /// Steps after which the run panics as a livelock.
    pub step_limit: u64,
    /// Number of first steps to report, to find where two runs diverge.
    pub trace_steps: usize,
}

impl SimConfig {
    /// Four modelled cores at default costs, from this seed.
    pub fn seed(seed: u64) -> SimConfig {
        SimConfig { seed, ..SimConfig::default() }
    }
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig {
            seed: 0,
            cores: 4,
            costs: CostModel::default(),
            memory_bytes: 4 << 30,
            unix_start_ns: 1_767_225_600_000_000_000, // 2026-01-01
            step_limit: 200_000_000,
            trace_steps: 0,
        }
    }
}

pub(crate) struct Simulation {
    config: SimConfig,
    ready: Arc<ReadyList>,
    state: Mutex<SimState>,
}

struct SimState {
    now_ns: u64,
    tasks: BTreeMap<TaskId, Task>,
    spawned: TaskId,
    timers: Timers,
    cores: Cores,
    /// Two streams, so that draws do not affect scheduling.
    schedule_rng: Rng,
    program_rng: Rng,
    history: History,
}

struct Task {
    /// `None` while being polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Arc<TaskWaker>,
    spawned_at: &'static Location<'static>,
}

/// The channel closes when the task is dropped, that is, cancelled.
pub(crate) struct SimTask<T> {
    pub(crate) id: TaskId,
    pub(crate) outcome: oneshot::Receiver<Result<T, JoinError>>,
}

impl Simulation {
    pub(crate) fn new(config: SimConfig) -> Simulation {
        let state = SimState {
            now_ns: 0,
            tasks: BTreeMap::new(),
            spawned: MAIN,
            timers: Timers::default(),
            cores: Cores::new(config.cores.max(1)),
            schedule_rng: Rng::stream(config.seed, 1),
            program_rng: Rng::stream(config.seed, 2),
            history: History::new(config.trace_steps),
        };
        Simulation { ready: Arc::default(), state: Mutex::new(state), config }
    }

    pub(crate) fn block_on<F: Future>(&self, main: F) -> F::Output {
        let mut main = std::pin::pin!(main);
        let main_waker = TaskWaker::new(MAIN, &self.ready);
        main_waker.ready();
        let waker = Waker::from(main_waker.clone());
        loop {
            let Some(task) = self.next_ready() else {
                self.advance_clock();
                continue;
            };
            if task != MAIN {
                self.poll_task(task);
                continue;
            }
            main_waker.running();
            if let Poll::Ready(output) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
        }
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
        spawned_at: &'static Location<'static>,
    ) -> SimTask<T> {
        let (sender, outcome) = oneshot::channel();
        let future = async move {
            match AssertUnwindSafe(future).catch_unwind().await {
                Ok(output) => drop(sender.send(Ok(output))),
                // A panic without a waiter must not go unnoticed: it ends the simulation.
                Err(panic) if sender.is_canceled() => std::panic::resume_unwind(panic),
                Err(panic) => drop(sender.send(Err(JoinError::Panicked(panic_message(&*panic))))),
            }
        };
        let mut state = self.state.lock();
        state.spawned += 1;
        let id = state.spawned;
        let waker = TaskWaker::new(id, &self.ready);
        waker.ready();
        state.tasks.insert(id, Task { future: Some(future.boxed()), waker, spawned_at });
        SimTask { id, outcome }
    }

    /// A running task ends at its next await.
    pub(crate) fn abort(&self, task: TaskId) {
        let forgotten = self.state.lock().tasks.remove(&task);
        drop(forgotten); // after the lock is released: its destructors may call us
    }

    pub(crate) fn drop_tasks(&self) {
        while let Some(task) = { self.state.lock().tasks.pop_first() } {
            drop(task);
        }
    }

    fn next_ready(&self) -> Option<TaskId> {
        let mut state = self.state.lock();
        let task = self.ready.take(&mut state.schedule_rng)?;
        let now_ns = state.now_ns;
        let steps = state.history.step(Step { now_ns, task });
        drop(state);
        assert!(
            steps <= self.config.step_limit,
            "simulation (seed {}) is still running after {steps} steps, at virtual second {:.3}: \
             a livelock?\n{}",
            self.config.seed,
            now_ns as f64 / 1e9,
            self.waiting_tasks()
        );
        Some(task)
    }

    fn poll_task(&self, id: TaskId) {
        let (mut future, waker) = {
            let mut state = self.state.lock();
            // An ended or aborted task may still be in the ready list.
            let Some(task) = state.tasks.get_mut(&id) else { return };
            let Some(future) = task.future.take() else { return };
            (future, task.waker.clone())
        };
        waker.running();
        let polled = future.as_mut().poll(&mut Context::from_waker(&Waker::from(waker)));
        let mut state = self.state.lock();
        match (polled, state.tasks.get_mut(&id)) {
            (Poll::Pending, Some(task)) => task.future = Some(future),
            // We hold the future, so removing the task runs none of its code under the lock.
            (Poll::Ready(()), Some(_)) => drop(state.tasks.remove(&id)),
            (_, None) => {
                // Aborted while it ran.
                drop(state);
                drop(future);
            }
        }
    }

    /// Jumps to the next timer, or reports the deadlock.
    fn advance_clock(&self) {
        let due = {
            let mut state = self.state.lock();
            let Some((at_ns, due)) = state.timers.take_next() else {
                let now = state.now_ns as f64 / 1e9;
                drop(state);
                panic!(
                    "simulation (seed {}) is deadlocked at virtual second {now:.3}: no task is ready, \
                     no timer is set, the main future waits\n{}",
                    self.config.seed,
                    self.waiting_tasks()
                );
            };
            state.now_ns = state.now_ns.max(at_ns);
            due
        };
        due.into_iter().for_each(Waker::wake);
    }

    fn waiting_tasks(&self) -> String {
        let state = self.state.lock();
        let lines =
            state.tasks.iter().map(|(id, task)| format!("  task {id} waits, spawned at {}", task.spawned_at));
        let shown: Vec<String> = lines.take(50).collect();
        format!("{} other tasks\n{}", state.tasks.len(), shown.join("\n"))
    }

    pub(crate) fn now(&self) -> Instant {
        Instant(self.state.lock().now_ns)
    }

    pub(crate) fn unix_time_ns(&self) -> u64 {
        self.config.unix_start_ns.saturating_add(self.now().0)
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Sleep<'_> {
        Sleep::until(self, self.now() + duration)
    }

    pub(crate) async fn work(&self, kind: WorkKind, bytes: u64) {
        let cost_ns = self.config.costs.cost(kind).total_ns(bytes);
        let done = {
            let mut state = self.state.lock();
            let now_ns = state.now_ns;
            state.cores.reserve(now_ns, kind, cost_ns)
        };
        Sleep::until(self, Instant(done)).await;
    }

    pub(crate) fn random_u64(&self) -> u64 {
        let mut state = self.state.lock();
        let drawn = state.program_rng.next_u64();
        state.history.mix(drawn);
        drawn
    }

    pub(crate) fn fill_secret(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.random_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.config.memory_bytes
    }

    pub(crate) fn cores(&self) -> usize {
        self.config.cores.max(1)
    }

    pub(crate) fn report(&self) -> SimReport {
        let state = self.state.lock();
        state.history.report(self.config.seed, state.now_ns, state.spawned, state.cores.busy_ns())
    }
}
