//! Applies the intent log in memory: the file system or volume as the kernel would show it after an import.
//!
//! Idea: records are applied in order to an overlay (see `overlay`), each as OpenZFS's replay would change
//! the tree. Values that the log does not record, mainly change times, come from the time of the replay, an
//! argument, so that views are reproducible and comparable. A record that contradicts the tree is set aside,
//! and the report says why ([`aside`]); the module ends the replay there.
//!
//! Records name objects by number. Those that can be logged out of order (content and attributes of a file
//! removed meanwhile) are skipped if the object is gone.
//!
//! Source: OpenZFS `zfs_replay.c`, `zil.c` (`zil_replay_log_record`), `zfs_dir.c`, `zvol.c`
//! (`zvol_replay_*`).

pub(crate) mod aside;
mod attributes;
mod content;
mod names;

use std::ops::Range;
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_format::units::ObjectId;
use cenote_format::zil::record::{LogRecord, Operation, RenameKind};

use self::aside::Account;
pub use self::aside::{ReplayReport, SetAside};
use crate::attr::{Attr, Timestamp};
use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;
use crate::overlay::{Node, Overlay};
use crate::volume::{Volume, ZVOL_OBJECT};

impl Filesystem {
    /// The file system with these records applied, as of `now`.
    #[boxed]
    pub async fn replay(&self, records: &[LogRecord], now: Timestamp) -> (Filesystem, ReplayReport) {
        let mut replay = Replay { fs: self.clone(), now, sequence: 0 };
        let mut account = Account::default();
        for record in records {
            replay.sequence = record.seq;
            let done = match account.check(record) {
                Ok(()) => replay.apply(record).await,
                Err(error) => Err(error),
            };
            account.note(record, done);
        }
        (replay.fs, account.report)
    }
}

impl Volume {
    /// The volume with these records applied.
    pub fn replay(self, records: &[LogRecord]) -> (Volume, ReplayReport) {
        let mut overlay = crate::overlay::ContentOverlay::default();
        let mut account = Account::default();
        for record in records {
            let applied = match &record.operation {
                Operation::Write { .. } => content::put_write(&mut overlay, &record.operation).map(|_| ()),
                Operation::CloneRange { .. } => content::put_clones(&mut overlay, &record.operation),
                Operation::Truncate { offset_bytes, length_bytes, .. } => {
                    let end = offset_bytes.saturating_add(*length_bytes);
                    overlay.put(*offset_bytes..end, crate::overlay::Source::Zeros);
                    Ok(())
                }
                _ => Err("has a type that volumes don't use"),
            };
            let applied = applied.map_err(|why| FsError::Replay { sequence: record.seq, why });
            account.note(record, applied.map(|()| true));
        }
        debug_assert_eq!(ZVOL_OBJECT, ObjectId(1));
        (self.with_overlay(overlay), account.report)
    }
}

struct Replay {
    /// The view so far; its overlay is not shared, so changes copy nothing.
    fs: Filesystem,
    now: Timestamp,
    /// The record being applied.
    sequence: u64,
}

impl Replay {
    /// Applies one record; returns `false` if its object is gone without contradiction.
    async fn apply(&mut self, record: &LogRecord) -> Result<bool> {
        let fold = record.case_insensitive;
        match &record.operation {
            Operation::Create { new, attrs, acl, name, .. } => {
                self.create(new, name).await?;
                if let Some(attrs) = attrs {
                    self.set_log_attrs(new.object, attrs).await?;
                }
                if let Some(acl) = acl {
                    self.set_acl(new.object, acl).await?;
                }
            }
            Operation::MakeXattrDir { new, .. } => self.make_xattr_dir(new).await?,
            Operation::Symlink { new, name, target } => {
                self.create(new, name).await?;
                let node = self.overlay().entry(new.object);
                node.target = Some(target.to_vec());
                if let Some(attr) = &mut node.attr {
                    attr.size = target.len() as u64;
                }
            }
            Operation::Remove { directory, name, .. } => self.remove(*directory, name, fold).await?,
            Operation::Link { directory, object, name } => self.link(*directory, *object, name).await?,
            Operation::Rename { kind, from_directory, to_directory, from, to } => {
                let (from, to) = ((*from_directory, &from[..]), (*to_directory, &to[..]));
                match kind {
                    RenameKind::Replace => self.rename(from, to, fold).await?,
                    RenameKind::Exchange => self.exchange(from, to, fold).await?,
                    RenameKind::Whiteout(new) => {
                        self.rename(from, to, fold).await?;
                        self.create(new, from.1).await?;
                    }
                }
            }
            Operation::Unknown { .. } => return Err(self.contradiction("has an unknown type")),
            about_one_object => return self.apply_to_object(about_one_object).await,
        }
        Ok(true)
    }

    /// Applies a record that may have been logged out of order.
    async fn apply_to_object(&mut self, operation: &Operation) -> Result<bool> {
        let Some(id) = operation.late_object() else {
            return Err(self.contradiction("has an unknown type"));
        };
        match self.fs.attr(id).await {
            Ok(_) => {}
            Err(FsError::NoObject { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        match operation {
            Operation::Write { .. } => self.write(id, operation).await?,
            Operation::Truncate { offset_bytes, length_bytes, .. } => {
                self.free_space(id, *offset_bytes, *length_bytes).await?;
            }
            Operation::CloneRange { .. } => self.clone_range(id, operation).await?,
            Operation::SetAttr { .. } => self.set_attr(id, operation).await?,
            Operation::SetAcl { acl, .. } => self.set_acl(id, acl).await?,
            Operation::SetAclV0 { entries, entry_count, .. } => {
                self.set_acl_entries(id, entries, *entry_count).await?;
            }
            Operation::SetSaXattr { name, value, .. } => {
                let now = self.now;
                self.attr_mut(id).await?.ctime = now;
                let value = (!value.is_empty()).then(|| value.clone());
                self.overlay().entry(id).xattrs.insert(name.clone(), value);
            }
            _ => {}
        }
        Ok(true)
    }

    fn overlay(&mut self) -> &mut Overlay {
        Arc::make_mut(&mut self.fs.overlay)
    }

    async fn attr_mut(&mut self, id: ObjectId) -> Result<&mut Attr> {
        let attr = self.fs.attr(id).await?;
        Ok(self.overlay().entry(id).attr.get_or_insert(attr))
    }

    /// An object's changes and attributes, for modification.
    async fn node_mut(&mut self, id: ObjectId) -> Result<&mut Node> {
        self.attr_mut(id).await?;
        Ok(self.overlay().entry(id))
    }

    fn contradiction(&self, why: &'static str) -> FsError {
        FsError::Replay { sequence: self.sequence, why }
    }
}

/// `offset..offset + len`, or `None` if no file can have that range.
fn range(offset: u64, len: u64) -> Option<Range<u64>> {
    let end = offset.checked_add(len).filter(|&end| end <= i64::MAX as u64)?;
    Some(offset..end)
}
