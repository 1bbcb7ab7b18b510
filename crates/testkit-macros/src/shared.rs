//! Locations of test material.

use std::path::{Path, PathBuf};

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `CENOTE_SHARED`, else `../shared`, if it exists.
pub(crate) fn folder() -> Option<PathBuf> {
    let set = std::env::var_os("CENOTE_SHARED").map(PathBuf::from);
    Some(set.unwrap_or_else(|| workspace().join("../shared"))).filter(|folder| folder.is_dir())
}
