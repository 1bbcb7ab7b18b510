//! Records that a replay sets aside, and the effect on later ones.
//!
//! Idea: each record was acknowledged, so a failing one must not take others with it. It is set aside and
//! reported, and the replay continues, even on the same object: a write with a damaged block leaves the other
//! writes intact. The exception is a file whose creation was set aside. Its number then means nothing, or
//! another object, so all records with that number are set aside, too, until one creates it.

use std::collections::BTreeSet;

use cenote_format::units::ObjectId;
use cenote_format::zil::record::{LogRecord, Operation, RenameKind};

use crate::error::{FsError, Result};

const MOST_LISTED: usize = 100;

/// The result of replaying a log.
#[derive(Debug, Clone, Default)]
pub struct ReplayReport {
    /// Records applied.
    pub applied: u64,
    /// Records about missing objects.
    pub skipped: u64,
    /// Records that could not be applied.
    pub set_aside: u64,
    /// The first 100 of these.
    pub listed: Vec<SetAside>,
}

/// A record that could not be applied.
#[derive(Debug, Clone)]
pub struct SetAside {
    /// The record's number.
    pub sequence: u64,
    /// The file or directory that lacks it.
    pub object: ObjectId,
    /// Why.
    pub why: FsError,
}

#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) report: ReplayReport,
    /// Objects whose creation was set aside.
    missing: BTreeSet<ObjectId>,
}

impl Account {
    /// Refuses a record about an object whose creation was set aside.
    pub(crate) fn check(&self, record: &LogRecord) -> Result<()> {
        let is_missing = |object: &ObjectId| self.missing.contains(object);
        if !self.missing.is_empty() && used(&record.operation).iter().flatten().any(is_missing) {
            let why = "is about a file whose creation was set aside";
            return Err(FsError::Replay { sequence: record.seq, why });
        }
        Ok(())
    }

    /// Counts a record as applied, skipped (its object is gone) or set aside. In the last case returns the
    /// object that lacks it.
    pub(crate) fn note(&mut self, record: &LogRecord, done: Result<bool>) -> Option<ObjectId> {
        let made = made(&record.operation);
        match done {
            Ok(true) => self.report.applied += 1,
            Ok(false) => self.report.skipped += 1,
            Err(why) => {
                made.inspect(|&made| _ = self.missing.insert(made));
                let object = used(&record.operation)[0].unwrap_or(ObjectId(0));
                self.report.set_aside += 1;
                if self.report.listed.len() < MOST_LISTED {
                    self.report.listed.push(SetAside { sequence: record.seq, object, why });
                }
                return Some(object);
            }
        }
        made.inspect(|made| _ = self.missing.remove(made));
        None
    }
}

/// The object that a record creates.
fn made(operation: &Operation) -> Option<ObjectId> {
    match operation {
        Operation::Create { new, .. }
        | Operation::Symlink { new, .. }
        | Operation::MakeXattrDir { new, .. }
        | Operation::Rename { kind: RenameKind::Whiteout(new), .. } => Some(new.object),
        _ => None,
    }
}

/// The objects that a record refers to by number; the record's subject is first.
fn used(operation: &Operation) -> [Option<ObjectId>; 2] {
    match operation {
        Operation::Create { new, .. }
        | Operation::Symlink { new, .. }
        | Operation::MakeXattrDir { new, .. } => [Some(new.directory), None],
        Operation::Remove { directory, .. } => [Some(*directory), None],
        Operation::Link { directory, object, .. } => [Some(*directory), Some(*object)],
        Operation::Rename { from_directory, to_directory, .. } => {
            [Some(*to_directory), Some(*from_directory)]
        }
        about_one_object => [about_one_object.late_object(), None],
    }
}
