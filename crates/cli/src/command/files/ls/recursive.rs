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

use std::fs::File as HostFile;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use cenote_control::files::{File, Files, Sorter};

use super::Shape;
use crate::command::files::line::{FileJson, FileLine, in_columns};
use crate::outcome::CliError;
use crate::render::{json_line, quoted};
use crate::session::{JsonArray, stdout};

/// How many lines of one folder share their column widths.
const LINES_AT_ONCE: usize = 10_000;

/// The first byte of a record: a new folder, or a file of the current one.
const FOLDER: u8 = b'/';
const FILE: u8 = b'-';

/// A folder and the files below it received so far.
pub(super) struct Recursive {
    shape: Shape,
    sorter: Sorter,
}

impl Recursive {
    pub(super) fn new(shape: Shape) -> Recursive {
        Recursive { shape, sorter: Sorter::default() }
    }

    /// Adds files.
    pub(super) fn take(&mut self, part: &Files) -> Result<(), CliError> {
        let Recursive { shape, sorter } = self;
        for file in &part.files {
            let mut push = |key: &[u8], kind: u8, record: &[u8]| {
                sorter.push(key, &[&[kind], record].concat()).map_err(CliError::io("temporary file"))
            };
            let path = &file.path[..];
            if file.attr.is_some_and(|attr| attr.is_dir()) && !shape.json && !shape.print0 {
                push(&key(path, b""), FOLDER, quoted(&part.full_path(file)).as_bytes())?;
            }
            if path.is_empty() {
                continue;
            }
            let slash = path.iter().rposition(|&b| b == b'/');
            let (folder, name) = slash.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
            push(&key(folder, name), FILE, &shape.record(part, name, file))?;
        }
        Ok(())
    }

    /// Writes all of them, sorted.
    pub(super) fn end(self, json: Option<&mut JsonArray>) -> Result<(), CliError> {
        let mut lines = Lines { shape: self.shape, json, out: stdout(), lines: Vec::new(), is_first: true };
        let mut failed = None;
        // The sorter only knows errors of its own file; our error waits here while we stop the sorter.
        let sorted = self.sorter.finish(|record| {
            lines.take(record).map_err(|error| {
                failed = Some(error);
                std::io::Error::other("the output failed")
            })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        sorted.map_err(CliError::io("temporary file"))?;
        lines.lay_out()?;
        lines.out.flush().map_err(CliError::io("standard output"))
    }
}

impl Shape {
    fn record(&self, part: &Files, name: &[u8], file: &File) -> Vec<u8> {
        match (self.json, self.print0) {
            (true, _) => {
                let attr = file.attr.unwrap_or_default();
                let json = FileJson::new(&part.full_path(file), file.object, &attr, file.link.as_deref());
                // Serialising plain values can't fail.
                json_line(&json).unwrap_or_default().into_bytes()
            }
            (false, true) => [&part.full_path(file)[..], &[0]].concat(),
            (false, false) => self.line(name, file).to_record().into_bytes(),
        }
    }
}

fn key(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let folder = folder.iter().map(|&b| if b == b'/' { 0 } else { b });
    folder.chain([0, 0]).chain(name.iter().copied()).collect()
}

/// Writes sorted records.
struct Lines<'a> {
    json: Option<&'a mut JsonArray>,
    out: BufWriter<Arc<HostFile>>,
    shape: Shape,
    lines: Vec<FileLine>,
    is_first: bool,
}

impl Lines<'_> {
    fn take(&mut self, record: &[u8]) -> Result<(), CliError> {
        let Some((kind, record)) = record.split_first() else { return Ok(()) };
        let text = String::from_utf8_lossy(record);
        if *kind == FOLDER {
            self.lay_out()?;
            let gap = if std::mem::take(&mut self.is_first) { "" } else { "\n" };
            return self.write(format!("{gap}{text}:\n").as_bytes());
        }
        if let Some(json) = &mut self.json {
            return json.push_text(text.trim_end());
        }
        if self.shape.print0 {
            return self.write(record);
        }
        self.lines.push(FileLine::from_record(&text));
        if self.lines.len() < LINES_AT_ONCE { Ok(()) } else { self.lay_out() }
    }

    /// Writes the buffered lines.
    fn lay_out(&mut self) -> Result<(), CliError> {
        let lines = std::mem::take(&mut self.lines);
        self.write(in_columns(&lines, self.shape.inodes).as_bytes())
    }

    fn write(&mut self, text: &[u8]) -> Result<(), CliError> {
        self.out.write_all(text).map_err(CliError::io("standard output"))
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
