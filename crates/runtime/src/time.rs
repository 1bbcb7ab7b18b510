//! Instants: nanoseconds since the runtime began, one type for both clocks.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Monotonic time, in nanoseconds since the runtime began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub(crate) u64);

impl Instant {
    /// Nanoseconds since the runtime began.
    pub fn as_ns(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates: 584 years mean "never".
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

/// [`Runtime::timeout`](crate::Runtime::timeout) ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not done within {limit:?}")]
pub struct Elapsed {
    /// The time allowed.
    pub limit: Duration,
}
