//! Lays files out before they are measured, so that reads find written data.
//!
//! Files are written, not just extended: reading a hole costs a file system nothing. A file without holes in
//! the worker's region is left alone (an earlier job's, or the user's), and devices always are.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, seek};

use super::place::not_opened;
use super::transfer;
use crate::Result;
use crate::load::control::Control;
use crate::load::job::Job;
use crate::load::workload::buffer::Filler;
use crate::load::workload::{Kind, Operation};

/// Bytes per write.
const CHUNK_BYTES: usize = 1 << 20;

/// Prepares the file of worker `id`: content where it reads, allocated space where it only writes.
///
/// # Errors
/// The file cannot be written, or the run was stopped.
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
    if job.reads() {
        return fill(job, id, &file, path, region, control);
    }
    debug_assert!(job.writes());
    match fallocate(&file, FallocateFlags::empty(), region.start, region.end - region.start) {
        // Like fio, do without reservation on file systems that have none.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) | Ok(()) => Ok(()),
        Err(e) => Err(not_opened(path)(e.into())),
    }
}

/// Drops the cached pages of the worker's region, so that buffered reads start cold.
pub(super) fn forget_cached(file: &File, region: &Range<u64>) {
    // Only a hint: if refused, pages stay cached.
    let _ =
        fadvise(file, region.start, std::num::NonZeroU64::new(region.end - region.start), Advice::DontNeed);
}

/// Whether the region is within the file and has no holes.
fn is_written(file: &File, region: &Range<u64>) -> bool {
    let long = file.metadata().is_ok_and(|metadata| metadata.len() >= region.end);
    // File systems without holes report none.
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
        // Data verified on read count as written once, as a whole.
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
    fn holes_are_filled_and_written_data_kept() {
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
        assert!(std::fs::read(&path).unwrap() == laid_out, "a file without holes is left alone");
    }
}
