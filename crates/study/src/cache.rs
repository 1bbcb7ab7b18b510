//! Effect of a cache device (L2ARC) and a log device (SLOG) on a pool on a slow disk.
//!
//! Idea: Cenote's engine runs in the simulator on one disk with a moving head, and flash for the cache device
//! and the log. Clients like those of report 002 read random blocks of working sets below and above the size
//! of memory and of the cache device, and make durable writes. Two runs of a load differ only in the device.

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

/// Cases to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Cases; for each load, the one without the device comes first.
    pub cases: Vec<Case>,
    /// Reads per case, ten for each durable write.
    pub operations: u64,
}

/// Results of all runs.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// Memory for cached blocks.
    pub memory_bytes: u64,
    /// Size of the cache device.
    pub cache_device_bytes: u64,
    /// In case order.
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
