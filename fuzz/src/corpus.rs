//! The corpus on disk: `corpus/TARGET/*`, one input a file.

use std::path::{Path, PathBuf};

/// The folder of a target.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// (file name, content) of each input of a target, by name. A target without a folder starts from nothing.
pub fn load(target: &str) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(folder(target)) else { return Vec::new() };
    let mut inputs: Vec<(String, Vec<u8>)> = entries
        .flatten()
        .filter_map(|entry| {
            Some((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).ok()?))
        })
        .collect();
    inputs.sort();
    inputs
}
