//! Intent logs done again, for good: what an import does before anybody changes a dataset.
//!
//! Idea: a record is an operation, so replay is the operation once more, with what `mknod` chose then: number, time of creation, generation.
//! In the group that a record's changes go into goes its number, too; cut off, a replay goes on where it was. Records about
//! one object may be late ([`cenote_dataset::zil`]): if it is gone, they are passed over. The first record that can't be done ends
//! the replay, as in the kernel; the report says why.
//!
//! The same in memory only, for who looks at a pool without changing it: [`crate::replay`].
//!
//! Source: OpenZFS `zfs_replay.c`, `zil.c` (`zil_replay`, `zil_replay_log_record`), `zvol.c` (`zvol_replay_*`).

mod attributes;
mod content;
mod names;

use cenote_dataset::engine::Engine;
use cenote_dataset::zil::PendingReplay;
use cenote_format::objset::ObjsetType;
use cenote_format::units::ObjectId;
use cenote_format::zil::record::{LogRecord, Operation};

use super::{Change, FsOptions, FsWriter};
use crate::attr::Timestamp;
use crate::error::{FsError, Result};
use crate::replay::ReplayReport;
use crate::volume::VolumeWriter;

/// Records replayed in a group: bounds what lies in memory, as a record holds 128 KiB at most but for clones.
const RECORDS_PER_GROUP: usize = 512;

/// Replays all logs that were found when the pool was opened; answers what became of each, by name of the dataset. Not under a hold.
///
/// # Errors
/// A dataset with a log can't be opened, or a group can't be written.
pub async fn replay_logs(engine: &Engine, now: Timestamp) -> Result<Vec<(String, ReplayReport)>> {
    let mut reports = Vec::new();
    let pending = engine.logs_to_replay().await?;
    if !pending.is_empty() {
        // That they are claimed is on disk before anything of them is freed.
        engine.sync_all().await?;
    }
    for pending in pending {
        // What else there is (object sets of `ztest`) only its maker can replay: its log stays claimed, as with OpenZFS.
        if !matches!(pending.dataset.live().view().phys().objset_type, ObjsetType::Zfs | ObjsetType::Zvol) {
            continue;
        }
        let name = pending.name.clone();
        reports.push((name, replay_log(engine, pending, now).await?));
    }
    engine.sync_all().await?;
    Ok(reports)
}

/// What a log is about.
enum Target {
    Files(FsWriter),
    Volume(VolumeWriter),
}

async fn replay_log(engine: &Engine, pending: PendingReplay, now: Timestamp) -> Result<ReplayReport> {
    let target = open(engine, &pending).await?;
    if let Target::Files(fs) = &target {
        // Numbers of files that were gone already may be others' in the log.
        drain(engine, fs, now).await?;
    }
    let mut report = ReplayReport::default();
    for (index, record) in pending.records.iter().enumerate() {
        let hold = engine.hold().await?;
        let edit = pending.dataset.edit(&hold);
        let change = Change { edit: &edit, now };
        let done = match &target {
            Target::Files(fs) => fs.replay_record(change, record).await,
            Target::Volume(volume) => volume.replay_record(&edit, record).await,
        };
        match done {
            Ok(true) => report.applied += 1,
            Ok(false) => report.skipped += 1,
            Err(error) => {
                report.stopped = Some(error);
                break;
            }
        }
        pending.note(&hold, record);
        drop(hold);
        if index % RECORDS_PER_GROUP == RECORDS_PER_GROUP - 1 {
            engine.sync_all().await?;
        }
    }
    let hold = engine.hold().await?;
    pending.finish(&hold);
    Ok(report)
}

async fn open(engine: &Engine, pending: &PendingReplay) -> Result<Target> {
    let live = pending.dataset.live().clone();
    if live.view().phys().objset_type == ObjsetType::Zvol {
        return Ok(Target::Volume(VolumeWriter::open(live).await?));
    }
    let mos = engine.mos().await?;
    let options = FsOptions::of(&mos, &mos.dataset(&pending.name).await?).await?;
    Ok(Target::Files(FsWriter::open(live, options).await?))
}

