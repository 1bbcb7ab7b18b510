//! Replays intent logs on disk: an import does this before anyone changes a dataset.
//!
//! Idea: a record describes an operation, so replay repeats the operation with the values that `mknod` chose
//! at the time: number, creation time, generation. A record's sequence number goes into the same txg as its
//! changes, so an interrupted replay resumes where it stopped. Records about one object may be late
//! ([`cenote_engine::zil`]): if the object is gone, they are skipped. No rule refuses an operation accepted
//! earlier ([`super::rules`]). A record that fails all the same (damage, a contradiction) is set aside and
//! listed in the report and the pool's error log; the rest is replayed ([`crate::replay::aside`]).
//!
//! [`crate::replay`] does the same in memory only, for callers that don't change the pool.
//!
//! Source: OpenZFS `zfs_replay.c`, `zil.c` (`zil_replay`, `zil_replay_log_record`), `zvol.c`
//! (`zvol_replay_*`).

mod attributes;
mod content;
mod names;

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_engine::Engine;
use cenote_engine::zil::PendingReplay;
use cenote_format::objset::ObjsetType;
use cenote_format::units::ObjectId;
use cenote_format::zil::record::{LogRecord, Operation};
use cenote_object::DatasetError;

use super::{Change, FsOptions, FsWriter};
use crate::attr::Timestamp;
use crate::error::{FsError, Result};
use crate::replay::ReplayReport;
use crate::replay::aside::Account;
use crate::volume::VolumeWriter;

/// Records replayed per txg: limits dirty data, since a record holds at most 128 KiB, except for clones.
const RECORDS_PER_GROUP: usize = 512;

/// Replays all logs found when the pool was opened; returns the result of each by dataset name. Must not be
/// called under a hold.
///
/// # Errors
/// A dataset with a log can't be opened, or a txg can't be synced.
#[boxed]
pub async fn replay_logs(engine: &Engine, now: Timestamp) -> Result<Vec<(String, ReplayReport)>> {
    let mut reports = Vec::new();
    let pending = engine.logs().awaiting_replay().await?;
    if !pending.is_empty() {
        // The claim must be on disk before any log block is freed.
        engine.sync_all().await?;
    }
    for pending in pending {
        // Other object sets (those of `ztest`) can only be replayed by their creator: their logs stay
        // claimed, as in OpenZFS.
        if !matches!(pending.dataset.live().view().phys().objset_type, ObjsetType::Zfs | ObjsetType::Zvol) {
            continue;
        }
        let name = pending.name.clone();
        reports.push((name, replay_log(engine, pending, now).await?));
    }
    engine.sync_all().await?;
    Ok(reports)
}

/// The object set of a log.
#[derive(Clone)]
enum Target {
    Files(FsWriter),
    Volume(Arc<VolumeWriter>),
}

async fn replay_log(engine: &Engine, pending: PendingReplay, now: Timestamp) -> Result<ReplayReport> {
    let target = open(engine, &pending).await?;
    if let Target::Files(fs) = &target {
        // The log may reuse numbers of files already removed.
        fs.free_all_unlinked(engine).await?;
    }
    let mut account = Account::default();
    for (index, record) in pending.records.iter().enumerate() {
        let allowed = account.check(record);
        let (target, again) = (target.clone(), record.clone());
        let redo = move |edit| async move {
            allowed?;
            match target {
                Target::Files(fs) => {
                    let change = Change { edit: &edit, now };
                    Replay { fs: &fs, change }.record(&again).await
                }
                Target::Volume(volume) => volume.replay_record(&edit, &again).await,
            }
        };
        let done = match pending.redo(record, redo).await {
            Err(error @ FsError::Dataset(DatasetError::Stopped { .. })) => return Err(error),
            done => done,
        };
        if let Some(object) = account.note(record, done) {
            engine.pool().read_errors().note_lacking(pending.dataset.live().on_disk().dataset_id(), object);
        }
        if index % RECORDS_PER_GROUP == RECORDS_PER_GROUP - 1 {
            engine.sync_all().await?;
        }
    }
    pending.finish().await?;
    Ok(account.report)
}

