//! bonnie's tests, by ourselves or by the real bonnie++.
//!
//! One data set, written block by block, read and written again, read; then blocks at random places, a tenth of them written again, by several seekers at once.
//! Then many small files: created, looked at and deleted, with names in order and with random names.
//!
//! What bonnie++ measures as "read" of files is a `stat` each when they are empty; it is called `stat` here. Each phase that writes
//! ends with an `fsync`, which counts.
//!
//! Streams, by whichever tool: `write`, `rewrite`, `read`, `seek`, and `create`, `stat`, `delete` with `sequential-` and `random-` before them;
//! figures `write.cpu` and so on are parts of one processor.

mod blocks;
mod csv;
mod own;
mod phases;
mod real;
mod seeks;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::control::Control;
use crate::measurement::Outcome;

/// bonnie's choices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bonnie {
    /// Bytes of the data set.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// How many blocks the seekers visit together.
    pub seeks: u64,
    /// How many seekers there are; bonnie asks for three at least.
    pub seekers: u32,
    /// How many files are created in each of the two file tests; a multiple of 1024.
    pub files: u64,
    /// Seed of names and places.
    pub seed: u64,
    /// The data set fits into the memory of the machine: caches are dropped between the phases, where that is allowed.
    pub fits_in_memory: bool,
    /// The real bonnie++ does it.
    pub real: bool,
}

impl Bonnie {
    /// Does all of it once in `place`, a folder.
    ///
    /// # Errors
    /// The data set does not fit, something fails, bonnie++ is not installed where it is asked for, or the work was stopped.
    pub fn run(&self, place: &Path, control: &Control) -> Result<Outcome> {
        own::check_room(self, place)?;
        if self.real { real::run(self, place, control) } else { own::run(self, place, control) }
    }
}

#[cfg(test)]
mod tests;
