//! Recording a result: beginning one, adding runs to it, going on after an interruption, ending it.

use std::fs::{self, File};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use serde_json::Value;

use super::run::{Entry, PARTIAL, TABLES};
use super::{Failure, Head, ResultFolder, Run, SCHEMA, Summary, bad, failure, file, table};
use crate::measurement::Measurement;
use crate::samples::Samples;
use crate::suite::Plan;
use crate::target::Target;
use crate::{LabError, Result};

/// A result folder that runs are added to. Only one at a time has a folder; what is there can be read through it.
#[derive(Debug)]
pub struct Recorder {
    folder: ResultFolder,
    /// `plan.json`, locked as long as this lives.
    _lock: File,
}

impl Deref for Recorder {
    type Target = ResultFolder;

    fn deref(&self) -> &ResultFolder {
        &self.folder
    }
}

impl Recorder {
    /// Begins a result in a new folder in `parent`, named by suite and time.
    ///
    /// # Errors
    /// Nothing can be made there.
    pub fn create_in(parent: &Path, plan: &Plan, targets: &[Target], machine: &Value) -> Result<Recorder> {
        fs::create_dir_all(parent).map_err(LabError::io(format!("{}: can't be made", parent.display())))?;
        let now = now_unix_ns();
        let time = DateTime::from_timestamp_nanos(now.cast_signed()).format("%Y%m%dT%H%M%SZ");
        for number in 1.. {
            let after = if number == 1 { String::new() } else { format!("-{number}") };
            let path = parent.join(format!("{}-{time}{after}", plan.suite));
            match fs::create_dir(&path) {
                Ok(()) => return Recorder::begin(path, now, plan, targets, machine),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(LabError::io(format!("{}: can't be made", path.display()))(e)),
            }
        }
        unreachable!("numbers don't end")
    }

    /// Begins a result in the folder `path`, which must not be there yet, or be empty.
    ///
    /// # Errors
    /// There is something at `path`, or nothing can be made there.
    pub fn create(path: &Path, plan: &Plan, targets: &[Target], machine: &Value) -> Result<Recorder> {
        match fs::create_dir(path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made.map_err(LabError::io(format!("{}: can't be made", path.display())))?,
        }
        if path.join("plan.json").exists() {
            let what = "holds a result already; --resume goes on with it, another --out begins a new one";
            return Err(LabError::Refused(format!("{}: {what}", path.display())));
        }
        let is_empty = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if !is_empty {
            return Err(LabError::Refused(format!("{}: not an empty folder", path.display())));
        }
        Recorder::begin(path.to_owned(), now_unix_ns(), plan, targets, machine)
    }

    fn begin(path: PathBuf, now: u64, plan: &Plan, targets: &[Target], machine: &Value) -> Result<Recorder> {
        let runs = path.join("runs");
        fs::create_dir(&runs).map_err(LabError::io(format!("{}: can't be made", runs.display())))?;
        file::write_json(&path.join("machine.json"), machine)?;
        let head = Head {
            schema: SCHEMA.into(),
            cenote: env!("CARGO_PKG_VERSION").into(),
            created_unix_ns: now,
            targets: targets.to_vec(),
            plan: plan.clone(),
        };
        // It comes last: with it, the folder is a result.
        file::write_json(&path.join("plan.json"), &head)?;
        Recorder::resume(&path)
    }

    /// Goes on with the result at `path`.
    ///
    /// # Errors
    /// There is none, it is damaged, or somebody else writes to it.
    pub fn resume(path: &Path) -> Result<Recorder> {
        let folder = ResultFolder::open(path)?;
        let plan = path.join("plan.json");
        let lock = File::open(&plan).map_err(LabError::io(plan.display().to_string()))?;
        lock.try_lock().map_err(|_| {
            LabError::Refused(format!("{}: another process is writing this result", path.display()))
        })?;
        remove_partial(&path.join("runs"))?;
        // What others wrote before the lock was ours is there too.
        let folder = ResultFolder { runs: super::run::list(&path.join("runs"))?, ..folder };
        Ok(Recorder { folder, _lock: lock })
    }

    /// Adds a run: it is on disk when this returns.
    ///
    /// # Errors
    /// It is there already, or can't be written.
    pub fn add(&mut self, measurement: Measurement, samples: Samples) -> Result<()> {
        let (test, target, repeat) = (&measurement.test, &measurement.target, measurement.repeat);
        if self.done(test, target, repeat) {
            return Err(bad(self.path(), format!("{test} on {target}, repeat {repeat}, is there already")));
        }
        let run = Run { measurement, samples };
        let number = self.runs.last().map_or(1, |last| last.number() + 1);
        let entry = Entry::write(&self.path().join("runs"), number, &run)?;
        self.folder.runs.push(entry);
        Ok(())
    }

    /// Notes that a test failed.
    ///
    /// # Errors
    /// It can't be written.
    pub fn fail(&mut self, failure: Failure) -> Result<()> {
        failure::add(self.path(), failure)
    }

    /// Makes what is derived from the runs: the tables of the whole result, and the summary, which says whether all is there. May be done
    /// again after more runs.
    ///
    /// # Errors
    /// A run can't be read, or nothing can be written.
    pub fn finish(&self) -> Result<Summary> {
        for (name, columns) in TABLES {
            let path = self.path().join(name);
            let files = self
                .runs
                .iter()
                .map(|run| run.file(name).map_err(|e| parquet::errors::ParquetError::External(Box::new(e))));
            file::write_with(&path, |file| {
                table::concatenate(files, columns, file).map_err(std::io::Error::other)
            })?;
        }
        let summary = self.summary()?;
        file::write_json(&self.path().join("summary.json"), &summary)?;
        Ok(summary)
    }
}

/// Removes what an interrupted run left unfinished.
fn remove_partial(runs: &Path) -> Result<()> {
    let entries = fs::read_dir(runs).map_err(LabError::io(runs.display().to_string()))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PARTIAL) {
            let path = entry.path();
            fs::remove_dir_all(&path)
                .map_err(LabError::io(format!("{}: can't be removed", path.display())))?;
        }
    }
    Ok(())
}

fn now_unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
