//! Pools that the daemon can't open yet, as `zpool status` and `zpool list` show them.
//!
//! OpenZFS lists a cache-file pool that does not open as UNAVAIL, with dashes for unknown values.

use cenote_control::zpool::shown::waits::Waits;
use serde_json::{Map, Value, json};

use super::head::Keys;
use crate::numbers::Numbers;
use crate::paragraph::paragraph;

/// The state shown.
pub const STATE: &str = "UNAVAIL";
const ACTION: &str = "The daemon tries to open it again, at least every 30 seconds. Attach the missing \
    devices, or forget the pool with 'zpool export'.";

/// The section of `zpool status`.
pub fn text(waiting: &Waits) -> String {
    let status =
        format!("The pool waits to be opened, for {} seconds and {} tries.", waiting.seconds, waiting.tries);
    let mut out = format!("  pool: {}\n state: {STATE}\n", waiting.name);
    out += &paragraph("status", &status);
    out += &paragraph("action", ACTION);
    out += &paragraph(" error", &waiting.why);
    out += "config:\n\n";
    for device in &waiting.devices {
        out += &format!("\t{}\n", device.display());
    }
    out
}

/// The JSON key and entry.
pub fn entry(waiting: &Waits, keys: Keys, numbers: Numbers) -> (String, Map<String, Value>) {
    let key = keys.key(&waiting.name, waiting.guid);
    let mut entry = Map::new();
    entry.insert("name".into(), json!(waiting.name));
    entry.insert("state".into(), json!(STATE));
    entry.insert("pool_guid".into(), numbers.value(&waiting.guid.to_string()));
    entry.insert("status".into(), json!("The pool waits to be opened."));
    entry.insert("error".into(), json!(waiting.why));
    entry.insert("action".into(), json!(ACTION));
    (key, entry)
}
