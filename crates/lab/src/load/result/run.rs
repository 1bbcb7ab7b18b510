//! One run in a result: a measurement with its samples, as a folder that appears atomically.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use serde::{Deserialize, Serialize};

use super::file::{self, Stamp};
use super::table::{Columns, Table};
use super::{SCHEMA, bad, rows};
use crate::load::measurement::Measurement;
use crate::load::samples::{Missing, Samples};
use crate::{LabError, Result};

/// Tables of a run and of a whole result.
pub const TABLES: [(&str, Columns); 3] = [
    ("series.parquet", rows::SERIES),
    ("seconds.parquet", rows::SECONDS),
    ("histograms.parquet", rows::HISTOGRAMS),
];

/// Prefix of incomplete folders.
pub const PARTIAL: &str = ".partial-";

/// A measurement with the samples taken during it.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Figures and streams.
    pub measurement: Measurement,
    /// Samples taken meanwhile.
    pub samples: Samples,
}

/// `measurement.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    schema: String,
    measurement: Measurement,
    missing: Vec<Missing>,
    /// All other files.
    files: BTreeMap<String, Stamp>,
}

/// A run in the result; its tables are read on demand.
#[derive(Debug)]
pub struct Entry {
    path: PathBuf,
    document: Document,
}

pub fn list(folder: &Path) -> Result<Vec<Entry>> {
    let unreadable = || format!("cannot list {}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(LabError::io(unreadable()))? {
        let entry = entry.map_err(LabError::io(unreadable()))?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            paths.push(entry.path());
        }
    }
    // Numbers have leading zeros, so names sort in the order of the runs.
    paths.sort();
    paths.into_iter().map(Entry::open).collect()
}

impl Entry {
    fn open(path: PathBuf) -> Result<Entry> {
        let document: Document = file::read_json(&path.join("measurement.json"))?;
        if document.schema != SCHEMA {
            let what = format!("its schema is {:?}, but this program reads {SCHEMA:?}", document.schema);
            return Err(bad(&path.join("measurement.json"), what));
        }
        Ok(Entry { path, document })
    }

    /// Writes a run into `runs` as number `number`.
    pub fn write(runs: &Path, number: usize, run: &Run) -> Result<Entry> {
        let name = folder_name(number, &run.measurement);
        let (partial, path) = (runs.join(format!("{PARTIAL}{name}")), runs.join(name));
        fs::create_dir(&partial).map_err(LabError::io(format!("cannot create {}", partial.display())))?;
        let mut files = BTreeMap::new();
        for ((name, _), table) in TABLES.iter().zip([rows::series, rows::seconds, rows::histograms]) {
            let mut contents = Vec::new();
            table(run).write(&mut contents).map_err(unreadable(&partial.join(name)))?;
            files.insert((*name).to_owned(), file::write(&partial.join(name), &contents)?);
        }
        let document = Document {
            schema: SCHEMA.into(),
            measurement: without_rows(&run.measurement),
            missing: run.samples.missing.clone(),
            files,
        };
        file::write_json(&partial.join("measurement.json"), &document)?;
        fs::rename(&partial, &path)
            .and_then(|()| file::sync_folder(runs))
            .map_err(LabError::io(format!("cannot create {}", path.display())))?;
        Ok(Entry { path, document })
    }

    pub fn number(&self) -> usize {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    /// Whether it is the run of this test, target and repeat.
    pub fn is(&self, test: &str, target: &str, repeat: u32) -> bool {
        let m = &self.document.measurement;
        m.test == test && m.target == target && m.repeat == repeat
    }

    pub fn read(&self) -> Result<Run> {
        let [series, seconds, histograms] = TABLES.map(|(name, columns)| self.table(name, columns));
        let mut run = Run {
            measurement: self.document.measurement.clone(),
            samples: Samples { missing: self.document.missing.clone(), ..Samples::default() },
        };
        let streams = &mut run.measurement.outcome.streams;
        let senseless = |(name, _): (&str, Columns)| bad(&self.path.join(name), "its rows are inconsistent");
        run.samples.series = rows::series_of(&series?).ok_or_else(|| senseless(TABLES[0]))?;
        rows::put_seconds(&seconds?, streams).ok_or_else(|| senseless(TABLES[1]))?;
        rows::put_histograms(&histograms?, streams, &mut run.samples).ok_or_else(|| senseless(TABLES[2]))?;
        Ok(run)
    }

    /// One of its files, checked to be unchanged.
    pub fn file(&self, name: &str) -> Result<bytes::Bytes> {
        let path = self.path.join(name);
        let stamp =
            self.document.files.get(name).ok_or_else(|| bad(&path, "measurement.json does not list it"))?;
        file::read_stamped(&path, stamp)
    }

    fn table(&self, name: &str, columns: Columns) -> Result<Table> {
        Table::read(self.file(name)?, columns).map_err(unreadable(&self.path.join(name)))
    }
}

pub fn unreadable(path: &Path) -> impl Fn(ParquetError) -> LabError + use<> {
    let path = path.to_owned();
    move |error| bad(&path, error.to_string())
}

/// `0007-randread-4k-tank-2`: only characters that every file system allows; the exact names are inside.
fn folder_name(number: usize, m: &Measurement) -> String {
    let plain = |text: &str| -> String {
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
        text.chars().take(40).map(safe).collect()
    };
    format!("{number:04}-{}-{}-{}", plain(&m.test), plain(&m.target), m.repeat)
}

/// Measurement as stored in JSON. Non-finite figures cannot be stored there; a note names them instead.
fn without_rows(measurement: &Measurement) -> Measurement {
    let mut kept = measurement.clone();
    for stream in &mut kept.outcome.streams {
        stream.latency = Default::default();
        stream.seconds = Vec::new();
    }
    let notes = &mut kept.outcome.notes;
    kept.outcome.others.retain(|figure| {
        let is_number = figure.value.is_finite();
        if !is_number {
            notes.push(format!("{} is not a finite number and was left out", figure.name));
        }
        is_number
    });
    kept
}
