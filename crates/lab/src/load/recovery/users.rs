//! Users of the pool while it is repaired: random reads and writes of files at a fixed rate.
//!
//! Idea: the rate is fixed because users that wait would ask a slower pool for less, and so hide delays. A
//! late user does not catch up. Files are not cached by the kernel; the pool's own cache keeps metadata only
//! (`primarycache`, set when the pool is created).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::load::measurement::{Stream, Tally};
use crate::load::workload::content::Content;
use crate::load::workload::random::Random;
use crate::{LabError, Result};

/// Interval between operations.
const EVERY: Duration = Duration::from_millis(20);
/// One operation in this many writes, the others read.
const WRITES_ONE_IN: u64 = 4;
/// Bytes of an operation: part of a record, or several records.
const OPERATION_BYTES: u64 = 64 << 10;

#[derive(Debug)]
pub struct Users {
    files: Vec<(File, u64)>,
    content: Content,
    random: Random,
}

impl Users {
    /// Users of these files; files smaller than an operation are skipped.
    ///
    /// # Errors
    /// A file can't be opened, or there is none.
    pub fn of(paths: &[PathBuf]) -> Result<Users> {
        let mut files = Vec::new();
        for path in paths {
            let what = || path.display().to_string();
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
            let file = options.open(path).map_err(LabError::io(what()))?;
            let operations = file.metadata().map_err(LabError::io(what()))?.len() / OPERATION_BYTES;
            if operations > 0 {
                files.push((file, operations));
            }
        }
        match files.is_empty() {
            true => Err(LabError::Refused("the pool is too small for users' files".into())),
            false => {
                let content = Content::new(OPERATION_BYTES as usize, 2, 0)?;
                Ok(Users { files, content, random: Random::new(3, 0) })
            }
        }
    }

    /// Works until told to stop; returns its reads and its writes.
    ///
    /// # Errors
    /// An operation failed.
    pub fn work(&mut self, stop: &AtomicBool) -> Result<[Stream; 2]> {
        let began = Instant::now();
        let (mut reads, mut writes) = (Tally::new(began), Tally::new(began));
        let mut buffer = vec![0; OPERATION_BYTES as usize];
        let mut due = began;
        while !stop.load(Ordering::Relaxed) {
            let (file, operations) = &self.files[self.random.below(self.files.len() as u64) as usize];
            let at = self.random.below(*operations) * OPERATION_BYTES;
            let done = if self.random.below(WRITES_ONE_IN) == 0 {
                let bytes = self.content.next(OPERATION_BYTES);
                writes.time(OPERATION_BYTES, || file.write_all_at(bytes, at))
            } else {
                reads.time(OPERATION_BYTES, || file.read_exact_at(&mut buffer, at))
            };
            done.map_err(LabError::io("users of the pool"))?;
            due = (due + EVERY).max(Instant::now());
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let runtime_ns = began.elapsed().as_nanos() as u64;
        Ok([reads.into_stream("read", runtime_ns), writes.into_stream("write", runtime_ns)])
    }
}
