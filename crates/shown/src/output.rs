//! Standard output of an answer of any length: text, or an array in JSON, written as parts arrive.

use std::io::Write;

use cenote_control::ControlError;
use cenote_control::text::visible;
use serde::Serialize;

use crate::json::Array;

/// The output. Its errors name standard output.
pub enum Output<W> {
    /// Text.
    Text(W),
    /// An array, one element per line.
    Json(Array<W>),
}

impl<W: Write> Output<W> {
    /// The output to `out`; nothing is written yet.
    pub fn new(out: W, is_json: bool) -> Output<W> {
        if is_json { Output::Json(Array::new(out)) } else { Output::Text(out) }
    }

    /// Writes an element: in an array as JSON, otherwise as text whose control characters are escaped. Only
    /// the written form is made.
    ///
    /// # Errors
    /// The writer fails.
    pub fn element<V: Serialize>(
        &mut self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> V,
    ) -> Result<(), ControlError> {
        let written = match self {
            Output::Text(out) => out.write_all(visible(&text()).as_bytes()).and_then(|()| out.flush()),
            Output::Json(array) => array.push(&json()),
        };
        written.map_err(ControlError::io("standard output"))
    }

    /// Writes bytes of a text, which are escaped already.
    ///
    /// # Errors
    /// The writer fails.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        match self {
            Output::Text(out) => out.write_all(bytes).map_err(ControlError::io("standard output")),
            Output::Json(_) => Ok(()),
        }
    }

    /// Lets a text appear.
    ///
    /// # Errors
    /// The writer fails.
    pub fn flush(&mut self) -> Result<(), ControlError> {
        match self {
            Output::Text(out) => out.flush().map_err(ControlError::io("standard output")),
            Output::Json(_) => Ok(()),
        }
    }

    /// Ends the array.
    ///
    /// # Errors
    /// The writer fails.
    pub fn end(self) -> Result<(), ControlError> {
        match self {
            Output::Text(mut out) => out.flush(),
            Output::Json(array) => array.end(),
        }
        .map_err(ControlError::io("standard output"))
    }
}
