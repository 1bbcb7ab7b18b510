//! `zpool version`, `zfs version`: name and version of this program.

use cenote_control::running::version::Version;
use serde_json::{Map, Value, json};

use crate::json::document;

/// As text.
pub fn text(version: &Version) -> String {
    format!("cenote {}\n", version.cenote)
}

/// As JSON of the called command. Cenote has no kernel module.
pub fn json(version: &Version, command: &str) -> Value {
    let versions = [("userland", format!("cenote {}", version.cenote)), ("kernel", "-".into())];
    let versions = versions.map(|(name, version)| (name.to_owned(), json!(version)));
    document(command, "zfs_version", Map::from_iter(versions))
}
