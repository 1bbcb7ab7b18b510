//! Threads for blocking calls: as many as there are calls at once, kept for a while afterwards.
//!
//! ```text
//!   start(call) --> waiting calls --> an idle thread, or a new one if calls outnumber idle threads
//! ```
//!
//! Why not tokio's: tokio wakes a thread while holding the lock that it takes first. On few cores a call then
//! costs several thread switches and a dozen system calls, more than a small write. Here the lock is free.
//!
//! A new thread inherits the cores of the one that starts it, which may be bound to one core; its calls would
//! wait for that core. So each thread is given the cores that this process had at first.
//!
//! Locking: one mutex guards calls and counts, never while a call runs or a thread starts; it is released
//! before the condition variable is notified.

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Lifetime of an idle thread.
const KEPT: Duration = Duration::from_secs(10);
/// Beyond this, calls wait.
const THREADS_MAX: usize = 512;

type Call = Box<dyn FnOnce() + Send>;

/// After its drop, the threads end once no call waits; they are not joined.
#[derive(Default)]
pub(crate) struct Threads(Arc<Shared>);

struct Shared {
    state: Mutex<ThreadsState>,
    has_call: Condvar,
    /// `None`: unknown.
    cores: Option<CpuSet>,
}

impl Default for Shared {
    fn default() -> Shared {
        let (state, has_call) = Default::default();
        Shared { state, has_call, cores: sched_getaffinity(None).ok() }
    }
}

#[derive(Default)]
struct ThreadsState {
    calls: VecDeque<Call>,
    threads: usize,
    /// Waiting, or woken for a call not yet taken.
    idle: usize,
    is_over: bool,
}

impl Threads {
    /// Makes the call in a thread, or in the caller if the host refuses to start even one.
    pub(crate) fn start(&self, call: Call) {
        let needs_thread = {
            let mut state = self.0.state.lock();
            state.calls.push_back(call);
            let needs_thread = state.idle < state.calls.len() && state.threads < THREADS_MAX;
            state.threads += usize::from(needs_thread);
            needs_thread
        };
        if !needs_thread {
            self.0.has_call.notify_one();
            return;
        }
        let shared = self.0.clone();
        let thread = std::thread::Builder::new().name("cenote-calls".into());
        if thread.spawn(move || shared.make_calls()).is_err() {
            let mut state = self.0.state.lock();
            state.threads -= 1;
            let call = if state.threads == 0 { state.calls.pop_front() } else { None };
            drop(state);
            // As in a thread, the waiter for the call handles its panic.
            call.into_iter().for_each(|call| drop(catch_unwind(AssertUnwindSafe(call))));
        }
    }
}

impl Shared {
    fn make_calls(&self) {
        if let Some(cores) = &self.cores {
            // Refused only if these cores are gone.
            sched_setaffinity(None, cores).ok();
        }
        let mut state = self.state.lock();
        loop {
            if let Some(call) = state.calls.pop_front() {
                // The panic message is already printed; the waiting task learns of it through the call's
                // captures.
                MutexGuard::unlocked(&mut state, || drop(catch_unwind(AssertUnwindSafe(call))));
                continue;
            }
            if state.is_over {
                break;
            }
            state.idle += 1;
            let waited = self.has_call.wait_for(&mut state, KEPT);
            state.idle -= 1;
            if waited.timed_out() && state.calls.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.has_call.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn calls_that_wait_for_each_other_all_run_at_once() {
        let threads = Threads::default();
        let barrier = Arc::new(std::sync::Barrier::new(20));
        let (done, ended) = channel();
        for round in 0..3 {
            for _ in 0..20 {
                let (barrier, done) = (barrier.clone(), done.clone());
                threads.start(Box::new(move || {
                    barrier.wait();
                    done.send(round).expect("somebody waits");
                }));
            }
            assert!(ended.iter().take(20).all(|of| of == round));
            while threads.0.state.lock().idle < 20 {
                std::thread::yield_now();
            }
        }
        assert_eq!(threads.0.state.lock().threads, 20, "threads are used again");
    }

    #[test]
    fn a_thread_started_by_one_that_is_bound_to_a_core_is_not() {
        let all = sched_getaffinity(None).unwrap();
        let threads = Threads::default();
        let (done, ended) = channel();
        let bound = std::thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set((0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap());
            sched_setaffinity(None, &one).unwrap();
            threads.start(Box::new(move || done.send(sched_getaffinity(None).unwrap()).unwrap()));
        });
        assert!(ended.recv().unwrap() == all);
        bound.join().unwrap();
    }

    #[test]
    fn a_panic_costs_no_thread_and_what_waits_is_done_after_the_end() {
        let threads = Threads::default();
        let (done, ended) = channel();
        threads.start(Box::new(|| panic!("on purpose")));
        for number in 0..10 {
            let done = done.clone();
            threads.start(Box::new(move || done.send(number).expect("somebody waits")));
        }
        drop((threads, done));
        assert_eq!(ended.iter().collect::<std::collections::BTreeSet<_>>(), (0..10).collect());
    }
}
