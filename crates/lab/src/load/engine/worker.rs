//! A worker: one of `numjobs`, with its file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use super::place::{self, WorkFiles};
use super::{layout, transfer};
use crate::load::control::Control;
use crate::load::job::Job;
use crate::load::workload::buffer::Filler;
use crate::load::workload::{Kind, Operation};
use crate::{LabError, Result};

/// Runs its job on its region of a file.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pub job: &'a Job,
    /// Index of the job in the run.
    pub index: usize,
    /// Number of the worker in its job.
    pub number: u32,
    /// Unique among workers that run together; determines its operations and data.
    pub id: u32,
    pub file: File,
    pub path: PathBuf,
    pub region: Range<u64>,
    /// The file system refused direct I/O.
    pub direct_refused: bool,
    /// Knows the expected data, if reads are verified.
    checker: Option<Filler>,
}

impl<'a> Worker<'a> {
    /// Prepares and opens its file.
    ///
    /// # Errors
    /// The file cannot be used, or the run was stopped.
    pub fn new(
        job: &'a Job,
        index: usize,
        number: u32,
        id: u32,
        place: &WorkFiles,
        control: &Control,
    ) -> Result<Worker<'a>> {
        let path = place.path(job, number)?;
        let region = place.region(job, &path)?;
        layout::prepare(job, id, &path, &region, control)?;
        let (file, direct_refused) = place::open(job, &path)?;
        if job.invalidate {
            layout::forget_cached(&file, &region);
        }
        let checker = if job.verify && !job.writes() { Some(Filler::new(job, id)?) } else { None };
        Ok(Worker { job, index, number, id, file, path, region, direct_refused, checker })
    }

    /// Largest read; 0 if none.
    pub fn read_bytes(&self) -> usize {
        if self.job.reads() { self.job.block_sizes.read.largest() as usize } else { 0 }
    }

    /// Largest write; 0 if none.
    pub fn write_bytes(&self) -> usize {
        if self.job.writes() { self.job.block_sizes.write.largest() as usize } else { 0 }
    }

    /// Checks the data of a read if the job only reads and verifies; written data are checked after the run.
    /// Returns whether it did.
    ///
    /// # Errors
    /// The data differ from the layout or the writes.
    #[inline]
    pub fn check(&self, operation: &Operation, buffer: &[u8]) -> Result<bool> {
        let Some(checker) = self.checker.as_ref().filter(|_| operation.kind == Kind::Read) else {
            return Ok(false);
        };
        checker.check(&self.path, buffer, &Operation { number: 0, ..*operation })?;
        Ok(true)
    }

    pub fn failed(&self, operation: &Operation, error: io::Error) -> LabError {
        transfer::failed(&self.path, operation, self.job.direct && !self.direct_refused, error)
    }

    pub fn failed_ring(&self, error: io::Error) -> LabError {
        LabError::io(format!("{}: io_uring (use ioengine=psync to avoid it)", self.path.display()))(error)
    }
}
