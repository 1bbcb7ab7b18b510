//! `ls -R`: a folder and everything below it, from a scan.
//!
//! Idea: a scan yields files in disk order. A sorter that spills to a temporary file brings them into the
//! order of `ls`: each folder's files by name, then its subfolders, recursively.
//!
//! ```text
//!   key   a/b \0\0 name     with / as \0: a folder, what is below it, then its next sibling
//! ```
//!
//! Memory: the scan's windows, the sorter's budget, and [`LINES_AT_ONCE`] lines, which are laid out together.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use cenote_inspect::InspectError;
use cenote_inspect::scan::sort::Sorter;
use cenote_inspect::scan::{RowBatch, ScanNeeds, ScanProblem, scan_below};

use super::Shape;
use crate::command::files::PoolFile;
use crate::command::files::line::{FileJson, FileLine, in_columns};
use crate::outcome::{CliError, Outcome};
use crate::render::{json_line, quoted};
use crate::session::{JsonArray, stdout};

/// How many lines of one folder share their column widths.
const LINES_AT_ONCE: usize = 10_000;

/// The first byte of a record: a new folder, or a file of the current one.
const FOLDER: u8 = b'/';
const FILE: u8 = b'-';

/// The keys and records of a batch of rows.
struct Found {
    records: Vec<(Vec<u8>, Vec<u8>)>,
    problems: Vec<ScanProblem>,
}

/// Lists a folder and everything below it.
pub async fn list(place: &PoolFile, shape: Shape, json: Option<&mut JsonArray>) -> Result<Outcome, CliError> {
    let mut sorter = Sorter::default();
    let mut outcome = Outcome::Done;
    let needs = ScanNeeds { targets: shape.long || shape.json, ..ScanNeeds::default() };
    let shown = place.clone();
    let render = move |batch: &RowBatch| render(batch, &shown, shape);
    scan_below(&place.scan_target(), place.object, needs, render, |found: Found| {
        for problem in found.problems {
            outcome = outcome.and(place.problem(&problem.path, problem.error));
        }
        let push = |(key, record): &(Vec<u8>, Vec<u8>)| sorter.push(key, record);
        found.records.iter().try_for_each(push).map_err(InspectError::io("temporary file"))
    })
    .await?;
    let mut lines = Lines { shape, json, out: stdout(), lines: Vec::new(), is_first: true };
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
    sorted.map_err(CliError::io("temporary file"))?;
    lines.lay_out()?;
    lines.out.flush().map_err(CliError::io("standard output"))?;
    Ok(outcome)
}

fn render(batch: &RowBatch, place: &PoolFile, shape: Shape) -> Found {
    let mut records = Vec::with_capacity(batch.rows.len());
    for row in &batch.rows {
        let path = batch.path(row);
        let is_start = path == b".";
        if !is_start && !shape.all && path.split(|&b| b == b'/').any(|name| name.starts_with(b".")) {
            continue;
        }
        if row.attr.is_dir() && !shape.json && !shape.print0 {
            let folder = if is_start { b"" } else { path };
            let title = if is_start { place.shown.clone() } else { place.below(path) };
            records.push((key(folder, b""), [&[FOLDER], quoted(&title).as_bytes()].concat()));
        }
        if is_start {
            continue;
        }
        let slash = path.iter().rposition(|&b| b == b'/');
        let (folder, name) = slash.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let target = row.extra.as_ref().and_then(|extra| extra.target.as_deref());
        let record = match (shape.json, shape.print0) {
            (true, _) => {
                let json = FileJson::new(&place.below(path), row.object, &row.attr, target);
                // Serialising plain values can't fail.
                json_line(&json).unwrap_or_default().into_bytes()
            }
            (false, true) => [&place.below(path)[..], &[0]].concat(),
            (false, false) => shape.line(name, row.object, &row.attr, target).to_record().into_bytes(),
        };
        records.push((key(folder, name), [&[FILE], &record[..]].concat()));
    }
    Found { records, problems: batch.problems.clone() }
}

fn key(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let folder = folder.iter().map(|&b| if b == b'/' { 0 } else { b });
    folder.chain([0, 0]).chain(name.iter().copied()).collect()
}

/// Writes sorted records.
struct Lines<'a> {
    json: Option<&'a mut JsonArray>,
    out: BufWriter<Arc<File>>,
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
