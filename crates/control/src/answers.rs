//! Types of the engine that appear in answers, for programs that format them.
//!
//! They are plain values: none reaches a pool.

pub use cenote_dataset::errlog::LoggedError;
pub use cenote_dataset::{Property, Source, Value};
pub use cenote_device::{Counts, SIZE_BUCKETS, TIME_BUCKETS};
pub use cenote_host::traffic::Traffic;
pub use cenote_pool::{
    ClassLoad, ErrorCounts, IoClass, PoolHealth, PoolState, Problem, Trouble, VdevClass, VdevKind, VdevState,
    VdevStatus,
};