async fn open(engine: &Engine, pending: &PendingReplay) -> Result<Target> {
    let dataset = pending.dataset.clone();
    if dataset.view().phys().objset_type == ObjsetType::Zvol {
        return Ok(Target::Volume(VolumeWriter::open(dataset).await?.into()));
    }
    let mos = engine.mos().await?;
    let options = FsOptions::of(&mos, &mos.dataset(&pending.name).await?).await?;
    Ok(Target::Files(FsWriter::open(dataset, options).await?.for_replay()))
}

struct Replay<'a> {
    fs: &'a FsWriter,
    change: Change<'a>,
}

impl Replay<'_> {
    /// Replays a record; returns `false` if its object is gone.
    async fn record(&self, record: &LogRecord) -> Result<bool> {
        let contradicts = |why| FsError::Replay { sequence: record.seq, why };
        match &record.operation {
            Operation::Create { domains, .. } | Operation::SetAttr { domains, .. } if !domains.is_empty() => {
                return Err(contradicts("names users of other domains, which this version can't store"));
            }
            Operation::Create { new, attrs, acl, name, .. } => {
                self.create(new, name, None).await?;
                if let Some(attrs) = attrs {
                    self.log_attributes(new.object, attrs).await?;
                }
                if let Some(acl) = acl {
                    self.acl(new.object, &acl.entries, acl.entry_count).await?;
                }
            }
            Operation::Symlink { new, name, target } => {
                self.create(new, name, Some(target)).await?;
            }
            Operation::MakeXattrDir { new, .. } => self.xattr_dir(new).await?,
            Operation::Remove { is_directory, directory, name } => {
                self.remove(*directory, name, *is_directory).await?;
            }
            Operation::Link { directory, object, name } => {
                self.fs.link(self.change, *object, *directory, name).await?;
            }
            Operation::Rename { kind, from_directory, to_directory, from, to } => {
                let places = ((*from_directory, &from[..]), (*to_directory, &to[..]));
                self.rename(kind, places.0, places.1).await?;
            }
            Operation::Unknown { .. } => return Err(contradicts("has an unknown type")),
            about_one_object => return self.late(about_one_object, contradicts).await,
        }
        Ok(true)
    }

    /// Replays a record that may be late.
    async fn late(
        &self,
        operation: &Operation,
        contradicts: impl Fn(&'static str) -> FsError,
    ) -> Result<bool> {
        let done = match operation {
            Operation::Write { object, .. } => self.write(*object, operation).await,
            Operation::Truncate { object, offset_bytes, length_bytes } => {
                self.clear(*object, *offset_bytes, *length_bytes).await
            }
            Operation::CloneRange { object, .. } => self.clones(*object, operation).await,
            Operation::SetAttr { object, .. } => self.attributes(*object, operation).await,
            Operation::SetAcl { object, acl } => self.acl(*object, &acl.entries, acl.entry_count).await,
            Operation::SetAclV0 { object, entries, entry_count } => {
                self.acl(*object, entries, *entry_count).await
            }
            Operation::SetSaXattr { object, name, value } => self.xattr(*object, name, value).await,
            _ => return Err(contradicts("has an unknown type")),
        };
        match done {
            Ok(()) => Ok(true),
            Err(FsError::NoObject { .. }) => Ok(false),
            Err(FsError::Replay { why, .. }) => Err(contradicts(why)),
            Err(error) => Err(error),
        }
    }
}

/// A record contradicts the tree; the caller adds its sequence number.
fn contradiction(why: &'static str) -> FsError {
    FsError::Replay { sequence: 0, why }
}

fn time([seconds, nanoseconds]: [u64; 2]) -> Timestamp {
    Timestamp { seconds: seconds.cast_signed(), nanoseconds: nanoseconds as u32 }
}

/// An object and the values that `mknod` chose for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct AsLogged {
    pub object: ObjectId,
    pub slots: u8,
    pub generation: u64,
}
