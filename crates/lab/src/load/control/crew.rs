//! Several workers process a range of numbers until all are done or time is up.
//!
//! Workers take consecutive numbers in order and finish those they took: unless the work failed, exactly
//! `0..done` is done.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::Result;
use crate::load::control::Control;

#[derive(Debug, Clone, Copy)]
pub struct Crew<'a> {
    pub workers: u32,
    /// Deadline for taking numbers.
    pub until: Option<Instant>,
    /// Numbers that a worker takes at once.
    pub at_once: u64,
    /// Checked for stop requests before each number, and told the progress.
    pub control: &'a Control,
}

impl Crew<'_> {
    /// Calls `one` for the numbers `0..count` while `go_on` allows, each worker with its own state. Returns
    /// the states and the count of numbers done.
    ///
    /// # Errors
    /// The first error of a worker; all then stop.
    pub fn each<S: Send>(
        &self,
        count: u64,
        go_on: impl Fn() -> bool + Sync,
        state: impl Fn(u32) -> Result<S>,
        one: impl Fn(&mut S, u64) -> Result<()> + Sync,
    ) -> Result<(Vec<S>, u64)> {
        let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        let at_once = self.at_once.max(1);
        let work = |mut state: S| -> Result<S> {
            while !failed.load(Relaxed) && go_on() && self.until.is_none_or(|until| Instant::now() < until) {
                let first = next.fetch_add(at_once, Relaxed);
                if first >= count {
                    break;
                }
                self.control.done(first, count);
                for number in first..count.min(first + at_once) {
                    let done = self.control.check().and_then(|()| one(&mut state, number));
                    done.inspect_err(|_| failed.store(true, Relaxed))?;
                }
                self.control.count(at_once, 0);
            }
            Ok(state)
        };
        let own = (0..self.workers.max(1)).map(state).collect::<Result<Vec<S>>>()?;
        let states = std::thread::scope(|scope| {
            let work = &work;
            let running: Vec<_> = own.into_iter().map(|own| scope.spawn(move || work(own))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<S>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            running.into_iter().map(join).collect::<Vec<Result<S>>>()
        });
        let states = states.into_iter().collect::<Result<Vec<S>>>()?;
        Ok((states, next.load(Relaxed).min(count)))
    }
}
