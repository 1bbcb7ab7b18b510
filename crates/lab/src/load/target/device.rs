//! Whether a block device is in use or holds data.
//!
//! In use: the kernel refuses `O_EXCL` on a device that is mounted, is swap, or belongs to an array, to LVM
//! or to an imported pool; on a whole disk also if a partition does. Data: any non-zero byte in the first or
//! last mebibytes, where partition tables, superblocks and ZFS labels are, or in sample pages spread over the
//! rest.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::open_exclusively;
use crate::{LabError, Result};

/// Bytes examined completely at each end.
const END_BYTES: u64 = 4 << 20;
/// Pages sampled in between.
const PROBES: u64 = 1024;
const PAGE_BYTES: u64 = 4096;

pub fn refuse_if_used(path: &Path) -> Result<()> {
    match open_exclusively(path) {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => Err(LabError::Refused(format!(
            "{}: in use (mounted, swap, or part of an array or pool); such a device is never touched",
            path.display()
        ))),
        Err(e) => Err(LabError::io(path.display().to_string())(e)),
    }
}

/// Describes the data in a file or device; None if empty, or zero wherever examined.
pub fn holds(path: &Path) -> Result<Option<String>> {
    let what = || path.display().to_string();
    let mut file = File::open(path).map_err(LabError::io(what()))?;
    let size_bytes = file.seek(SeekFrom::End(0)).map_err(LabError::io(what()))?;
    let last = size_bytes.saturating_sub(END_BYTES);
    let step = (last.saturating_sub(END_BYTES) / PROBES).next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
    let ends = [(0, END_BYTES.min(size_bytes)), (last, size_bytes - last)];
    let between = (END_BYTES..last).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    let probes = between.map(|at| (at, PAGE_BYTES.min(last - at)));
    let mut buffer = vec![0; END_BYTES as usize];
    for (at, bytes) in ends.into_iter().chain(probes) {
        let part = &mut buffer[..bytes as usize];
        file.seek(SeekFrom::Start(at)).map_err(LabError::io(what()))?;
        file.read_exact(part).map_err(LabError::io(what()))?;
        if let Some(found) = part.iter().position(|&byte| byte != 0) {
            return Ok(Some(format!("data (byte {} is not zero)", at + found as u64)));
        }
    }
    Ok(None)
}
