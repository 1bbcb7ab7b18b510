//! Pools as a daemon runs them, a file each verb: `arcstat`, `kstat` and `top` show what it counts,
//! `tunable` what holds for all pools while they are open; `inject` makes their devices fail, `record` writes
//! down their load. `version` is that of the daemon.
//!
//! An answer has counts since each pool was opened. Rates are the difference of two answers, which the caller
//! makes.

pub mod arcstat;
pub mod inject;
pub mod kstat;
pub mod record;
pub mod top;
pub mod tunable;
pub mod version;
