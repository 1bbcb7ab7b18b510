//! A job whose options are still being read; combinations are resolved at the end.

use super::value::Base;
use crate::load::job::{Content, Job, Pattern};

/// Directions (`rw`), before the mix is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
    Mixed,
}

#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub job: Job,
    pub base: Base,
    pub direction: Direction,
    pub random: bool,
    /// Reads of a mix, in percent.
    pub mix_percent: u8,
    pub zero_buffers: bool,
    pub refill_buffers: bool,
    pub scramble_buffers: bool,
}

impl Default for Draft {
    fn default() -> Draft {
        Draft {
            job: Job::default(),
            base: Base::Powers1024,
            direction: Direction::Read,
            random: false,
            mix_percent: 50,
            zero_buffers: false,
            refill_buffers: false,
            scramble_buffers: true,
        }
    }
}

impl Draft {
    /// Finished job, if its options are consistent.
    pub fn finish(self) -> Result<Job, String> {
        let mut job = self.job;
        let read_percent = match self.direction {
            Direction::Read => 100,
            Direction::Write => 0,
            Direction::Mixed => self.mix_percent,
        };
        job.pattern = Pattern { random: self.random, read_percent };
        job.content = match self {
            Draft { zero_buffers: true, .. } => Content::Zeros,
            Draft { refill_buffers: true, .. } => Content::Fresh,
            Draft { scramble_buffers: false, .. } => Content::Reused,
            _ => Content::Stamped,
        };
        match job.contradiction() {
            Some(what) => Err(format!("job {}: {what}", job.name)),
            None => Ok(job),
        }
    }
}
