//! Inspects whole pools: `scan` (every file), `verify` (every block), `rescue` (everything recoverable),
//! `dump` (any structure), `rewind` (which older state is intact); copies: `copy` moves files and volumes
//! out of a pool, `put` into one; `rebalance` stores blocks again where and how they would be stored today;
//! and `sent` reads files from a send stream.
//!
//! Idea: these modules read a whole pool, so they collect block pointers, sort them by address and read
//! neighbours together. Work proceeds in windows and passes results on at once, so memory does not depend on
//! the pool's size.
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
