//! The corpus on disk: `corpus/TARGET/*`, one input per file; files named `.zst` are compressed.

use std::path::{Path, PathBuf};

/// The folder of a target.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Name and content of a target's inputs, by name. Without a folder there are none.
pub fn load(target: &str) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(folder(target)) else { return Vec::new() };
    let mut inputs: Vec<(String, Vec<u8>)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let data = std::fs::read(entry.path()).ok()?;
            Some(if name.ends_with(".zst") {
                (name, cenote_testkit::decompress(&data))
            } else {
                (name, data)
            })
        })
        .collect();
    inputs.sort();
    inputs
}
