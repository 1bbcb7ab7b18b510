//! `stream`: files in a send stream, and the verdict on one.

use std::io::Write;

use cenote_control::ControlError;
use cenote_control::files::File;
use cenote_control::stream::ls::Listed;
use cenote_control::stream::verify::Verified;
use cenote_control::text::{counted, nice_bytes};

use crate::files::Shape;
use crate::files::line::{FileJson, FileLine};
use crate::output::Output;

/// Writes files in one folder; `with_paths`: under their paths, not only their names.
///
/// # Errors
/// The writer fails.
pub fn list<W: Write>(
    Listed { files }: &Listed,
    shape: Shape,
    with_paths: bool,
    out: &mut Output<W>,
) -> Result<(), ControlError> {
    if let Output::Json(array) = out {
        let pushed = files.iter().try_for_each(|file| array.push(&FileJson::new(&file.path, file)));
        return pushed.map_err(ControlError::io("standard output"));
    }
    let line = |file: &File| {
        let name = match file.path.iter().rposition(|byte| *byte == b'/') {
            Some(at) if !with_paths => file.path.get(at + 1..).unwrap_or_default(),
            _ => &file.path,
        };
        shape.line(name, file)
    };
    let lines: Vec<FileLine> = files.iter().map(line).collect();
    out.bytes(shape.columns(&lines).as_bytes())?;
    out.flush()
}

/// The verdict on a stream, after its findings.
pub fn verdict(verified: &Verified) -> String {
    format!(
        "{} in {}, {}: {} wrong, {} odd\n",
        nice_bytes(verified.bytes),
        counted(verified.streams, "stream"),
        counted(verified.records, "record"),
        verified.wrong,
        verified.odd
    )
}
