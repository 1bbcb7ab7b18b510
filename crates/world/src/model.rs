//! The model: the state of a pool as its users see it, and the effect of each call on it.
//!
//! Idea: a pure state machine. [`Pool::apply`] maps a state and a call to the next state and the outcome;
//! time, concurrency and crashes are the oracle's. States share their parts, so the oracle may keep
//! thousands.
//!
//! Datasets, snapshots and files keep the numbers of the calls that made them.

pub mod blocks;
pub mod call;
pub mod data;
pub mod pool;
pub mod tree;
pub mod verb;

pub use blocks::Blocks;
pub use call::{Action, Call, CallId, ClientId, Outcome, Scope, Source};
pub use data::Data;
pub use pool::{BLOCK_BYTES, Content, Dataset, DatasetId, Pool, Snapshot};
pub use tree::{Body, File, FileId, Tree};
