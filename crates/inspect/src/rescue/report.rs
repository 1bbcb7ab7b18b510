//! The report: one row for everything that is not at the destination as it was on the pool.
//!
//! Columns of the tab-separated form, which lies at the destination as `rescue-report.tsv`:
//! `fate dataset path what ranges elsewhere why`. Bytes of paths outside printable ASCII, and backslash, are `\xNN`; ranges are
//! `offset+length`, comma-separated. As JSON: an object a line, in `rescue-report.jsonl`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use cenote_fs::manifest::escape_path;
use serde::Serialize;

use super::*;

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// No tree that was tried gave it.
    Lost,
    /// It came from the tree of this group, older than the newest.
    FromTxg(Txg),
    /// Encrypted, and no key was given.
    Locked,
    /// Copied, without this.
    NotKept,
}

impl std::fmt::Display for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fate::Lost => f.write_str("lost"),
            Fate::FromTxg(txg) => write!(f, "from txg {txg}"),
            Fate::Locked => f.write_str("locked"),
            Fate::NotKept => f.write_str("not kept"),
        }
    }
}

/// A row of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    fate: String,
    dataset: String,
    /// Empty if it is about the dataset as a whole.
    path: String,
    what: &'static str,
    /// Offset and length.
    ranges: Vec<(u64, u64)>,
    /// A snapshot that has the file whole.
    elsewhere: Option<String>,
    why: String,
}

impl Row {
    pub(super) fn of_dataset(planned: &Planned, fate: Fate, why: String) -> Row {
        Row {
            fate: fate.to_string(),
            dataset: planned.name.clone(),
            path: String::new(),
            what: "dataset",
            ranges: Vec::new(),
            elsewhere: None,
            why,
        }
    }

    pub(super) fn of_loss(dataset: &str, loss: &Loss, fate: Fate, elsewhere: Option<String>) -> Row {
        let mut path = String::new();
        escape_path(&loss.path, &mut path);
        let (what, ranges) = match &loss.kind {
            LossKind::File => ("file or folder", Vec::new()),
            LossKind::Entries => ("entries of the folder", Vec::new()),
            LossKind::Content(ranges) => {
                ("content", ranges.iter().map(|r| (r.start, r.end - r.start)).collect())
            }
            kind => (kind.words(), Vec::new()),
        };
        let why = loss.reason.to_string();
        Row { fate: fate.to_string(), dataset: dataset.into(), path, what, ranges, elsewhere, why }
    }

    fn to_tsv(&self) -> String {
        let ranges: Vec<String> = self.ranges.iter().map(|(at, len)| format!("{at}+{len}")).collect();
        let ranges = if ranges.is_empty() { "-".into() } else { ranges.join(",") };
        let elsewhere = self.elsewhere.as_deref().unwrap_or("-");
        let why = self.why.replace(['\t', '\n'], " ");
        let path = if self.path.is_empty() { "-" } else { &self.path };
        let (fate, dataset, what) = (&self.fate, &self.dataset, self.what);
        format!("{fate}\t{dataset}\t{path}\t{what}\t{ranges}\t{elsewhere}\t{why}\n")
    }
}

/// A report being written; complete up to the last row at any time an interruption comes.
pub struct Report {
    path: PathBuf,
    out: BufWriter<File>,
    json: bool,
}

impl Report {
    /// Makes the file in the folder `destination`. The report of an earlier rescue to the same place keeps its rows under
    /// another name.
    ///
    /// # Errors
    /// It can't be made.
    pub fn create(destination: &Path, json: bool) -> Result<Report> {
        let stem = "rescue-report";
        let extension = if json { "jsonl" } else { "tsv" };
        let path = destination.join(format!("{stem}.{extension}"));
        let told = |error| InspectError::io(path.display().to_string())(error);
        if path.exists() {
            let earlier =
                (1..).map(|n| destination.join(format!("{stem}.{n}.{extension}"))).find(|p| !p.exists());
            if let Some(earlier) = earlier {
                std::fs::rename(&path, earlier).map_err(told)?;
            }
        }
        let mut out = BufWriter::new(File::create_new(&path).map_err(told)?);
        if !json {
            out.write_all(b"fate\tdataset\tpath\twhat\tranges\telsewhere\twhy\n").map_err(told)?;
        }
        Ok(Report { path, out, json })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a row.
    ///
    /// # Errors
    /// It can't be written.
    pub fn add(&mut self, row: &Row) -> Result<()> {
        let line = match self.json {
            true => serde_json::to_string(row).map(|line| line + "\n").map_err(std::io::Error::from),
            false => Ok(row.to_tsv()),
        };
        let written = line.and_then(|line| self.out.write_all(line.as_bytes()));
        written.map_err(InspectError::io(self.path.display().to_string()))
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        self.out.flush().map_err(InspectError::io(self.path.display().to_string()))
    }
}
