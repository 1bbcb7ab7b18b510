//! Damage to one disk of a pool made for the purpose: zeros over a range, bytes scattered, all wiped.
//!
//! Labels (512 KiB at both ends, and the boot area of 3.5 MiB behind the first two) are spared but by [`wipe`]: a disk without labels is a missing disk, and
//! not one with errors. Source: OpenZFS `vdev_impl.h` (`VDEV_LABEL_START_SIZE`, `VDEV_LABEL_END_SIZE`).

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::control::Control;
use crate::{LabError, Result, caches};

/// Labels 0 and 1 and the boot area.
const LABEL_START_BYTES: u64 = 4 << 20;
/// Labels 2 and 3.
const LABEL_END_BYTES: u64 = 512 << 10;
const CHUNK_BYTES: u64 = 1 << 20;
/// Zeros are written to so many places: in one alone of a half filled disk there may be hardly anything.
const ZERO_RANGES: u64 = 8;
/// What one scattered place overwrites.
const SCATTER_BYTES: u64 = 512;

/// Size of a file or device, in bytes.
pub fn size(disk: &Path) -> Result<u64> {
    File::open(disk)
        .and_then(|mut f| f.seek(SeekFrom::End(0)))
        .map_err(LabError::io(disk.display().to_string()))
}

/// Makes `percent` of the disk zero, in [`ZERO_RANGES`] ranges evenly spread.
pub fn zeros(disk: &Path, percent: u8) -> Result<()> {
    let (file, from, to) = open(disk)?;
    let part = (to - from) / ZERO_RANGES;
    for number in 0..ZERO_RANGES {
        let begin = from + number * part + part / 4;
        zero(&file, disk, begin..(begin + part / 100 * u64::from(percent)).min(to), None)?;
    }
    Ok(())
}

/// Inverts 512 bytes at `count` places, evenly spread.
pub fn scatter(disk: &Path, count: u32) -> Result<()> {
    let (file, from, to) = open(disk)?;
    let what = || disk.display().to_string();
    let step = ((to - from) / u64::from(count.max(1))).max(SCATTER_BYTES) / SCATTER_BYTES * SCATTER_BYTES;
    let mut sector = [0; SCATTER_BYTES as usize];
    for number in 0..u64::from(count) {
        // Not at the beginning of each part: metaslabs begin at such round places.
        let at = from + number * step + step / 3 / SCATTER_BYTES * SCATTER_BYTES;
        if at + SCATTER_BYTES > to {
            break;
        }
        file.read_exact_at(&mut sector, at).map_err(LabError::io(what()))?;
        sector.iter_mut().for_each(|byte| *byte = !*byte);
        file.write_all_at(&sector, at).map_err(LabError::io(what()))?;
    }
    finish(&file, disk)
}

/// Makes the whole disk zero, labels and all.
pub fn wipe(disk: &Path, control: &Control) -> Result<()> {
    let (file, ..) = open(disk)?;
    zero(&file, disk, 0..size(disk)?, Some(control))
}

fn open(disk: &Path) -> Result<(File, u64, u64)> {
    let bytes = size(disk)? / CHUNK_BYTES * CHUNK_BYTES;
    if bytes < 8 * LABEL_START_BYTES {
        return Err(LabError::Refused(format!("{}: too small to be a disk of a pool", disk.display())));
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

/// What is damaged must be so on the disk, and be read from there.
fn finish(file: &File, disk: &Path) -> Result<()> {
    file.sync_all().map_err(LabError::io(disk.display().to_string()))?;
    caches::drop_pages(file);
    Ok(())
}
