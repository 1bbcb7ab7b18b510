//! `zfs mount`: mounted file systems.

use cenote_control::zfs::mounts::mount::Mounted;
use serde_json::{Value, json};

use crate::json::document;

/// As text.
pub fn text(mounted: &[Mounted]) -> String {
    let line = |one: &Mounted| format!("{:<30}  {}\n", one.filesystem, one.mountpoint.display());
    mounted.iter().map(line).collect()
}

/// As JSON.
pub fn json(mounted: &[Mounted]) -> Value {
    let entry = |one: &Mounted| {
        let (name, dir) = (&one.filesystem, one.mountpoint.display().to_string());
        (name.clone(), json!({"filesystem": name, "mountpoint": dir}))
    };
    document("zfs mount", "datasets", mounted.iter().map(entry).collect())
}
