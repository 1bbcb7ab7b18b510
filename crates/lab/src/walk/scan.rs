//! One full metadata scan, by one tool, cold or warm.
//!
//! Each tool writes the list of all regular files with their sizes to a file outside of what is scanned, as in report 000; what
//! the list holds is what is counted. A cold scan begins when all that can be written has been and the caches were dropped; a warm one after another, unmeasured scan.

mod external;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Entry, EntryKind, ListWriter, Visitor, WalkOptions, walk};
use crate::caches;
use crate::control::Control;
use crate::measurement::tally::nanoseconds;
use crate::measurement::{CpuTime, Figure, Outcome, Stream, Tally, Tool};
use crate::target::Scratch;
use crate::tree::Shape;
use crate::unit::Unit;
use crate::{LabError, Result};

/// What scans.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanTool {
    /// The parallel walk of [`walk`], with so many threads.
    Walk {
        /// Threads.
        threads: u32,
    },
    /// `fd` with a `stat` of all files.
    Fd,
    /// `cenote scan`, on the devices of the pools that the targets lie on.
    Pool(Vec<PoolScan>),
}

/// How one target's data set is scanned without its mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolScan {
    /// The target: where the data set is mounted.
    pub target: PathBuf,
    /// The program.
    pub program: PathBuf,
    /// Its arguments: it must print type, size and path of each entry, separated by tabs, with a NUL byte behind each.
    pub arguments: Vec<String>,
}

/// What is in memory when a scan begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Nothing, where dropping caches is allowed.
    Cold,
    /// What a scan just before left there.
    Warm,
}

/// One scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// What scans.
    pub tool: ScanTool,
    /// What is in memory at the start.
    pub cache: Cache,
    /// The tree to scan, made in the scratch folder unless it is there; None: all that is in the target already.
    pub tree: Option<Shape>,
}

/// What a tool can say of a target.
enum Attempt {
    Scanned(Scanned),
    /// Not with this tool; why.
    NotHere(String),
}

/// What a scan found, and what it took.
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
    /// Scans all of `target`, to which nothing is written, or the tree made in `scratch`. Lists go to `lists`, a folder that is not in
    /// what is scanned, and are deleted again.
    ///
    /// # Errors
    /// The tree can't be made or scanned, a program failed, or the work was stopped.
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
            outcome.notes.push("the result lies in what is scanned: its own files were counted, too".into());
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
                format!("caches could not be dropped ({error}; it takes root): this scan was warm")
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
                None => Ok(Attempt::NotHere("not on a pool whose devices can be read".into())),
            },
        }
    }
}

fn lies_in(path: &Path, folder: &Path) -> bool {
    let (path, folder) = (path.canonicalize(), folder.canonicalize());
    path.ok().zip(folder.ok()).is_some_and(|(path, folder)| path.starts_with(folder))
}

/// The outcome of a scan that could not be done here.
fn left_out(tool: &ScanTool, why: String) -> Outcome {
    let name = match tool {
        ScanTool::Walk { .. } | ScanTool::Pool(_) => "cenote",
        ScanTool::Fd => "fd",
    };
    let tool = Tool { name: name.into(), version: String::new(), command: None };
    let notes = vec![format!("left out: {why}")];
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
            "{} other file systems are mounted below; they were not entered: name them as targets of their own",
            walked.borders
        ));
    }
    if let Some(first) = &walked.first_error {
        notes.push(format!("{} entries could not be read; the first: {first}", walked.errors));
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

/// Writes the list, and notes how long each entry took: from the one before it in the same piece of a folder's list.
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
