//! `--replay`: applies a dataset's intent log in memory before showing the dataset.
//!
//! Only the live dataset has a log: a snapshot's header may still name a log of its time. Values missing from
//! the log (some change times) come from the clock, as in an import for writing.

use cenote_dataset::Dataset;
use cenote_format::objset::ObjsetType;
use cenote_fs::{Filesystem, ReplayReport, SetAside, Timestamp, Volume};
use cenote_object::{IntentLog, Objset};
use cenote_runtime::Runtime;

use super::Session;
use crate::error::ControlError;

impl Session {
    /// Opens a dataset's file system, with its intent log applied if `--replay` was given.
    pub async fn filesystem(&self, dataset: &Dataset) -> Result<Filesystem, ControlError> {
        let objset = dataset.objset().await?;
        if objset.phys().objset_type == ObjsetType::Zvol {
            let name = dataset.name();
            return Err(ControlError::Usage(format!(
                "{name} is a volume: copy it out with `cenote volume cp`"
            )));
        }
        let log = self.log_to_replay(dataset, &objset).await;
        let filesystem = Filesystem::open(objset).await?;
        let Some(log) = log else { return Ok(filesystem) };
        let (filesystem, report) = filesystem.replay(&log.records, now(self.runtime())).await;
        self.say(dataset, &log, &report);
        Ok(filesystem)
    }

    /// Opens a volume, with its intent log applied if `--replay` was given.
    pub async fn volume(&self, dataset: &Dataset) -> Result<Volume, ControlError> {
        let objset = dataset.objset().await?;
        if objset.phys().objset_type == ObjsetType::Zfs {
            let name = dataset.name();
            return Err(ControlError::Usage(format!(
                "{name} is a file system: copy it out with `cenote cp -r`"
            )));
        }
        let log = self.log_to_replay(dataset, &objset).await;
        let volume = Volume::open(objset).await?;
        let Some(log) = log else { return Ok(volume) };
        let (volume, report) = volume.replay(&log.records);
        self.say(dataset, &log, &report);
        Ok(volume)
    }

    async fn log_to_replay(&self, dataset: &Dataset, objset: &Objset) -> Option<IntentLog> {
        if !self.options().replay || dataset.is_snapshot() {
            return None;
        }
        let log = objset.intent_log().await;
        (!log.records.is_empty() || log.damaged.is_some()).then_some(log)
    }
}

/// The current time as a file timestamp.
pub fn now(runtime: &Runtime) -> Timestamp {
    Timestamp::of_unix_ns(runtime.unix_time_ns())
}

/// Skipped records reported one by one.
const MOST_TOLD: usize = 10;

impl Session {
    /// Reports records that could not be replayed. If the pool was opened for writing, the log is gone, as in
    /// OpenZFS, and the error log names the files.
    pub(super) fn say_replayed(&self, dataset: &str, report: &ReplayReport) {
        if report.set_aside == 0 {
            return;
        }
        let (aside, done) = (report.set_aside, report.applied + report.skipped);
        self.caller().note(format!(
            "{dataset}: {aside} records of the intent log could not be replayed and were set aside; {done} \
             could"
        ));
        for SetAside { sequence, object, why } in report.listed.iter().take(MOST_TOLD) {
            self.caller().note(format!("{dataset}: object {object} lacks record {sequence}: {why}"));
        }
    }

    fn say(&self, dataset: &Dataset, log: &IntentLog, report: &ReplayReport) {
        let name = dataset.name();
        if let Some(error) = &log.damaged {
            self.caller().note(format!("{name}: the intent log can be read only in part: {error}"));
        }
        self.say_replayed(name, report);
    }
}
