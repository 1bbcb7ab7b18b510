//! Scan: every file of a file system, with its attributes, without mounting anything.
//!
//! Idea: `find` with `stat` pays for millions of look-ups, each with a wait. A scan looks nothing up: it
//! takes hundreds of directories from a stack, reads their ZAP blocks together in disk order, sorts the
//! object numbers, and decodes the attributes in the dnode blocks, again in disk order.
//!
//! ```text
//!   stack of directories --take a window--> ZAP blocks --names, numbers--> sort by number --> dnode blocks
//!        ^                                                                                        |
//!        +---------------------------- subdirectories -------------------- rows <-- attributes ---+
//! ```
//!
//! Memory: a window of entries and one of dnode blocks per worker; the paths of the directories on the stack,
//! kept short by taking the last first; and a word per directory met, since a damaged pool may name one
//! twice.
//!
//! Order: rows arrive in read order. [`sort`] sorts them by path in bounded memory.

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

/// A file system or snapshot to scan.
#[derive(Clone)]
pub struct ScanTarget {
    /// The dataset's name, without the snapshot's.
    pub dataset: String,
    /// The snapshot's name, if it is one.
    pub snapshot: Option<String>,
    /// The file system.
    pub filesystem: Filesystem,
}

/// Data to read besides names and attributes.
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

/// Scans `target`. `render` runs on the workers, in parallel; `sink` gets its results one at a time, in no
/// particular order.
///
/// Damage is part of the batches ([`RowBatch::problems`]) and does not end the scan.
///
/// # Errors
/// The root can't be read, or `sink` failed.
pub async fn scan<T, R, S>(target: &ScanTarget, needs: ScanNeeds, render: R, sink: S) -> Result<()>
where
    T: Send + 'static,
    R: Fn(&RowBatch) -> T + Send + Sync + 'static,
    S: FnMut(T) -> Result<()>,
{
    scan_below(target, target.filesystem.root(), needs, render, sink).await
}

/// Like [`scan`], for one folder, `.`, and everything below it.
///
/// # Errors
/// The folder can't be read, or `sink` failed.
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
