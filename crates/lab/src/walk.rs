//! Walks a whole tree with many workers and stats every entry: path, type, size.
//!
//! ```text
//! worker ── own stack of folders ──┬─> list 64 KiB of a folder ─> statx each entry ─> visitor
//!     ^                            └─< sub-folders, on top of the stack
//!     └── shared stack: work given away while a worker was idle
//! ```
//!
//! The unit of work is one buffer of a folder's listing, not the folder. The open descriptor keeps
//! the position in the listing, so the rest of a large folder is a unit like any other: it can be
//! deferred or given away. Entries are looked up relative to their open folder, so no path is
//! resolved from the root, however deep the tree.
//!
//! Bounds: at most [`OPEN_FOLDERS`] folders are open besides those being listed; folders found
//! beyond that are later opened by path. A worker keeps at most about [`MOST_PENDING`] sub-folders
//! of a folder, then defers the rest of the listing and descends first.
//!
//! Invariants: each entry is visited once, and each folder before its content. Symbolic links are
//! not followed. With [`WalkOptions::one_file_system`], a folder on another device than the root is
//! visited but not entered (as with `find -xdev`).

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

/// How many folders may be open besides those being listed.
pub const OPEN_FOLDERS: usize = 256;
/// How many sub-folders of one folder a worker keeps before it descends.
pub const MOST_PENDING: usize = 1024;

/// Options of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkOptions {
    /// Number of workers.
    pub threads: usize,
    /// Do not enter folders on other file systems.
    pub one_file_system: bool,
}

/// One entry.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Path of its folder from the root of the walk; empty for the root itself.
    pub folder: &'a [u8],
    /// Its name.
    pub name: &'a [u8],
    /// Its type.
    pub kind: EntryKind,
    /// Its `statx` result.
    pub stat: &'a rustix::fs::Statx,
}

/// Visits entries: one visitor per worker.
pub trait Visitor: Send {
    /// Visits an entry; a folder before its content. A break ends the walk early.
    ///
    /// # Errors
    /// An error ends the walk.
    fn entry(&mut self, entry: &Entry<'_>) -> Result<ControlFlow<()>>;

    /// The next part of a folder's listing starts.
    fn begin(&mut self) {}

    /// The walk is complete.
    ///
    /// # Errors
    /// An error fails the walk.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The result of a walk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// Regular files.
    pub files: u64,
    /// Entries that are neither files nor folders: links, devices, sockets, pipes.
    pub others: u64,
    /// Folders, without the root.
    pub folders: u64,
    /// Total size of regular files.
    pub bytes: u64,
    /// Folders on other file systems that were not entered.
    pub borders: u64,
    /// Entries that vanished or could not be read.
    pub errors: u64,
    /// The first of these errors.
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

/// Walks everything below `root`, with a visitor for each worker; returns the totals and the
/// visitors.
///
/// # Errors
/// The root cannot be read, a visitor failed, or the work was stopped. Unreadable entries below the root are
/// only counted.
pub fn walk<V: Visitor>(
    root: &Path,
    options: WalkOptions,
    control: &Control,
    visitor: impl Fn() -> Result<V>,
) -> Result<(Walked, Vec<V>)> {
    let shown = root.display();
    let folder = Folder::root(root).map_err(LabError::io(format!("cannot list {shown}")))?;
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
