//! Time of a run: nanoseconds since it began, on the monotonic clock.

use std::time::{Duration, Instant};

/// Since when. All workers of a run share it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    /// It is 0 now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// What it is now. Asking takes some 25 ns.
    #[inline]
    pub fn now_ns(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    /// Sleeps until then, but not longer than `at_most`.
    pub fn sleep_until(self, until_ns: u64, at_most: Duration) {
        let left = Duration::from_nanos(until_ns.saturating_sub(self.now_ns()));
        std::thread::sleep(left.min(at_most));
    }
}
