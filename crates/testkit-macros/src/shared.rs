//! Where material for tests lies, beside the workspace or in it.

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder `CENOTE_SHARED`, else `../shared`, if it is there.
pub(crate) fn folder() -> Option<PathBuf> {
    let set = std::env::var_os("CENOTE_SHARED").map(PathBuf::from);
    Some(set.unwrap_or_else(|| workspace().join("../shared"))).filter(|folder| folder.is_dir())
}
