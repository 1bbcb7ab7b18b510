//! Input and output of a walk: its options, the visitor of entries, and the totals.

use std::ops::ControlFlow;

use super::folder::EntryKind;
use crate::Result;

/// Sub-folders of one folder that a worker keeps before it descends.
pub const MOST_PENDING: usize = 1024;

/// Options of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkOptions {
    /// Number of workers.
    pub threads: usize,
    /// Do not enter folders on other file systems.
    pub one_file_system: bool,
}

/// Entry found by a walk.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Path of its folder from the root of the walk; empty for the root itself.
    pub folder: &'a [u8],
    /// Name of the entry.
    pub name: &'a [u8],
    /// Type of the entry.
    pub kind: EntryKind,
    /// Result of `statx`.
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

/// Totals of a walk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// Regular files.
    pub files: u64,
    /// Entries neither files nor folders: links, devices, sockets, pipes.
    pub others: u64,
    /// Folders, without the root.
    pub folders: u64,
    /// Total size of regular files.
    pub bytes: u64,
    /// Folders on other file systems not entered.
    pub borders: u64,
    /// Entries that vanished or could not be read.
    pub errors: u64,
    /// First of these errors.
    pub first_error: Option<String>,
}

impl Walked {
    pub(super) fn add(&mut self, other: Walked) {
        self.files += other.files;
        self.others += other.others;
        self.folders += other.folders;
        self.bytes += other.bytes;
        self.borders += other.borders;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }
}
