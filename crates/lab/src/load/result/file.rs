//! Files that are either complete or absent, and checks that they are unchanged.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::bad;
use crate::{LabError, Result};

/// Limit on the size of a file: larger ones would not fit into memory, and no result has any.
const LARGEST_BYTES: u64 = 8 << 30;

/// Length and digest of a file as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    bytes: u64,
    sha256: String,
}

impl Stamp {
    fn of(contents: &[u8]) -> Stamp {
        let digest = Sha256::digest(contents);
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Stamp { bytes: contents.len() as u64, sha256 }
    }
}

/// Writes `contents` to `path` durably, via a temporary name.
pub fn write(path: &Path, contents: &[u8]) -> Result<Stamp> {
    write_with(path, |file| file.write_all(contents))?;
    Ok(Stamp::of(contents))
}

/// Lets `fill` write the file at `path`.
pub fn write_with(path: &Path, fill: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    let written = File::create(&partial)
        .and_then(|mut file| fill(&mut file).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&partial, path))
        .and_then(|()| sync_folder(path.parent().unwrap_or(path)));
    written.map_err(|error| {
        // The partial file is useless; only the error matters.
        let _ = fs::remove_file(&partial);
        LabError::io(format!("cannot write {}", path.display()))(error)
    })
}

/// Makes a folder's names durable.
pub fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|e| bad(path, format!("cannot be written as JSON: {e}")))?;
    text.push(b'\n');
    write(path, &text).map(|_| ())
}

pub fn read(path: &Path) -> Result<Bytes> {
    let length = fs::metadata(path).map_err(LabError::io(path.display().to_string()))?.len();
    if length > LARGEST_BYTES {
        return Err(bad(path, format!("{length} bytes are too large for a result")));
    }
    fs::read(path).map(Bytes::from).map_err(LabError::io(path.display().to_string()))
}

/// Reads a file that must be unchanged.
pub fn read_stamped(path: &Path, stamp: &Stamp) -> Result<Bytes> {
    let contents = read(path)?;
    if Stamp::of(&contents) == *stamp {
        Ok(contents)
    } else {
        Err(bad(path, "is damaged: its digest differs from that in measurement.json"))
    }
}

pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    serde_json::from_slice(&read(path)?).map_err(|e| bad(path, e.to_string()))
}
