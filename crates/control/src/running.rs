//! Verbs on a running daemon, one file each: `advise` judges its pools; `arcstat`, `kstat` and `top` show its
//! counters, `tunable` its settings for all pools; `ha` moves pools among machines; `inject`
//! makes devices fail, `record` records their load, `version` is the daemon's version.
//!
//! An answer has counts since each pool was opened. The caller computes rates from two answers.

pub mod advise;
pub mod arcstat;
pub mod ha;
pub mod inject;
pub mod kstat;
pub mod record;
pub mod top;
pub mod tunable;
pub mod version;
