//! Damages one disk of a test pool: zeros over a range, scattered corruption, or a full wipe.
//!
//! Only [`wipe`] touches labels (512 KiB at both ends, and the 3.5 MiB boot area after the first two): a disk
//! without labels is missing, not one with errors. Source: OpenZFS `vdev_impl.h` (`VDEV_LABEL_START_SIZE`,
//! `VDEV_LABEL_END_SIZE`).

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::load::control::Control;
use crate::load::machine::caches;
use crate::{LabError, Result};

/// Labels 0 and 1 and the boot area.
const LABEL_START_BYTES: u64 = 4 << 20;
/// Labels 2 and 3.
const LABEL_END_BYTES: u64 = 512 << 10;
const CHUNK_BYTES: u64 = 1 << 20;
/// Number of zeroed ranges: a single range of a half-full disk might hold hardly any data.
const ZERO_RANGES: u64 = 8;
const SCATTER_BYTES: u64 = 512;

pub fn size(disk: &Path) -> Result<u64> {
    File::open(disk)
        .and_then(|mut f| f.seek(SeekFrom::End(0)))
        .map_err(LabError::io(disk.display().to_string()))
}

/// Zeroes `percent` of the disk, in [`ZERO_RANGES`] evenly spread ranges. Returns the number of bytes.
pub fn zeros(disk: &Path, percent: u8) -> Result<u64> {
    let (file, from, to) = open(disk)?;
    let part = (to - from) / ZERO_RANGES;
    let mut injured_bytes = 0;
    for number in 0..ZERO_RANGES {
        let begin = from + number * part + part / 4;
        let range = begin..(begin + part / 100 * u64::from(percent)).min(to);
        injured_bytes += range.end - range.start;
        zero(&file, disk, range, None)?;
    }
    Ok(injured_bytes)
}

/// Inverts 512 bytes in `count` evenly spread regions. Returns the number of bytes.
pub fn scatter(disk: &Path, count: u32) -> Result<u64> {
    let (file, from, to) = open(disk)?;
    let what = || disk.display().to_string();
    let step = ((to - from) / u64::from(count.max(1))).max(SCATTER_BYTES) / SCATTER_BYTES * SCATTER_BYTES;
    let mut sector = [0; SCATTER_BYTES as usize];
    let mut injured_bytes = 0;
    for number in 0..u64::from(count) {
        // Avoid the start of each part: metaslabs start at such round offsets.
        let at = from + number * step + step / 3 / SCATTER_BYTES * SCATTER_BYTES;
        if at + SCATTER_BYTES > to {
            break;
        }
        file.read_exact_at(&mut sector, at).map_err(LabError::io(what()))?;
        sector.iter_mut().for_each(|byte| *byte = !*byte);
        file.write_all_at(&sector, at).map_err(LabError::io(what()))?;
        injured_bytes += SCATTER_BYTES;
    }
    finish(&file, disk)?;
    Ok(injured_bytes)
}

pub fn wipe(disk: &Path, control: &Control) -> Result<()> {
    let (file, ..) = open(disk)?;
    zero(&file, disk, 0..size(disk)?, Some(control))
}

fn open(disk: &Path) -> Result<(File, u64, u64)> {
    let bytes = size(disk)? / CHUNK_BYTES * CHUNK_BYTES;
    if bytes < 8 * LABEL_START_BYTES {
        return Err(LabError::Refused(format!("{}: too small for a pool's disk", disk.display())));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(disk)
        .map_err(LabError::io(disk.display().to_string()))?;
    Ok((file, LABEL_START_BYTES, bytes - LABEL_END_BYTES))
}

fn zero(file: &File, disk: &Path, range: std::ops::Range<u64>, control: Option<&Control>) -> Result<()> {
    let zeros = vec![0; CHUNK_BYTES as usize];
    let mut at = range.start;
    while at < range.end {
        if let Some(control) = control {
            control.check()?;
            control.done(at, range.end);
        }
        let part = &zeros[..(range.end - at).min(CHUNK_BYTES) as usize];
        file.write_all_at(part, at).map_err(LabError::io(disk.display().to_string()))?;
        at += part.len() as u64;
    }
    finish(file, disk)
}

/// Makes the damage durable, and drops it from the cache so that reads reach the disk.
fn finish(file: &File, disk: &Path) -> Result<()> {
    file.sync_all().map_err(LabError::io(disk.display().to_string()))?;
    caches::drop_pages(file);
    Ok(())
}
