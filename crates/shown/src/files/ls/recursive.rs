//! `ls -R`: a folder and everything below it, from a scan.
//!
//! Idea: files arrive in disk order. A sorter that spills to a temporary file puts them into the order of
//! `ls`: each folder's files by name, then its subfolders, recursively.
//!
//! ```text
//!   key   a/b \0\0 name     with / as \0: a folder, its contents, then its next sibling
//! ```
//!
//! Memory: the sorter's budget, and [`LINES_AT_ONCE`] lines, which are laid out together.

use std::io::Write;

use cenote_control::ControlError;
use cenote_control::files::{File, Files, Sorter};
use cenote_control::text::quoted;

use crate::files::line::{FileJson, FileLine, Shape};
use crate::json::line;
use crate::output::Output;

/// How many lines of one folder share their column widths.
const LINES_AT_ONCE: usize = 10_000;

/// The first byte of a record: a new folder, or a file of the current one.
const FOLDER: u8 = b'/';
const FILE: u8 = b'-';

/// A folder and the files below it received so far.
pub struct Recursive {
    shape: Shape,
    form: Form,
    sorter: Sorter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Lines,
    /// Complete targets.
    Nul,
    Json,
}

impl Recursive {
    /// An empty folder.
    pub fn new(shape: Shape, print0: bool, is_json: bool) -> Recursive {
        let form = match (is_json, print0) {
            (true, _) => Form::Json,
            (false, true) => Form::Nul,
            (false, false) => Form::Lines,
        };
        Recursive { shape, form, sorter: Sorter::default() }
    }

    /// Adds files.
    pub fn take(&mut self, part: &Files) -> Result<(), ControlError> {
        let Recursive { shape, form, sorter } = self;
        for file in &part.files {
            let mut push = |key: &[u8], kind: u8, record: &[u8]| {
                sorter.push(key, &[&[kind], record].concat()).map_err(ControlError::io("temporary file"))
            };
            let path = &file.path[..];
            if file.attr.is_some_and(|attr| attr.is_dir()) && *form == Form::Lines {
                push(&key(path, b""), FOLDER, quoted(&part.full_path(file)).as_bytes())?;
            }
            if path.is_empty() {
                continue;
            }
            let slash = path.iter().rposition(|&b| b == b'/');
            let (folder, name) = slash.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
            push(&key(folder, name), FILE, &form.record(*shape, part, name, file))?;
        }
        Ok(())
    }

    /// Writes all, sorted.
    pub fn end<W: Write>(self, out: &mut Output<W>) -> Result<(), ControlError> {
        let Recursive { shape, form, sorter } = self;
        let mut lines = Lines { shape, form, out, lines: Vec::new(), is_first: true };
        let mut failed = None;
        // The sorter only knows errors of its own file; our error waits here while we stop the sorter.
        let sorted = sorter.finish(|record| {
            lines.take(record).map_err(|error| {
                failed = Some(error);
                std::io::Error::other("the output failed")
            })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        sorted.map_err(ControlError::io("temporary file"))?;
        lines.lay_out()?;
        lines.out.flush()
    }
}

impl Form {
    fn record(self, shape: Shape, part: &Files, name: &[u8], file: &File) -> Vec<u8> {
        match self {
            // Serialising plain values can't fail.
            Form::Json => line(&FileJson::new(&part.full_path(file), file)).unwrap_or_default().into_bytes(),
            Form::Nul => [&part.full_path(file)[..], &[0]].concat(),
            Form::Lines => shape.line(name, file).to_record().into_bytes(),
        }
    }
}

fn key(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let folder = folder.iter().map(|&b| if b == b'/' { 0 } else { b });
    folder.chain([0, 0]).chain(name.iter().copied()).collect()
}

struct Lines<'a, W> {
    out: &'a mut Output<W>,
    shape: Shape,
    form: Form,
    lines: Vec<FileLine>,
    is_first: bool,
}

impl<W: Write> Lines<'_, W> {
    fn take(&mut self, record: &[u8]) -> Result<(), ControlError> {
        let Some((kind, record)) = record.split_first() else { return Ok(()) };
        let text = String::from_utf8_lossy(record);
        if *kind == FOLDER {
            self.lay_out()?;
            let gap = if std::mem::take(&mut self.is_first) { "" } else { "\n" };
            return self.out.bytes(format!("{gap}{text}:\n").as_bytes());
        }
        if let Output::Json(array) = self.out {
            return array.push_text(text.trim_end()).map_err(ControlError::io("standard output"));
        }
        if self.form == Form::Nul {
            return self.out.bytes(record);
        }
        self.lines.push(FileLine::from_record(&text));
        if self.lines.len() < LINES_AT_ONCE { Ok(()) } else { self.lay_out() }
    }

    /// Writes the buffered lines.
    fn lay_out(&mut self) -> Result<(), ControlError> {
        let lines = std::mem::take(&mut self.lines);
        self.out.bytes(self.shape.columns(&lines).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_what_is_below_and_before_their_siblings() {
        let sorted = [
            key(b"", b""),
            key(b"", b"a"),
            key(b"", b"z"),
            key(b"a", b""),
            key(b"a", b"x"),
            key(b"a/b", b"x"),
            key(b"a-b", b"x"),
            key(b"z", b""),
        ];
        assert!(sorted.is_sorted(), "{sorted:?}");
    }
}
