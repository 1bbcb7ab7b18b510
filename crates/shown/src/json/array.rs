//! A JSON array written element by element, with only one element in memory.

use std::io::{self, Write};

use serde::Serialize;

use super::line;

/// An array with one element per line.
pub struct Array<W> {
    out: W,
    is_empty: bool,
}

impl<W: Write> Array<W> {
    /// An empty array; nothing is written yet.
    pub fn new(out: W) -> Array<W> {
        Array { out, is_empty: true }
    }

    /// Writes an element.
    ///
    /// # Errors
    /// The writer fails.
    pub fn push(&mut self, element: &impl Serialize) -> io::Result<()> {
        self.push_text(line(element)?.trim_end())
    }

    /// Writes an element that is already JSON text.
    ///
    /// # Errors
    /// The writer fails.
    pub fn push_text(&mut self, element: &str) -> io::Result<()> {
        let before = if std::mem::replace(&mut self.is_empty, false) { "[\n" } else { ",\n" };
        self.out.write_all(before.as_bytes())?;
        self.out.write_all(element.as_bytes())
    }

    /// Writes the end of the array.
    ///
    /// # Errors
    /// The writer fails.
    pub fn end(mut self) -> io::Result<()> {
        let end = if self.is_empty { "[]\n" } else { "\n]\n" };
        self.out.write_all(end.as_bytes())?;
        self.out.flush()
    }
}
