//! `--replay`: the intent log of a dataset, applied in memory to what is shown of it.
//!
//! Only the live dataset has a log: a snapshot's head may still name the log of its day. What the log does not record (some change
//! times) is taken from the clock, as at an import for writing.

use cenote_dataset::{Dataset, IntentLog, Objset};
use cenote_format::objset::ObjsetType;
use cenote_fs::{Filesystem, ReplayReport, Timestamp, Volume};
use cenote_runtime::Runtime;

use super::Session;
use crate::outcome::CliError;

impl Session {
    /// The file system of a dataset, with its intent log applied if that was asked for.
    pub async fn filesystem(&self, dataset: &Dataset) -> Result<Filesystem, CliError> {
        let objset = dataset.objset().await?;
        if objset.phys().objset_type == ObjsetType::Zvol {
            let name = dataset.name();
            return Err(CliError::Usage(format!("{name} is a volume: copy it out with `cenote volume cp`")));
        }
        let log = self.log_to_replay(dataset, &objset).await;
        let filesystem = Filesystem::open(objset).await?;
        let Some(log) = log else { return Ok(filesystem) };
        let (filesystem, report) = filesystem.replay(&log.records, now(self.runtime())).await;
        say(dataset, &log, &report);
        Ok(filesystem)
    }

    /// A volume, with its intent log applied if that was asked for.
    pub async fn volume(&self, dataset: &Dataset) -> Result<Volume, CliError> {
        let objset = dataset.objset().await?;
        if objset.phys().objset_type == ObjsetType::Zfs {
            let name = dataset.name();
            return Err(CliError::Usage(format!("{name} is a file system: copy it out with `cenote cp -r`")));
        }
        let log = self.log_to_replay(dataset, &objset).await;
        let volume = Volume::open(objset).await?;
        let Some(log) = log else { return Ok(volume) };
        let (volume, report) = volume.replay(&log.records);
        say(dataset, &log, &report);
        Ok(volume)
    }

    async fn log_to_replay(&self, dataset: &Dataset, objset: &Objset) -> Option<IntentLog> {
        if !self.common().replay || dataset.is_snapshot() {
            return None;
        }
        let log = objset.intent_log().await;
        (!log.records.is_empty() || log.damaged.is_some()).then_some(log)
    }
}

/// The time, as files have it.
pub fn now(runtime: &Runtime) -> Timestamp {
    let now_ns = runtime.unix_time_ns();
    Timestamp {
        seconds: (now_ns / 1_000_000_000).cast_signed(),
        nanoseconds: (now_ns % 1_000_000_000) as u32,
    }
}

/// Says what of a log could not be replayed when its pool was opened to change it: it is gone then, as in OpenZFS.
pub fn say_replayed(dataset: &str, report: &ReplayReport) {
    if let Some(error) = &report.stopped {
        let done = report.applied + report.skipped;
        eprintln!("cenote: {dataset}: replay of the intent log ended after {done} records: {error}");
    }
}

/// Says what could not be replayed. That some records could be is what was asked for.
fn say(dataset: &Dataset, log: &IntentLog, report: &ReplayReport) {
    let name = dataset.name();
    if let Some(error) = &log.damaged {
        eprintln!("cenote: {name}: the intent log can be read only in part: {error}");
    }
    if let Some(error) = &report.stopped {
        let (done, all) = (report.applied + report.skipped, log.records.len());
        eprintln!("cenote: {name}: replay ended after {done} of {all} records: {error}");
    }
}
