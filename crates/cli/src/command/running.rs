//! Commands on a running daemon: its counters, its tunables, faults of its devices.

pub mod arcstat;
pub mod ha;
pub mod inject;
pub mod kstat;
pub mod top;
pub mod tunable;
pub mod version;
