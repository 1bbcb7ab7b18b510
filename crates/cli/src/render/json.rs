//! JSON text without invisible characters: those a terminal would not show become `\uNNNN`.

use cenote_format::unseen::visible_json;
use serde::Serialize;

/// A value on one line.
pub fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(visible_json(serde_json::to_string(value)?) + "\n")
}

/// A value on indented lines, for reading.
pub fn json_lines(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(visible_json(serde_json::to_string_pretty(value)?) + "\n")
}
