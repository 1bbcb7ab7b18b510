//! What is written into files of trees and data sets: bytes that neither compress nor occur twice.

use crate::Result;
use crate::job::Job;
use crate::workload::buffer::Filler;
use crate::workload::{Kind, Operation};

/// What one worker writes.
#[derive(Debug)]
pub struct Content {
    filler: Filler,
    buffer: Vec<u8>,
    writes: u64,
}

impl Content {
    /// Gives at most `bytes` at once; each worker's differ.
    ///
    /// # Errors
    /// None: the job that it stands for asks for nothing that excludes each other.
    pub fn new(bytes: usize, seed: u64, worker: u32) -> Result<Content> {
        let mut filler = Filler::new(&Job { seed, ..Job::default() }, worker)?;
        let mut buffer = vec![0; bytes];
        filler.prepare(&mut buffer);
        Ok(Content { filler, buffer, writes: 0 })
    }

    /// The next bytes: at most `bytes` of them.
    pub fn next(&mut self, bytes: u64) -> &[u8] {
        let length = self.buffer.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        let part = &mut self.buffer[..length];
        let bytes = u32::try_from(length).unwrap_or(u32::MAX);
        self.writes += 1;
        self.filler.renew(part, &Operation { kind: Kind::Write, offset: 0, bytes, number: self.writes });
        part
    }
}
