//! Walks a whole tree with many workers, looking at every entry: path, type, size.
//!
//! ```text
//! worker ── own stack of folders ──┬─> list 64 KiB of a folder ─> statx each entry ─> visitor
//!     ^                            └─< sub-folders, on top of the stack
//!     └── shared stack: what others gave away while somebody was idle
//! ```
//!
//! Idea: the piece of work is one buffer of a folder's list, not the folder. A folder's place in its list is kept by its descriptor, so the
//! rest of a large folder is a piece of work like any other: it can be put off or given away. Entries are looked
//! up relative to their open folder: no path is resolved from the root, however deep the tree.
//!
//! Bounds: at most [`OPEN_FOLDERS`] folders are open beside those being listed; folders found beyond that are opened by their path later. A worker keeps at most
//! about [`MOST_PENDING`] sub-folders of a folder, puts the rest of its list off and goes down first.
//!
//! Invariants: each entry is visited once, its folder before what is in it. Symbolic links are not followed. With
//! [`WalkOptions::one_file_system`], a folder on another device than the root is visited, not entered (as `find -xdev` does).

mod folder;
mod output;
mod queue;
mod scan;
mod worker;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

pub use folder::EntryKind;
pub use output::ListWriter;
pub use scan::{Cache, PoolScan, Scan, ScanTool};

use crate::control::Control;
use crate::{LabError, Result};
use folder::Folder;
use queue::{Pending, Queue};
use worker::Worker;

/// How many folders may be open beside those being listed.
pub const OPEN_FOLDERS: usize = 256;
/// How many sub-folders of one folder a worker keeps before it goes down.
pub const MOST_PENDING: usize = 1024;

/// How to walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkOptions {
    /// How many workers.
    pub threads: usize,
    /// Folders on other file systems are not entered.
    pub one_file_system: bool,
}

/// What is known of an entry.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Path of its folder from the root of the walk; empty for the root itself.
    pub folder: &'a [u8],
    /// Its name.
    pub name: &'a [u8],
    /// What it is.
    pub kind: EntryKind,
    /// What `statx` says of it.
    pub stat: &'a rustix::fs::Statx,
}

/// Looks at entries: one for each worker.
pub trait Visitor: Send {
    /// An entry; a folder before what is in it. A break ends the walk: it was enough.
    ///
    /// # Errors
    /// One ends the walk.
    fn entry(&mut self, entry: &Entry<'_>) -> Result<ControlFlow<()>>;

    /// The next piece of a folder's list begins.
    fn begin(&mut self) {}

    /// All is done.
    ///
    /// # Errors
    /// One fails the walk.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What a walk came upon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// Regular files.
    pub files: u64,
    /// Entries that are neither files nor folders: links, devices, sockets, pipes.
    pub others: u64,
    /// Folders, without the root.
    pub folders: u64,
    /// Sizes of regular files, added up.
    pub bytes: u64,
    /// Folders on other file systems that were not entered.
    pub borders: u64,
    /// Entries that vanished or that could not be read.
    pub errors: u64,
    /// What the first of these errors was.
    pub first_error: Option<String>,
}

impl Walked {
    fn add(&mut self, other: Walked) {
        self.files += other.files;
        self.others += other.others;
        self.folders += other.folders;
        self.bytes += other.bytes;
        self.borders += other.borders;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }
}

/// Walks all below `root`, with a visitor for each worker; gives what was met, and the visitors.
///
/// # Errors
/// The root can't be read, a visitor failed, or the work was stopped. What can't be read below the root is counted.
pub fn walk<V: Visitor>(
    root: &Path,
    options: WalkOptions,
    control: &Control,
    visitor: impl Fn() -> Result<V>,
) -> Result<(Walked, Vec<V>)> {
    let shown = root.display();
    let folder = Folder::root(root).map_err(LabError::io(format!("{shown}: can't be listed")))?;
    let threads = options.threads.max(1);
    let queue = Queue::new(threads, Pending::Rest(Arc::new(folder)));
    let visitors = (0..threads).map(|_| visitor()).collect::<Result<Vec<V>>>()?;
    let done: Vec<Result<(Walked, V)>> = std::thread::scope(|scope| {
        let start = |visitor| {
            let worker = Worker::new(&queue, options, control, visitor);
            scope.spawn(|| worker.run())
        };
        let running: Vec<_> = visitors.into_iter().map(start).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
            .collect()
    });
    let mut walked = Walked::default();
    let mut visitors = Vec::with_capacity(threads);
    for result in done {
        let (part, visitor) = result?;
        walked.add(part);
        visitors.push(visitor);
    }
    Ok((walked, visitors))
}

#[cfg(test)]
mod tests;
