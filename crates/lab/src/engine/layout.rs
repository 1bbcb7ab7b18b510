//! What is read must have been written: files are laid out before they are measured, where they are not yet.
//!
//! Written, not only made long: reading a hole costs a file system nothing. A file that has no hole in the worker's part is left as it
//! is (an earlier job wrote it, or the user named it), and devices always are.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, seek};

use super::place::not_opened;
use super::transfer;
use super::worker::{reads, writes};
use crate::Result;
use crate::control::Control;
use crate::job::Job;
use crate::workload::buffer::Filler;
use crate::workload::{Kind, Operation};

/// Written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Makes the file of worker `id` ready: content where it reads, room where it only writes.
///
/// # Errors
/// It can't be written, or the run is to stop.
pub(super) fn prepare(job: &Job, id: u32, path: &Path, region: &Range<u64>, control: &Control) -> Result<()> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Ok(());
    }
    let whole = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .is_ok_and(|file| is_written(&file, region));
    if whole {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW);
    let file = file.open(path).map_err(not_opened(path))?;
    if reads(job) {
        return fill(job, id, &file, path, region, control);
    }
    debug_assert!(writes(job));
    match fallocate(&file, FallocateFlags::empty(), region.start, region.end - region.start) {
        // As fio does; what can't reserve room does without.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) | Ok(()) => Ok(()),
        Err(e) => Err(not_opened(path)(e.into())),
    }
}

/// Drops what the page cache has of the worker's part, so that buffered reads begin cold.
pub(super) fn forget_cached(file: &File, region: &Range<u64>) {
    // A hint: who refuses it stays warm.
    let _ =
        fadvise(file, region.start, std::num::NonZeroU64::new(region.end - region.start), Advice::DontNeed);
}

/// Whether the file has no hole there, and is as long.
fn is_written(file: &File, region: &Range<u64>) -> bool {
    let long = file.metadata().is_ok_and(|metadata| metadata.len() >= region.end);
    // File systems that know no holes say that there is none.
    long && seek(file, SeekFrom::Hole(region.start)).map_or(true, |hole| hole >= region.end)
}

fn fill(job: &Job, id: u32, file: &File, path: &Path, region: &Range<u64>, control: &Control) -> Result<()> {
    control.doing(format!("{}: laying out {}", job.name, path.display()));
    let mut filler = Filler::new(job, id)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    filler.prepare(&mut buffer);
    let mut offset = region.start;
    for number in 0.. {
        control.check()?;
        control.done(offset - region.start, region.end - region.start);
        let bytes = CHUNK_BYTES.min((region.end - offset) as usize);
        // What is verified when it is read counts as written once, as a whole.
        let number = if job.verify { 0 } else { number };
        let operation = Operation { kind: Kind::Write, offset, bytes: bytes as u32, number };
        let chunk = &mut buffer[..bytes];
        filler.renew(chunk, &operation);
        let failed = |e: io::Error| transfer::failed(path, &operation, false, e);
        file.write_all_at(chunk, offset).map_err(failed)?;
        offset += bytes as u64;
        if offset == region.end {
            break;
        }
    }
    let sync = Operation { kind: Kind::Datasync, offset: 0, bytes: 0, number: 0 };
    file.sync_data().map_err(|e| transfer::failed(path, &sync, false, e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
    use super::*;

    #[test]
    fn holes_are_filled_and_what_is_written_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let job = Job { offset_bytes: 4096, size_bytes: 3 << 20, ..Job::default() };
        let region = 4096..4096 + (3 << 20);
        File::create(&path).unwrap().set_len(16 << 20).unwrap();
        prepare(&job, 0, &path, &region, &Control::default()).unwrap();
        let laid_out = std::fs::read(&path).unwrap();
        assert_eq!(laid_out.len(), 16 << 20);
        assert!(laid_out[..4096].iter().chain(&laid_out[region.end as usize..]).all(|&byte| byte == 0));
        let zeros = laid_out[4096..region.end as usize]
            .chunks(512)
            .filter(|sector| sector.iter().all(|&b| b == 0))
            .count();
        assert_eq!(zeros, 0);
        prepare(&Job { seed: 7, ..job }, 0, &path, &region, &Control::default()).unwrap();
        assert!(std::fs::read(&path).unwrap() == laid_out, "a file without holes is left as it is");
    }
}
