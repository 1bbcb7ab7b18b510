//! What a scan yields: rows in batches, so that a million rows are not a million allocations.

use std::ops::Range;
use std::sync::Arc;

use cenote_format::units::{ObjectId, Txg};
use cenote_fs::Attr;
use cenote_fs::manifest::{ContentHash, XattrHash};
use cenote_pool::VdevClass;

use super::ScanTarget;
use crate::InspectError;

/// Some rows of one file system. Their paths lie in one buffer.
#[derive(Debug)]
pub struct RowBatch {
    /// Where they are from.
    pub target: Arc<ScanTarget>,
    /// The rows.
    pub rows: Vec<Row>,
    /// What could not be read.
    pub problems: Vec<ScanProblem>,
    pub(super) paths: Vec<u8>,
}

/// A file.
#[derive(Debug)]
pub struct Row {
    path: Range<u32>,
    /// Its object number.
    pub object: ObjectId,
    /// Its attributes.
    pub attr: Attr,
    /// When the block that holds its dnode was last written.
    pub birth_txg: Txg,
    /// The allocation class of the vdev that this block lies on; `None` if it is on none (embedded) or unknown.
    pub class: Option<VdevClass>,
    /// What was asked for beyond attributes.
    pub extra: Option<Box<Extra>>,
}

/// What takes more reading than a dnode.
#[derive(Debug, Default, Clone)]
pub struct Extra {
    /// Of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Sorted by name.
    pub xattrs: Vec<XattrHash>,
    /// Of a regular file.
    pub content: Option<ContentHash>,
}

/// A file, or part of a directory, that could not be read.
#[derive(Debug, Clone)]
pub struct ScanProblem {
    /// From the root of the file system.
    pub path: Vec<u8>,
    /// The object.
    pub object: ObjectId,
    /// Why.
    pub error: InspectError,
}

impl Row {
    pub(super) fn new(
        path: Range<u32>,
        object: ObjectId,
        attr: Attr,
        birth_txg: Txg,
        class: Option<VdevClass>,
    ) -> Row {
        Row { path, object, attr, birth_txg, class, extra: None }
    }
}

impl RowBatch {
    pub(super) fn new(target: Arc<ScanTarget>) -> RowBatch {
        RowBatch { target, rows: Vec::new(), problems: Vec::new(), paths: Vec::new() }
    }

    /// Empties it for the next rows of the same file system.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.problems.clear();
        self.paths.clear();
    }

    /// A row's path from the root of its file system; the root itself is `.`.
    pub fn path(&self, row: &Row) -> &[u8] {
        self.paths.get(row.path.start as usize..row.path.end as usize).unwrap_or_default()
    }

    /// Adds a file of this name in the directory whose path is `dir`.
    pub(super) fn push(&mut self, dir: &[u8], name: &[u8], row: impl FnOnce(Range<u32>) -> Row) -> &Row {
        let start = self.paths.len() as u32;
        join(&mut self.paths, dir, name);
        let row = row(start..self.paths.len() as u32);
        self.rows.push(row);
        // Pushed just now.
        &self.rows[self.rows.len() - 1]
    }
}

/// Appends the path of `name` in `dir`; the root's own path is empty, and so is the name for `dir` itself.
pub(super) fn join(out: &mut Vec<u8>, dir: &[u8], name: &[u8]) {
    out.extend_from_slice(dir);
    if !dir.is_empty() && !name.is_empty() {
        out.push(b'/');
    }
    out.extend_from_slice(name);
}

impl std::fmt::Debug for ScanTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScanTarget({}", self.dataset)?;
        if let Some(snapshot) = &self.snapshot {
            write!(f, "@{snapshot}")?;
        }
        write!(f, ")")
    }
}
