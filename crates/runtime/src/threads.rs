//! Threads for calls that block: as many as there are calls at once, kept for a while after.
//!
//! ```text
//!   start(call) --> calls waiting --> a thread that waits, or a new one if there are more calls than such threads
//! ```
//!
//! Why not tokio's: it wakes a thread while it holds the lock that this thread takes first. On few cores each call then costs several switches
//! between threads and a dozen system calls, more than a small write does. Here the lock is free when a thread wakes: one call, one wake.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// A thread without a call ends after so long.
const KEPT: Duration = Duration::from_secs(10);
/// Calls beyond so many wait for one of those to end.
const THREADS_MAX: usize = 512;

type Call = Box<dyn FnOnce() + Send>;

/// Where calls go. When it is dropped, the threads end once no call waits; nobody waits for them.
#[derive(Default)]
pub(crate) struct Threads(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    has_call: Condvar,
}

#[derive(Default)]
struct State {
    calls: VecDeque<Call>,
    threads: usize,
    /// Of those, who waits for a call, or was woken for one and is not there yet.
    idle: usize,
    is_over: bool,
}

impl Threads {
    /// Has a thread make the call.
    ///
    /// # Panics
    /// The host refuses to start even one thread: the call could never be made.
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
        if let Err(error) = thread.spawn(move || shared.make_calls()) {
            let mut state = self.0.state.lock();
            state.threads -= 1;
            assert!(state.threads > 0, "cannot start a thread: {error}");
        }
    }
}

impl Shared {
    /// What a thread does.
    fn make_calls(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(call) = state.calls.pop_front() {
                // A panic was reported when it began; whoever waits for the call hears of it by what the call holds.
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
