//! Answers about a running daemon: caches, live views, counters, tunables, faults.

pub mod arcstat;
pub mod inject;
pub mod kstat;
pub mod top;
pub mod tunable;
pub mod version;
