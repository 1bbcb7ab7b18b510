//! Reserves space for writes that must succeed on a full disk: the record of a failure, often for lack of
//! space.
//!
//! A file of incompressible bytes lies beside the result. If a write finds no space, the file is removed and
//! the write retried: several times, since copy-on-write file systems return space seconds later.

use std::fs;
use std::io::ErrorKind::{QuotaExceeded, StorageFull};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::file;
use crate::load::workload::random::Random;
use crate::{LabError, Result};

const FILE: &str = ".reserve";
/// Space for thousands of failures.
const BYTES: usize = 1 << 20;
/// Number and interval of retries after the reserve is removed: OpenZFS frees space with its next txg, at
/// most five seconds later.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Reserve(PathBuf);

impl Reserve {
    /// Reserves space in the result at `path`.
    ///
    /// # Errors
    /// No space.
    pub fn keep(path: &Path) -> Result<Reserve> {
        let reserve = Reserve(path.join(FILE));
        if fs::metadata(&reserve.0).is_ok_and(|known| known.len() == BYTES as u64) {
            return Ok(reserve);
        }
        let mut random = Random::new(BYTES as u64, 0);
        let bytes: Vec<u8> = (0..BYTES / 8).flat_map(|_| random.bits().to_le_bytes()).collect();
        file::write(&reserve.0, &bytes)?;
        Ok(reserve)
    }

    /// Runs a small write, giving up the reserve if space is short. Afterwards it reserves again, if
    /// possible.
    ///
    /// # Errors
    /// The write fails even then.
    pub fn write(&self, mut put: impl FnMut() -> Result<()>) -> Result<()> {
        let first = put();
        if !first.as_ref().is_err_and(is_full) {
            return first;
        }
        self.release();
        for number in 0.. {
            match put() {
                Err(error) if is_full(&error) && number < TRIES => thread::sleep(PAUSE),
                written => {
                    // Without space for another reserve, the next failure may use the rest of this one.
                    let _ = self.0.parent().map(Reserve::keep);
                    return written;
                }
            }
        }
        first
    }

    pub fn release(&self) {
        // The file may be gone already.
        let _ = fs::remove_file(&self.0);
        let _ = self.0.parent().map(file::sync_folder);
    }
}

fn is_full(error: &LabError) -> bool {
    matches!(error, LabError::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
    use super::*;

    #[test]
    fn a_full_disk_still_takes_reserved_writes() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::keep(dir.path()).unwrap();
        let kept = dir.path().join(FILE);
        let full = || LabError::io("failures.json")(std::io::Error::from(StorageFull));
        // A disk with no space left but the reserve.
        let put = || if kept.exists() { Err(full()) } else { Ok(()) };
        reserve.write(put).unwrap();
        assert!(kept.exists(), "kept for the next failure");
        reserve.write(put).unwrap();
        let other = reserve.write(|| Err(LabError::Refused("no".into())));
        assert!(other.is_err() && kept.exists(), "other errors do not use it up");
        reserve.release();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
