//! `find`: files of a dataset, one line each.

use std::io::Write;

use cenote_control::ControlError;
use cenote_control::files::{File, Files};
use cenote_control::text::quoted;

use super::line::{FileJson, FileLine, Shape};
use crate::json::line;

/// How files are shown.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// Paths.
    Paths,
    /// Paths that each end in a NUL byte, unescaped.
    Nul,
    /// Type, mode, owner, size, time and path, in columns within each part.
    Long(Shape),
    /// One JSON object per line.
    Json,
}

/// Writes a part of the files found.
///
/// # Errors
/// The writer fails.
pub fn write(part: &Files, form: Form, out: &mut impl Write) -> Result<(), ControlError> {
    let files = part.files.iter().map(|file| (part.full_path(file), file));
    let text: Vec<u8> = match form {
        Form::Long(shape) => {
            let lines: Vec<FileLine> = files.map(|(path, file)| shape.line(&path, file)).collect();
            shape.columns(&lines).into_bytes()
        }
        Form::Paths => files.flat_map(|(path, _)| (quoted(&path) + "\n").into_bytes()).collect(),
        Form::Nul => files.flat_map(|(path, _)| [path, vec![0]].concat()).collect(),
        Form::Json => {
            // Serialising plain values to memory can't fail.
            let json = |(path, file): (Vec<u8>, &File)| line(&FileJson::new(&path, file)).unwrap_or_default();
            files.flat_map(|found| json(found).into_bytes()).collect()
        }
    };
    out.write_all(&text).map_err(ControlError::io("standard output"))
}
