//! Recording a result: starting it, adding runs, resuming after an interruption, finishing it.

use std::fs::{self, File};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use serde_json::Value;

use super::reserve::Reserve;
use super::run::{Entry, PARTIAL, TABLES};
use super::{Failure, Head, ResultFolder, Run, SCHEMA, Summary, bad, failure, file, table};
use crate::load::measurement::Measurement;
use crate::load::samples::Samples;
use crate::load::suite::Plan;
use crate::load::target::Target;
use crate::{LabError, Result};

/// Adds runs to a result folder, as its only writer; existing runs can be read through it.
#[derive(Debug)]
pub struct Recorder {
    folder: ResultFolder,
    /// Space for recording failures.
    reserve: Reserve,
    /// `plan.json`, locked for the lifetime of the recorder.
    _lock: File,
}

impl Deref for Recorder {
    type Target = ResultFolder;

    fn deref(&self) -> &ResultFolder {
        &self.folder
    }
}

impl Recorder {
    /// Starts a result in a new folder in `parent`, named by suite and time.
    ///
    /// # Errors
    /// The folder or its files cannot be created.
    pub fn create_in(parent: &Path, plan: &Plan, targets: &[Target], machine: &Value) -> Result<Recorder> {
        fs::create_dir_all(parent).map_err(LabError::io(format!("cannot create {}", parent.display())))?;
        let now = now_unix_ns();
        let time = DateTime::from_timestamp_nanos(now.cast_signed()).format("%Y%m%dT%H%M%SZ");
        for number in 1.. {
            let after = if number == 1 { String::new() } else { format!("-{number}") };
            let path = parent.join(format!("{}-{time}{after}", plan.suite));
            match fs::create_dir(&path) {
                Ok(()) => return Recorder::begin(path, now, plan, targets, machine),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(LabError::io(format!("cannot create {}", path.display()))(e)),
            }
        }
        unreachable!("numbers don't end")
    }

    /// Starts a result in the folder `path`, which must be absent or empty.
    ///
    /// # Errors
    /// The folder is not empty, or its files cannot be created.
    pub fn create(path: &Path, plan: &Plan, targets: &[Target], machine: &Value) -> Result<Recorder> {
        match fs::create_dir(path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made.map_err(LabError::io(format!("cannot create {}", path.display())))?,
        }
        if path.join("plan.json").exists() {
            let what = "already holds a result; --resume continues it, another --out starts a new one";
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
        fs::create_dir(&runs).map_err(LabError::io(format!("cannot create {}", runs.display())))?;
        file::write_json(&path.join("machine.json"), machine)?;
        let head = Head {
            schema: SCHEMA.into(),
            cenote: env!("CARGO_PKG_VERSION").into(),
            created_unix_ns: now,
            targets: targets.to_vec(),
            plan: plan.clone(),
        };
        // The plan comes last: it makes the folder a result.
        file::write_json(&path.join("plan.json"), &head)?;
        Recorder::resume(&path)
    }

    /// Resumes the result at `path`.
    ///
    /// # Errors
    /// Absent, damaged, or in use by another writer.
    pub fn resume(path: &Path) -> Result<Recorder> {
        let folder = ResultFolder::open(path)?;
        let plan = path.join("plan.json");
        let lock = File::open(&plan).map_err(LabError::io(plan.display().to_string()))?;
        lock.try_lock().map_err(|_| {
            LabError::Refused(format!("{}: another process is writing this result", path.display()))
        })?;
        remove_partial(&path.join("runs"))?;
        // Read the runs again: another process may have added some before the lock was taken.
        let folder = ResultFolder { runs: super::run::list(&path.join("runs"))?, ..folder };
        let reserve = Reserve::keep(path)?;
        Ok(Recorder { folder, reserve, _lock: lock })
    }

    /// Adds a run, which is durable on return.
    ///
    /// # Errors
    /// The run exists already, or cannot be written.
    pub fn add(&mut self, measurement: Measurement, samples: Samples) -> Result<()> {
        let (test, target, repeat) = (&measurement.test, &measurement.target, measurement.repeat);
        if self.done(test, target, repeat) {
            return Err(bad(self.path(), format!("{test} on {target}, repeat {repeat}, already exists")));
        }
        let run = Run { measurement, samples };
        let number = self.runs.last().map_or(1, |last| last.number() + 1);
        let entry = Entry::write(&self.path().join("runs"), number, &run)?;
        self.folder.runs.push(entry);
        Ok(())
    }

    /// Records a failed test. Space is reserved so that this works on a full disk.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn fail(&mut self, failure: Failure) -> Result<()> {
        self.reserve.write(|| failure::add(self.path(), failure.clone()))
    }

    /// Writes the derived files: the merged tables, and the summary, which tells whether the result is
    /// complete. May be repeated after more runs.
    ///
    /// # Errors
    /// A run cannot be read, or a file cannot be written.
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
        self.reserve.write(|| file::write_json(&self.path().join("summary.json"), &summary))?;
        if summary.complete {
            self.reserve.release();
        }
        Ok(summary)
    }
}

fn remove_partial(runs: &Path) -> Result<()> {
    let entries = fs::read_dir(runs).map_err(LabError::io(runs.display().to_string()))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PARTIAL) {
            let path = entry.path();
            fs::remove_dir_all(&path).map_err(LabError::io(format!("cannot remove {}", path.display())))?;
        }
    }
    Ok(())
}

fn now_unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
