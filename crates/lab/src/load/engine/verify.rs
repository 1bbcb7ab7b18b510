//! Reads back and checks a worker's writes.
//!
//! Writes are not remembered: the workload yields the same operations again. The last write at an offset
//! counts. They are read in offset order, in windows of the file, so memory stays bounded (about 60 MiB).

use std::collections::BTreeMap;

use super::buffers::Buffers;
use super::halt::Halt;
use super::transfer;
use super::worker::Worker;
use crate::Result;
use crate::load::workload::buffer::Filler;
use crate::load::workload::{Kind, Operation, Workload};

/// Writes processed together.
const WINDOW_OPERATIONS: u64 = 1 << 20;

/// Checks the writes among the first `issued` operations. Returns the bytes read.
///
/// # Errors
/// The data differ or cannot be read, or the run was stopped.
pub(super) fn read_back(worker: &Worker<'_>, issued: u64, halt: &Halt) -> Result<u64> {
    let filler = Filler::new(worker.job, worker.id)?;
    let smallest = worker.job.block_sizes.write.0.iter().map(|size| size.0).min().unwrap_or(1);
    let window_bytes = WINDOW_OPERATIONS * u64::from(smallest.max(1));
    let mut buffers = Buffers::new(1, worker.write_bytes());
    let (mut from, mut bytes) = (worker.region.start, 0);
    while from < worker.region.end {
        let window = from..from.saturating_add(window_bytes);
        let all = Workload::new(worker.job, worker.id, worker.region.clone())?;
        let done = all.take_while(|operation| operation.number < issued);
        let writes =
            done.filter(|operation| operation.kind == Kind::Write && window.contains(&operation.offset));
        let last: BTreeMap<u64, Operation> = writes.map(|operation| (operation.offset, operation)).collect();
        for written in last.values() {
            halt.check()?;
            let read = Operation { kind: Kind::Read, ..*written };
            let buffer = buffers.slot(0, read.bytes as usize);
            transfer::complete(&worker.file, &read, buffer, 0).map_err(|e| worker.failed(&read, e))?;
            filler.check(&worker.path, buffer, written)?;
            bytes += u64::from(read.bytes);
        }
        from = window.end;
    }
    Ok(bytes)
}
