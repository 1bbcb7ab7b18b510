//! Run time: nanoseconds since the start of a run, on the monotonic clock.

use std::time::{Duration, Instant};

/// Start, shared by all workers of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// A call takes about 25 ns.
    #[inline]
    pub fn now_ns(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    pub fn sleep_until(self, until_ns: u64, at_most: Duration) {
        let left = Duration::from_nanos(until_ns.saturating_sub(self.now_ns()));
        std::thread::sleep(left.min(at_most));
    }
}
