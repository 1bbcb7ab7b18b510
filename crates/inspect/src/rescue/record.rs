//! The record of a rescue over all its runs: the rows of the report, in memory and at the destination.
//!
//! Idea: a row is in the report before its file gets its name, so no file with zeros in place of data lacks
//! its row, however a run ends. A row is removed only when the file was read completely.
//!
//! ```text
//!   open     rows of earlier runs, in either format ---> rewritten in the requested format
//!   a run    rows are appended; the last one about a file and kind of loss counts
//!   finish   rewritten without rows that were replaced or made good
//! ```
//!
//! Memory: all rows.
//!
//! Locking: one mutex guards rows and file, so both agree between calls. It is held while a row is written,
//! never across an await or with another lock under it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cenote_format::units::Txg;

use super::report::{Fate, Form, Row, escaped};
use crate::copy::Loss;
use crate::error::{InspectError, Result};

/// Dataset, path, kind of loss.
type Key = (String, String, String);

/// The report at a destination. Clones share it.
#[derive(Clone)]
pub struct Report(Arc<Mutex<Open>>);

struct Open {
    destination: PathBuf,
    form: Form,
    out: File,
    rows: BTreeMap<Key, Row>,
    is_resumed: bool,
    /// Rows include both checksums of a block that failed verification.
    checksums: bool,
}

/// Counts of everything missing at the destination or different from the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missing {
    /// Datasets of which nothing could be read.
    pub datasets_lost: u64,
    /// Datasets read from an older txg: later changes are lost.
    pub datasets_older: u64,
    /// Datasets whose keys were not given.
    pub datasets_locked: u64,
    /// Datasets with lost tables: of names or of attributes.
    pub datasets_inferred: u64,
    /// Files and folders lost entirely or in part.
    pub lost: u64,
    /// Files and folders read from an older txg.
    pub recovered: u64,
    /// Names that Linux can't store, replaced by others.
    pub renamed: u64,
    /// Device nodes, fifos and sockets that could not be created.
    pub nodes: u64,
    /// Metadata (owners, times, ...) that the destination could not store.
    pub undressed: u64,
}

impl Report {
    /// Opens the report in the folder `destination`, including the rows of earlier rescues to it. With
    /// `checksums`, new rows include both checksums of a block that failed verification.
    ///
    /// # Errors
    /// An earlier report can't be parsed, or this one can't be written.
    pub fn open(destination: &Path, json: bool, checksums: bool) -> Result<Report> {
        let mut rows = BTreeMap::new();
        let mut is_resumed = false;
        for form in Form::ALL {
            let path = destination.join(form.file_name());
            match std::fs::read(&path) {
                Ok(bytes) => {
                    is_resumed = true;
                    rows.extend(decode(&bytes, form, &path)?.into_iter().map(|row| (key(&row), row)));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(InspectError::io(path.display().to_string())(error)),
            }
        }
        let form = if json { Form::Json } else { Form::Tsv };
        let destination = destination.to_owned();
        let told = InspectError::io(destination.join(form.file_name()).display().to_string());
        let out = write(&destination, form, &rows).map_err(told)?;
        Ok(Report(Arc::new(Mutex::new(Open { destination, form, out, rows, is_resumed, checksums }))))
    }

    /// Whether an earlier rescue left its report in a folder.
    pub fn is_in(destination: &Path) -> bool {
        Form::ALL.iter().any(|form| destination.join(form.file_name()).exists())
    }

    /// The report's path.
    pub fn path(&self) -> PathBuf {
        let open = self.lock();
        open.destination.join(open.form.file_name())
    }

    /// Whether an earlier rescue wrote to the same place.
    pub fn is_resumed(&self) -> bool {
        self.lock().is_resumed
    }

    pub(super) fn row(&self, dataset: &str, loss: &Loss, fate: Fate) -> Row {
        let row = Row::of_loss(dataset, loss, fate);
        let checksums = loss.reason.checksums().filter(|_| self.lock().checksums);
        checksums.into_iter().fold(row, |row, checksums| row.because(&checksums))
    }

    /// Adds a row, replacing one about the same subject.
    pub(super) fn put(&self, row: Row) -> std::io::Result<()> {
        let mut open = self.lock();
        let line = row.to_line(open.form)?;
        open.rows.insert(key(&row), row);
        open.out.write_all(line.as_bytes())
    }

    /// The same, for callers that can't continue without it.
    pub(super) fn add(&self, row: Row) -> Result<()> {
        self.put(row).map_err(InspectError::io(self.path().display().to_string()))
    }

    /// Whether an earlier run copied a dataset from a newer tree than this one.
    pub(super) fn has_newer(&self, dataset: &str, txg: Txg) -> bool {
        let open = self.lock();
        let mut fates = open.about(dataset, Some("")).filter(|(_, row)| row.is_of_dataset());
        fates.any(|(_, row)| matches!(row.fate(), Some(Fate::FromTxg(then)) if then > txg))
    }

    /// A path (empty for the dataset) is complete: removes the rows that say otherwise. The file keeps them
    /// until the end of the run.
    pub(super) fn made_good(&self, dataset: &str, path: &str) {
        let mut open = self.lock();
        let good = open.about(dataset, Some(path)).filter(|(_, row)| row.ends_when_whole());
        let keys: Vec<Key> = good.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| _ = open.rows.remove(key));
    }

