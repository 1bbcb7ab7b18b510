//! Identity of datasets in JSON.

use cenote_control::zfs::Shown;
use cenote_control::zfs::select::Kind;
use serde_json::{Map, Value, json};

use crate::numbers::Numbers;

/// The JSON fields of every dataset other than its properties.
pub fn head(shown: &Shown, numbers: Numbers) -> Map<String, Value> {
    let kind = match shown.kind {
        Kind::Filesystem => "FILESYSTEM",
        Kind::Volume => "VOLUME",
        Kind::Snapshot => "SNAPSHOT",
        Kind::Bookmark => "BOOKMARK",
    };
    let mut head = Map::new();
    head.insert("name".into(), json!(shown.name));
    head.insert("type".into(), json!(kind));
    head.insert("pool".into(), json!(shown.pool()));
    head.insert("createtxg".into(), numbers.whole(shown.createtxg));
    if let Some((dataset, snapshot)) = shown.name.split_once('@') {
        head.insert("dataset".into(), json!(dataset));
        head.insert("snapshot_name".into(), json!(snapshot));
    }
    head
}
