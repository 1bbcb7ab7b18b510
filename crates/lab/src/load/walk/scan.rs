//! One full metadata scan by one tool, cold or warm.
//!
//! Each tool writes a list of all regular files with their sizes to a file outside the scanned tree, as in
//! report 000; the list is then counted. A cold scan starts with dirty data flushed and caches dropped; a
//! warm one after an unmeasured scan.

mod external;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Entry, EntryKind, ListWriter, Visitor, WalkOptions, walk};
use crate::load::control::Control;
use crate::load::machine::caches;
use crate::load::measurement::tally::nanoseconds;
use crate::load::measurement::{CpuTime, Figure, Outcome, Stream, Tally, Tool};
use crate::load::target::Scratch;
use crate::load::tree::Shape;
use crate::unit::Unit;
use crate::{LabError, Result};

/// A scanning tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanTool {
    /// Parallel walk of [`walk`].
    Walk {
        /// Threads.
        threads: u32,
    },
    /// `fd` with a `stat` of every file.
    Fd,
    /// `cenote scan` on the devices of the targets' pools.
    Pool(Vec<PoolScan>),
}

/// Scan of one target's dataset without its mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolScan {
    /// Mount point of the dataset.
    pub target: PathBuf,
    /// Program to run.
    pub program: PathBuf,
    /// Arguments: it must print type, size and path of each entry, separated by tabs, with a terminating NUL
    /// byte.
    pub arguments: Vec<String>,
}

/// State of the caches when a scan starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Empty, if dropping caches is permitted.
    Cold,
    /// As left by the previous scan.
    Warm,
}

/// One scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// Scanning tool.
    pub tool: ScanTool,
    /// State of the caches.
    pub cache: Cache,
    /// Tree to scan, created in the scratch folder unless it exists; None scans the target's existing files.
    pub tree: Option<Shape>,
}

enum Attempt {
    Scanned(Scanned),
    /// The tool does not work here; with the reason.
    NotHere(String),
}

struct Scanned {
    tool: Tool,
    files: u64,
    bytes: u64,
    folders: Option<u64>,
    elapsed_ns: u64,
    cpu: CpuTime,
    streams: Vec<Stream>,
    notes: Vec<String>,
}

impl Scan {
    /// Scans all of `target`, to which nothing is written, or the tree created in `scratch`. Lists go to
    /// `lists`, a folder outside the scanned tree, and are deleted again.
    ///
    /// # Errors
    /// The tree cannot be created or scanned, a program failed, or the work was stopped.
    pub fn run(
        &self,
        target: &Path,
        scratch: Option<&Path>,
        lists: &Path,
        control: &Control,
    ) -> Result<Outcome> {
        let root = match (&self.tree, scratch) {
            (None, _) => target.to_owned(),
            (Some(shape), Some(scratch)) => shape.make_once(&scratch.join("scanned"), control)?,
            (Some(_), None) => {
                return Err(LabError::Refused(format!(
                    "{}: a tree to scan needs a scratch folder",
                    target.display()
                )));
            }
        };
        let lists = Scratch::new(lists)?;
        let mut outcome = self.prepare_and_scan(&root, target, &lists.path().join("list"), control)?;
        if lies_in(lists.path(), &root) {
            outcome.notes.push(
                "the result folder is inside the scanned tree, so its own files were counted, too".into(),
            );
        }
        Ok(outcome)
    }

