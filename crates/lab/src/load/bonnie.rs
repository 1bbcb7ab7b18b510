//! bonnie's tests, by the lab's own implementation or the real bonnie++.
//!
//! One data set is written block by block, rewritten, and read; several seekers visit random blocks and
//! rewrite a tenth of them. Then many small files are created, examined and deleted, with ordered names, then
//! random ones.
//!
//! A file test examines each file with a `stat`, which bonnie++ reports as "read" of an empty file. Each
//! writing phase ends with an `fsync`, which counts.
//!
//! Either tool gives the streams `write`, `rewrite`, `read`, `seek`, and `create`, `stat`, `delete` prefixed
//! with `sequential-` or `random-`. Figures such as `write.cpu` are shares of one processor.

mod blocks;
mod csv;
mod own;
mod phases;
mod real;
mod seeks;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::load::control::Control;
use crate::load::measurement::Outcome;

/// Parameters of bonnie's tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bonnie {
    /// Bytes of the data set.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks that all seekers visit together.
    pub seeks: u64,
    /// Seekers; bonnie requires at least three.
    pub seekers: u32,
    /// Files created in each of the two file tests; a multiple of 1024.
    pub files: u64,
    /// Seed of names and offsets.
    pub seed: u64,
    /// The data set fits into memory: caches are dropped between phases, if permitted.
    pub fits_in_memory: bool,
    /// Run the real bonnie++.
    pub real: bool,
}

impl Bonnie {
    /// Runs all phases once in `place`, a folder.
    ///
    /// # Errors
    /// The data set does not fit, an operation fails, bonnie++ is requested but not installed, or the work
    /// was stopped.
    pub fn run(&self, place: &Path, control: &Control) -> Result<Outcome> {
        own::check_room(self, place)?;
        if self.real { real::run(self, place, control) } else { own::run(self, place, control) }
    }
}

#[cfg(test)]
mod tests;
