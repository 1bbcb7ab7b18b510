//! A JSON array written to standard output element by element, with only one element in memory.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use serde::Serialize;

use super::stdout;
use crate::outcome::CliError;
use crate::render::json_line;

/// An array with one element per line.
pub struct JsonArray {
    out: BufWriter<Arc<File>>,
    is_empty: bool,
}

impl JsonArray {
    /// An empty array; nothing is written yet.
    pub fn new() -> JsonArray {
        JsonArray { out: stdout(), is_empty: true }
    }

    /// Writes an element.
    pub fn push(&mut self, element: &impl Serialize) -> Result<(), CliError> {
        let text = json_line(element).map_err(|error| CliError::io("JSON")(io::Error::other(error)))?;
        self.push_text(text.trim_end())
    }

    /// Writes an element that is already JSON text.
    pub fn push_text(&mut self, element: &str) -> Result<(), CliError> {
        let before = if std::mem::replace(&mut self.is_empty, false) { "[\n" } else { ",\n" };
        let written =
            self.out.write_all(before.as_bytes()).and_then(|()| self.out.write_all(element.as_bytes()));
        written.map_err(CliError::io("standard output"))
    }

    /// Writes the end of the array.
    pub fn end(mut self) -> Result<(), CliError> {
        let end = if self.is_empty { "[]\n" } else { "\n]\n" };
        let written = self.out.write_all(end.as_bytes()).and_then(|()| self.out.flush());
        written.map_err(CliError::io("standard output"))
    }
}
