//! `zfs diff`: files that differ, one line each.

use std::io::Write;

use cenote_control::ControlError;
use cenote_control::text::json_name;
use cenote_control::zfs::points::diff::{Change, DiffLine, DiffStyle};
use cenote_format::unseen::visible_json;
use serde_json::{Value, json};

/// Writes lines in this style; none: as JSON.
///
/// # Errors
/// The writer fails.
pub fn write(lines: &[DiffLine], style: Option<DiffStyle>, out: &mut impl Write) -> Result<(), ControlError> {
    let line = |line: &DiffLine| {
        let mut text = match style {
            None => visible_json(as_json(line).to_string()).into_bytes(),
            Some(style) => line.format(b"", style),
        };
        text.push(b'\n');
        text
    };
    let text: Vec<u8> = lines.iter().flat_map(line).collect();
    out.write_all(&text).and_then(|()| out.flush()).map_err(ControlError::io("standard output"))
}

/// One JSON object per line; types are the letters of `scan`.
fn as_json(line: &DiffLine) -> Value {
    let (change, path, to, links) = match &line.change {
        Change::Added(path) => ("added", path, None, None),
        Change::Removed(path) => ("removed", path, None, None),
        Change::Modified(path) => ("modified", path, None, None),
        Change::Links(path, more) => ("modified", path, None, Some(*more)),
        Change::Renamed(path, to) => ("renamed", path, Some(json_name(to)), None),
    };
    json!({
        "change": change,
        "type": line.kind.letter().to_string(),
        "path": json_name(path),
        "to": to,
        "links": links,
        "ctime": line.ctime.seconds,
        "ctime_ns": line.ctime.nanoseconds,
    })
}
