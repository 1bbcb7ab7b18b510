//! The results of a scan: rows in batches, so that a million rows do not take a million allocations.

use std::ops::Range;
use std::sync::Arc;

use cenote_format::units::{ObjectId, Txg};
use cenote_fs::Attr;
use cenote_fs::manifest::{ContentHash, XattrHash};
use cenote_pool::VdevClass;

use super::ScanTarget;
use crate::InspectError;

/// Rows of one file system. Their paths share one buffer.
#[derive(Debug)]
pub struct RowBatch {
    /// The file system they belong to.
    pub target: Arc<ScanTarget>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Parts that could not be read.
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
    /// The txg in which the block with its dnode was last written.
    pub birth_txg: Txg,
    /// The allocation class of the vdev that holds this block; `None`: none (an embedded block), or unknown.
    pub class: Option<VdevClass>,
    /// Requested additional data.
    pub extra: Option<Box<Extra>>,
}

/// Data that needs more reads than the dnode.
#[derive(Debug, Default, Clone)]
pub struct Extra {
    /// The target, for a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Sorted by name.
    pub xattrs: Vec<XattrHash>,
    /// The content hash, for a regular file.
    pub content: Option<ContentHash>,
}

/// A file, or part of a directory, that could not be read.
#[derive(Debug, Clone)]
pub struct ScanProblem {
    /// The path from the root of the file system.
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

    /// Empties it for further rows of the same file system.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.problems.clear();
        self.paths.clear();
    }

    /// A row's path from the root of its file system; the root itself is `.`.
    pub fn path(&self, row: &Row) -> &[u8] {
        self.paths.get(row.path.start as usize..row.path.end as usize).unwrap_or_default()
    }

    /// Adds a file with this name in the directory whose path is `dir`.
    pub(super) fn push(&mut self, dir: &[u8], name: &[u8], row: impl FnOnce(Range<u32>) -> Row) -> &Row {
        let start = self.paths.len() as u32;
        join(&mut self.paths, dir, name);
        let row = row(start..self.paths.len() as u32);
        self.rows.push(row);
        // It was pushed just now.
        &self.rows[self.rows.len() - 1]
    }
}

/// Appends the path of `name` in `dir`; the root's path is empty, and an empty name means `dir` itself.
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
