//! The content of files in trees and data sets: incompressible, without duplicates.

use crate::Result;
use crate::load::job::Job;
use crate::load::workload::buffer::Filler;
use crate::load::workload::{Kind, Operation};

#[derive(Debug)]
pub struct Content {
    filler: Filler,
    buffer: Vec<u8>,
    writes: u64,
}

impl Content {
    /// Gives at most `bytes` at once; each worker's content differs.
    ///
    /// # Errors
    /// None in practice: the underlying job has no conflicting options.
    pub fn new(bytes: usize, seed: u64, worker: u32) -> Result<Content> {
        let mut filler = Filler::new(&Job { seed, ..Job::default() }, worker)?;
        let mut buffer = vec![0; bytes];
        filler.prepare(&mut buffer);
        Ok(Content { filler, buffer, writes: 0 })
    }

    /// Next bytes, at most `bytes` of them.
    pub fn next(&mut self, bytes: u64) -> &[u8] {
        let length = self.buffer.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        let part = &mut self.buffer[..length];
        let bytes = u32::try_from(length).unwrap_or(u32::MAX);
        self.writes += 1;
        self.filler.renew(part, &Operation { kind: Kind::Write, offset: 0, bytes, number: self.writes });
        part
    }
}
