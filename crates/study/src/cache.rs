//! What a cache device (L2ARC) and a log device (SLOG) bring to a pool on a slow disk.
//!
//! Idea: Cenote's own engine on a pool of its own in the simulator: one disk with a moving head, flash for
//! the cache device and for the log. Clients as those of report 002 read blocks of a volume's size at random
//! from working sets that are smaller and larger than memory and than the cache device, and make durable
//! writes. What differs between two runs is the device in question.

mod case;
mod report;
mod run;
mod work;

use cenote_runtime::Runtime;
use serde::Serialize;

use crate::Study;
use crate::bench::{Progress, run_each};
use crate::error::Result;
use case::{MEMORY_BYTES, SECOND_BYTES};
use run::Loaded;

pub use case::{Case, Second};
pub use run::Run;

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The cases; of each load, that without the device comes first.
    pub cases: Vec<Case>,
    /// Reads of a case, ten for each durable write.
    pub operations: u64,
}

/// What the runs showed.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// Memory for cached blocks.
    pub memory_bytes: u64,
    /// The cache device.
    pub cache_device_bytes: u64,
    /// In the order of the cases.
    pub runs: Vec<Run>,
}

impl Study for Request {
    type Answer = Answer;

    async fn run(self, rt: &Runtime, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Answer> {
        let loads = self.cases.into_iter().map(|case| Loaded { case, reads: self.operations });
        let runs = run_each(rt, &loads.collect::<Vec<_>>(), progress).await?;
        Ok(Answer { memory_bytes: MEMORY_BYTES, cache_device_bytes: SECOND_BYTES, runs })
    }
}
