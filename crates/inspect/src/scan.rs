//! Scan: every file of a file system, with its attributes, without mounting anything.
//!
//! Idea: `find` with `stat` pays for millions of look-ups, each a wait. Here nothing is looked up. Directories are taken
//! from a stack, hundreds at a time; their ZAP blocks are read together in disk order; the object numbers that they
//! name are sorted and their dnodes gathered from the blocks that hold them, again in disk order; attributes are
//! decoded from the dnodes in place. Subdirectories go back on the stack.
//!
//! ```text
//!   stack of directories --take a window--> ZAP blocks --names, numbers--> sort by number --> dnode blocks
//!        ^                                                                                        |
//!        +---------------------------- subdirectories -------------------- rows <-- attributes ---+
//! ```
//!
//! Memory: a window of entries and one of dnode blocks for each worker, and the paths of the directories on the stack,
//! which is worked last in first out so that it stays short. It does not grow with the number of files, but for
//! one machine word for each directory met (the guard against directories that a damaged pool names twice).
//!
//! Order: rows come as they are read. [`sort`] puts them in order of their paths in bounded memory.

mod columns;
mod extras;
mod hostile;
pub mod manifest;
pub mod parquet;
mod row;
pub mod sort;
pub mod summary;
mod text;
mod walk;
mod window;

use cenote_format::units::ObjectId;
use cenote_fs::Filesystem;

pub use columns::{Column, Columns};
pub use row::{Extra, Row, RowBatch, ScanProblem};
pub use text::{Jsonl, Tsv};

use crate::Result;

/// A file system or snapshot to be scanned.
#[derive(Clone)]
pub struct ScanTarget {
    /// The dataset's name, without the snapshot's.
    pub dataset: String,
    /// The snapshot's name, if it is one.
    pub snapshot: Option<String>,
    /// The file system.
    pub filesystem: Filesystem,
}

/// What is read beyond names and attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanNeeds {
    /// Targets of symbolic links.
    pub targets: bool,
    /// Names and hashes of extended attributes.
    pub xattrs: bool,
    /// Hashes of contents.
    pub hashes: bool,
}

impl ScanNeeds {
    fn any(self) -> bool {
        self != ScanNeeds::default()
    }
}

/// Scans `target`. `render` turns a batch of rows into whatever the caller wants, on the workers, in parallel; `sink`
/// gets the results one after the other, in no particular order.
///
/// Damage is in the batches ([`RowBatch::problems`]) and does not end the scan.
///
/// # Errors
/// The root can't be read; what `sink` returns.
pub async fn scan<T, R, S>(target: &ScanTarget, needs: ScanNeeds, render: R, sink: S) -> Result<()>
where
    T: Send + 'static,
    R: Fn(&RowBatch) -> T + Send + Sync + 'static,
    S: FnMut(T) -> Result<()>,
{
    scan_below(target, target.filesystem.root(), needs, render, sink).await
}

/// As [`scan`], but of one folder and what is below it. Paths are from this folder, which itself is `.`.
///
/// # Errors
/// The folder can't be read; what `sink` returns.
pub async fn scan_below<T, R, S>(
    target: &ScanTarget,
    folder: ObjectId,
    needs: ScanNeeds,
    render: R,
    sink: S,
) -> Result<()>
where
    T: Send + 'static,
    R: Fn(&RowBatch) -> T + Send + Sync + 'static,
    S: FnMut(T) -> Result<()>,
{
    walk::Walk::new(target.clone(), folder, needs).run(render, sink).await
}
