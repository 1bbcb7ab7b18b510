//! Cache policies behind one trait, and their results on recorded loads.
//!
//! ```text
//!   trace    accesses from files: Cenote's own traces, public formats
//!   replay   a trace through a policy: hits and misses
//!   curve    miss ratios over cache sizes: exact for LRU, sampled for every policy
//!   live     the same of a cache in use, in bounded memory
//!   policy   the trait and the table of names
//!   policies one module each; `zfs_2014` and `zfs_2022` are OpenZFS's ARC of those years
//!   lists    their building block: linked lists over one arena, with a map from blocks to places
//! ```
//!
//! Policies are arithmetic over block numbers: no I/O, no clock, no randomness but a fixed sequence. The same
//! policy runs in the cache of a pool and in a replay.
#![forbid(unsafe_code)]

pub mod curve;
mod lists;
pub mod live;
pub mod policies;
pub mod policy;
pub mod replay;
pub mod trace;

pub use policy::{ARC_MINTIME_NS, Access, BadPolicy, BlockId, Class, Policy, PolicyName};
