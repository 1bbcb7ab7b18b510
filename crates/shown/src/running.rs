//! Answers about a running daemon: caches, live views, counters, tunables, faults, pools that
//! move among machines.

pub mod arcstat;
pub mod ha;
pub mod inject;
pub mod kstat;
pub mod top;
pub mod tunable;
pub mod version;
