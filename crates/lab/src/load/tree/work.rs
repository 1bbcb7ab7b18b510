//! A tree workload: steps on one tree, some measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::copy::copy;
use super::steps::{Done, How};
use super::{DiskReads, Shape, Tree};
use crate::load::control::Control;
use crate::load::measurement::tally::nanoseconds;
use crate::load::measurement::{CpuTime, Figure, Outcome, Stream, Tool};
use crate::load::target::Scratch;
use crate::unit::Unit;
use crate::{LabError, Result};

/// An operation on a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Create the leaves.
    Create,
    /// Stat each leaf.
    Stat,
    /// List each folder.
    List,
    /// Read each file.
    Read,
    /// Delete leaves and folders.
    Delete,
    /// Copy the tree as rsync does.
    Copy,
}

/// Order of the leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// In order of creation.
    #[default]
    Sequential,
    /// In random order, each once.
    Random,
}

/// One operation on a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Operation.
    pub verb: Verb,
    /// Order of the leaves.
    pub order: Order,
    /// Whether it is measured; if not, it only prepares for others.
    pub measured: bool,
    /// Time limit in seconds; None means until complete.
    pub seconds: Option<u64>,
}

/// Steps on one tree, which is created in its own folder and deleted at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeWork {
    /// Shape of the tree.
    pub shape: Shape,
    /// Number of workers.
    pub workers: u32,
    /// Steps in order; the first creates the tree.
    pub steps: Vec<Step>,
}

#[derive(Default)]
struct Sum {
    streams: Vec<Stream>,
    inodes: u64,
    making_ns: u64,
    settling_ns: u64,
    reads: Option<DiskReads>,
    cpu: CpuTime,
    notes: Vec<String>,
}

impl TreeWork {
    /// Runs in `place`, a folder.
    ///
    /// # Errors
    /// An entry cannot be created, has vanished or does not fit, or the work was stopped.
    pub fn run(&self, place: &Path, control: &Control) -> Result<Outcome> {
        let scratch = Scratch::new(place)?;
        let mut tree = Tree::new(self.shape, scratch.path().join("tree"));
        let mut sum = Sum::default();
        for step in &self.steps {
            let (reads, cpu) = (DiskReads::now(place), CpuTime::of_process());
            let done = step.run(&mut tree, scratch.path(), self.workers, control)?;
            let read = DiskReads::now(place).since(reads);
            let cpu = CpuTime::of_process().since(cpu);
            if done.full {
                sum.notes
                    .push(format!("{}: ended early because half of the free space was used", step.name()));
            }
            let began = Instant::now();
            settle(scratch.path())?;
            if step.measured {
                sum.settling_ns += nanoseconds(Instant::now(), began);
                sum.reads = Some(sum.reads.map_or(read, |sum| sum.plus(read)));
                sum.cpu.add(cpu);
                sum.add(done);
            }
        }
        Ok(sum.outcome())
    }
}

impl Step {
    /// Measured, without a time limit.
    pub fn measured(verb: Verb, order: Order) -> Step {
        Step { verb, order, measured: true, seconds: None }
    }

    fn name(&self) -> &'static str {
        match self.verb {
            Verb::Create => "create",
            Verb::Stat => "stat",
            Verb::List => "list",
            Verb::Read => "read",
            Verb::Delete => "delete",
            Verb::Copy => "copy",
        }
    }

    fn run(&self, tree: &mut Tree, scratch: &Path, workers: u32, control: &Control) -> Result<Done> {
        let (what, how_many) = (self.name(), if self.measured { "" } else { " (preparing)" });
        control.doing(format!("{what}{how_many}"));
        let until = self.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let how = How { workers, order: self.order, until, control };
        match self.verb {
            Verb::Create => tree.create(how),
            Verb::Stat => tree.stat(how),
            Verb::List => tree.list(how),
            Verb::Read => tree.read(how),
            Verb::Delete => tree.delete(how),
            Verb::Copy => copy(&tree.root, &scratch.join("copy"), how),
        }
    }
}

impl Sum {
    fn add(&mut self, done: Done) {
        self.inodes += done.inodes;
        self.making_ns += if done.inodes > 0 { done.elapsed_ns } else { 0 };
        let streams = done.tallies.into_iter().map(|(what, tally)| tally.into_stream(what, done.elapsed_ns));
        self.streams.extend(streams);
    }

    fn outcome(self) -> Outcome {
        let mut others = Vec::new();
        if self.inodes > 0 {
            let rate = self.inodes as f64 / (self.making_ns.max(1) as f64 / 1e9);
            others.push(Figure::higher("inodes.rate", rate, Unit::PerSecond));
            others.push(Figure::neutral("inodes", self.inodes as f64, Unit::Count));
        }
        others.push(Figure::lower("settle.time", self.settling_ns as f64, Unit::Nanoseconds));
        others.extend(self.reads.map(DiskReads::figures).unwrap_or_default());
        Outcome {
            tool: Tool::cenote(),
            cpu: Some(self.cpu),
            streams: self.streams,
            others,
            notes: self.notes,
        }
    }
}

/// Waits until all changes to the file system are on its disks.
fn settle(place: &Path) -> Result<()> {
    let failed = || LabError::io(format!("cannot sync {}", place.display()));
    let folder = std::fs::File::open(place).map_err(failed())?;
    rustix::fs::syncfs(&folder).map_err(std::io::Error::from).map_err(failed())
}

impl Shape {
    /// Creates the tree at `root` unless it exists; returns `root`.
    ///
    /// # Errors
    /// An entry cannot be created, or the work was stopped; the partial tree is then deleted.
    pub fn make_once(&self, root: &Path, control: &Control) -> Result<PathBuf> {
        if root.exists() {
            return Ok(root.to_owned());
        }
        control.doing("creating the tree to scan");
        let making = root.with_extension("making");
        let how = How { workers: 4, order: Order::Sequential, until: None, control };
        let made = Tree::new(*self, making.clone()).create(how).and_then(|_| settle(&making));
        if let Err(error) = made {
            // Any remainder goes with the scratch folder.
            let _ = std::fs::remove_dir_all(&making);
            return Err(error);
        }
        std::fs::rename(&making, root).map_err(LabError::io(root.display().to_string()))?;
        Ok(root.to_owned())
    }
}