    fn prepare_and_scan(
        &self,
        root: &Path,
        target: &Path,
        list: &Path,
        control: &Control,
    ) -> Result<Outcome> {
        let mut notes = Vec::new();
        match self.cache {
            Cache::Cold => notes.extend(caches::drop_all().err().map(|error| {
                format!("caches could not be dropped ({error}; requires root): this scan was warm")
            })),
            Cache::Warm => drop(self.scan(root, target, list, control)?),
        }
        let scanned = match self.scan(root, target, list, control)? {
            Attempt::Scanned(scanned) => scanned,
            Attempt::NotHere(why) => return Ok(left_out(&self.tool, why)),
        };
        notes.extend(scanned.notes);
        let seconds = scanned.elapsed_ns as f64 / 1e9;
        let mut others = vec![
            Figure::lower("scan.time", scanned.elapsed_ns as f64, Unit::Nanoseconds),
            Figure::higher("files.rate", scanned.files as f64 / seconds, Unit::PerSecond),
            Figure::neutral("files", scanned.files as f64, Unit::Count),
            Figure::neutral("bytes", scanned.bytes as f64, Unit::Bytes),
        ];
        others.extend(scanned.folders.map(|n| Figure::neutral("folders", n as f64, Unit::Count)));
        Ok(Outcome { tool: scanned.tool, cpu: Some(scanned.cpu), streams: scanned.streams, others, notes })
    }

    fn scan(&self, root: &Path, target: &Path, list: &Path, control: &Control) -> Result<Attempt> {
        match &self.tool {
            ScanTool::Walk { threads } => scan_by_walk(root, *threads, list, control).map(Attempt::Scanned),
            ScanTool::Fd => external::fd(root, list, control),
            ScanTool::Pool(pools) => match pools.iter().find(|pool| pool.target == target) {
                Some(pool) => external::pool(pool, list, control).map(Attempt::Scanned),
                None => Ok(Attempt::NotHere("not on a pool with readable devices".into())),
            },
        }
    }
}

fn lies_in(path: &Path, folder: &Path) -> bool {
    let (path, folder) = (path.canonicalize(), folder.canonicalize());
    path.ok().zip(folder.ok()).is_some_and(|(path, folder)| path.starts_with(folder))
}

/// Outcome of a scan that cannot be done here.
fn left_out(tool: &ScanTool, why: String) -> Outcome {
    let name = match tool {
        ScanTool::Walk { .. } | ScanTool::Pool(_) => "cenote",
        ScanTool::Fd => "fd",
    };
    let tool = Tool { name: name.into(), version: String::new(), command: None };
    let notes = vec![format!("skipped: {why}")];
    Outcome { tool, cpu: None, streams: Vec::new(), others: Vec::new(), notes }
}

fn scan_by_walk(root: &Path, threads: u32, list: &Path, control: &Control) -> Result<Scanned> {
    let options = WalkOptions { threads: threads as usize, one_file_system: true };
    let began = Instant::now();
    let cpu = CpuTime::of_process();
    let writer = ListWriter::create(list, root)?;
    let lister = || Ok(Lister { writer: writer.clone(), entries: Tally::new(began), last: began });
    let (walked, listers) = walk(root, options, control, lister)?;
    let elapsed_ns = nanoseconds(Instant::now(), began);
    let cpu = CpuTime::of_process().since(cpu);
    let mut entries = Tally::new(began);
    listers.iter().for_each(|lister| entries.add(&lister.entries));
    let mut notes = Vec::new();
    if walked.borders > 0 {
        notes.push(format!(
            "{} other file systems are mounted below and were not entered: add them as targets of their own",
            walked.borders
        ));
    }
    if let Some(first) = &walked.first_error {
        notes.push(format!("{} entries could not be read; first error: {first}", walked.errors));
    }
    Ok(Scanned {
        tool: Tool::cenote(),
        files: walked.files,
        bytes: walked.bytes,
        folders: Some(walked.folders),
        elapsed_ns,
        cpu,
        streams: vec![entries.into_stream("entry", elapsed_ns)],
        notes,
    })
}

/// Writes the list, and records the latency of each entry: the time since the previous one in the same part
/// of a listing.
struct Lister {
    writer: ListWriter,
    entries: Tally,
    last: Instant,
}

impl Visitor for Lister {
    fn begin(&mut self) {
        self.last = Instant::now();
    }

    fn entry(&mut self, entry: &Entry<'_>) -> Result<ControlFlow<()>> {
        if entry.kind == EntryKind::File {
            self.writer.add(entry)?;
        }
        let now = Instant::now();
        self.entries.record(self.last, now, 0);
        self.last = now;
        Ok(ControlFlow::Continue(()))
    }

    fn finish(&mut self) -> Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
