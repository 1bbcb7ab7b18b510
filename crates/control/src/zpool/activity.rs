//! Background work of a daemon: verbs that order it and wait for it.

use std::time::Duration;

pub mod initialize;
mod passes;
pub mod prefetch;
pub mod resilver;
pub mod scans;
pub mod scrub;
pub mod trim;
pub mod wait;

/// Polling interval.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(200);