async fn drain(engine: &Engine, fs: &FsWriter, now: Timestamp) -> Result<()> {
    loop {
        let hold = engine.hold().await?;
        let edit = fs.live().edit();
        let left = fs.drain_delete_queue(Change { edit: &edit, now }).await?;
        drop(hold);
        if left == 0 {
            return Ok(());
        }
        engine.sync_all().await?;
    }
}

impl FsWriter {
    /// Does a record again; `false`: its object is gone.
    async fn replay_record(&self, change: Change<'_>, record: &LogRecord) -> Result<bool> {
        let contradicts = |why| FsError::Replay { sequence: record.seq, why };
        match &record.operation {
            Operation::Create { domains, .. } | Operation::SetAttr { domains, .. } if !domains.is_empty() => {
                return Err(contradicts("names users of other domains, which this version can't enter"));
            }
            Operation::Create { new, attrs, acl, name, .. } => {
                self.replay_create(change, new, name, None).await?;
                if let Some(attrs) = attrs {
                    self.replay_log_attributes(change, new.object, attrs).await?;
                }
                if let Some(acl) = acl {
                    self.replay_acl(change, new.object, &acl.entries, acl.entry_count).await?;
                }
            }
            Operation::Symlink { new, name, target } => {
                self.replay_create(change, new, name, Some(target)).await?;
            }
            Operation::MakeXattrDir { new, .. } => self.replay_xattr_dir(change, new).await?,
            Operation::Remove { is_directory, directory, name } => {
                self.replay_remove(change, *directory, name, *is_directory).await?;
            }
            Operation::Link { directory, object, name } => {
                self.link(change, *object, *directory, name).await?;
            }
            Operation::Rename { kind, from_directory, to_directory, from, to } => {
                let places = ((*from_directory, &from[..]), (*to_directory, &to[..]));
                self.replay_rename(change, kind, places.0, places.1).await?;
            }
            Operation::Unknown { .. } => return Err(contradicts("is of an unknown type")),
            about_one_object => return self.replay_late(change, about_one_object, contradicts).await,
        }
        Ok(true)
    }

    /// Does a record again that may be late.
    async fn replay_late(
        &self,
        change: Change<'_>,
        operation: &Operation,
        contradicts: impl Fn(&'static str) -> FsError,
    ) -> Result<bool> {
        let done = match operation {
            Operation::Write { object, .. } => self.replay_write(change, *object, operation).await,
            Operation::Truncate { object, offset_bytes, length_bytes } => {
                self.replay_clear(change, *object, *offset_bytes, *length_bytes).await
            }
            Operation::CloneRange { object, .. } => self.replay_clones(change, *object, operation).await,
            Operation::SetAttr { object, .. } => self.replay_attributes(change, *object, operation).await,
            Operation::SetAcl { object, acl } => {
                self.replay_acl(change, *object, &acl.entries, acl.entry_count).await
            }
            Operation::SetAclV0 { object, entries, entry_count } => {
                self.replay_acl(change, *object, entries, *entry_count).await
            }
            Operation::SetSaXattr { object, name, value } => {
                self.replay_xattr(change, *object, name, value).await
            }
            _ => return Err(contradicts("is of an unknown type")),
        };
        match done {
            Ok(()) => Ok(true),
            Err(FsError::NoObject { .. }) => Ok(false),
            Err(FsError::Replay { why, .. }) => Err(contradicts(why)),
            Err(error) => Err(error),
        }
    }
}

/// A record contradicts what there is; its number is added above.
fn contradiction(why: &'static str) -> FsError {
    FsError::Replay { sequence: 0, why }
}

fn time([seconds, nanoseconds]: [u64; 2]) -> Timestamp {
    Timestamp { seconds: seconds.cast_signed(), nanoseconds: nanoseconds as u32 }
}

/// An object and what `mknod` chose for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct AsLogged {
    pub object: ObjectId,
    pub slots: u8,
    pub generation: u64,
}
