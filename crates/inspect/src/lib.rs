//! Inspects whole pools: `scan` (every file), `verify` (every block), `rescue` (everything recoverable),
//! `dump` (any structure), `rewind` (which older state is intact); copies: `copy` moves files and volumes
//! out of a pool, `put` into one; `rebalance` stores blocks again where and how they would be stored today;
//! and `sent` reads files from a send stream.
//!
//! Idea: these modules read a whole pool, so they read it in disk order: block pointers are collected, sorted
//! by address and read with their neighbours, instead of walking the tree block by block. Memory does not
//! depend on the pool's size: work proceeds in windows, and results are passed on immediately.
#![forbid(unsafe_code)]

pub mod copy;
pub mod dump;
mod error;
pub mod put;
pub mod rebalance;
pub mod rescue;
pub mod rewind;
pub mod scan;
pub mod sent;
pub mod verify;

pub use error::{InspectError, Result};