    /// The number of bytes that a file lacks; `None` if no loss of content is known.
    pub(super) fn lacking(&self, dataset: &str, path: &str) -> Option<u64> {
        self.lock().about(dataset, Some(path)).find_map(|(_, row)| row.content_bytes())
    }

    pub(super) fn of_dataset(&self, dataset: &str) -> Vec<Row> {
        self.lock().about(dataset, None).map(|(_, row)| row.clone()).collect()
    }

    /// Rewrites the report without rows made good, and counts the rest.
    pub(super) fn finish(&self) -> Result<Missing> {
        let mut open = self.lock();
        let told = InspectError::io(open.destination.join(open.form.file_name()).display().to_string());
        open.out = write(&open.destination, open.form, &open.rows).map_err(told)?;
        Ok(count(open.rows.values()))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// The rows about a path, or about a whole dataset.
    fn about<'a>(&'a self, dataset: &str, path: Option<&'a str>) -> impl Iterator<Item = (&'a Key, &'a Row)> {
        let dataset = escaped(dataset.as_bytes());
        let from = (dataset.clone(), path.unwrap_or_default().to_owned(), String::new());
        let is_about = move |(d, p, _): &Key| *d == dataset && path.is_none_or(|path| p == path);
        self.rows.range(from..).take_while(move |(key, _)| is_about(key))
    }
}

fn key(row: &Row) -> Key {
    (row.dataset.clone(), row.path.clone(), row.what.clone())
}

/// Parses an earlier report. An unterminated last line was being written when the run was killed; its file
/// has no name yet.
fn decode(bytes: &[u8], form: Form, path: &Path) -> Result<Vec<Row>> {
    let text = String::from_utf8_lossy(bytes);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let header = form.header();
    let lines = whole.lines().enumerate().filter(|(_, line)| !line.is_empty() && *line != header.trim_end());
    let row = |(index, line): (usize, &str)| {
        Row::of_line(line, form).ok_or_else(|| {
            let (path, line) = (path.display(), index + 1);
            InspectError::Request(format!(
                "{path}: line {line} is not a row of a rescue report; rescue to a new folder, or repair the \
                 line"
            ))
        })
    };
    lines.map(row).collect()
}

/// Writes all rows to a new file that then replaces the report, even one in the other format.
fn write(destination: &Path, form: Form, rows: &BTreeMap<Key, Row>) -> std::io::Result<File> {
    let path = destination.join(form.file_name());
    let new = destination.join(format!(".{}.new", form.file_name()));
    let mut out = BufWriter::new(File::create(&new)?);
    out.write_all(form.header().as_bytes())?;
    for row in rows.values() {
        out.write_all(row.to_line(form)?.as_bytes())?;
    }
    let out = out.into_inner()?;
    out.sync_all()?;
    std::fs::rename(&new, &path)?;
    for other in Form::ALL.into_iter().filter(|other| *other != form) {
        match std::fs::remove_file(destination.join(other.file_name())) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(out)
}

fn count<'a>(rows: impl Iterator<Item = &'a Row>) -> Missing {
    let mut missing = Missing::default();
    // A file can be lost in two ways; the rows of a path are adjacent.
    let mut last_lost = None;
    for row in rows {
        let Some(fate) = row.fate() else { continue };
        let path = (&row.dataset, &row.path);
        let counter = match fate {
            Fate::Lost if row.is_of_dataset() => &mut missing.datasets_lost,
            Fate::Lost if last_lost.replace(path) == Some(path) => continue,
            Fate::Lost => &mut missing.lost,
            Fate::FromTxg(_) if row.is_of_dataset() => &mut missing.datasets_older,
            Fate::FromTxg(_) => &mut missing.recovered,
            Fate::Locked => &mut missing.datasets_locked,
            Fate::Inferred => &mut missing.datasets_inferred,
            Fate::Renamed => &mut missing.renamed,
            Fate::NotKept if row.is_of_node() => &mut missing.nodes,
            Fate::NotKept => &mut missing.undressed,
        };
        *counter += 1;
    }
    missing
}
