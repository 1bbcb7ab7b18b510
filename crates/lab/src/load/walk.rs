//! Walks a whole tree with many workers and stats every entry: path, type, size.
//!
//! ```text
//! worker ── own stack of folders ──┬─> list 64 KiB of a folder ─> statx each entry ─> visitor
//!     ^                            └─< sub-folders, on top of the stack
//!     └── shared stack: work given away while a worker was idle
//! ```
//!
//! The unit of work is one buffer of a folder's listing. The open descriptor keeps the position, so the rest
//! of a large folder can be deferred or given away like any unit. Entries are looked up relative to their
//! open folder.
//!
//! Bounds: at most [`OPEN_FOLDERS`] folders are open besides those being listed; folders found beyond that
//! are later opened by path. A worker keeps at most about [`MOST_PENDING`] sub-folders of a folder, then
//! defers the rest of the listing and descends first.
//!
//! Invariants: each entry is visited once, a folder before its content. Symbolic links are not followed. With
//! [`WalkOptions::one_file_system`], folders on another device are visited but not entered (`find -xdev`).

mod entry;
mod folder;
mod output;
mod queue;
mod scan;
mod worker;

use std::path::Path;
use std::sync::Arc;

pub use entry::{Entry, MOST_PENDING, Visitor, WalkOptions, Walked};
pub use folder::{EntryKind, OPEN_FOLDERS};
pub use output::ListWriter;
pub use scan::{Cache, PoolScan, Scan, ScanTool};

use crate::load::control::Control;
use crate::{LabError, Result};
use folder::Folder;
use queue::{Pending, Queue};
use worker::Worker;

/// Walks everything below `root`, with a visitor for each worker; returns the totals and the visitors.
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
