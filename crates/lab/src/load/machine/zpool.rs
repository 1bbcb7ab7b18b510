//! The programs `zpool` and `zfs`: runs them and parses their reports about pools into plain values.
//!
//! A [`Zpool`] runs this machine's programs, or reads a folder with their recorded output (one file for each
//! [`Question`]; crates/lab/tests/recorded/zfs has such folders). From OpenZFS 2.3 on, `zpool status` prints
//! JSON; the text output of older versions is converted to the same shape, so that one parser suffices.
//!
//! This module changes no pool.

mod counters;
mod dataset;
mod pool;
mod properties;
mod status;
mod vdev;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

pub use counters::{Counters, named};
pub use dataset::{Dataset, DatasetKind};
pub use pool::{PROPERTIES as POOL_PROPERTIES, Pool, Scan};
pub use properties::Properties;
pub use vdev::{Class, Latencies, Vdev, VdevKind};

use crate::load::program;
use crate::{LabError, Result};

/// First OpenZFS version with JSON output.
const JSON_SINCE: (u32, u32) = (2, 3);
/// First version with vdev properties.
const VDEV_PROPERTIES_SINCE: (u32, u32) = (2, 2);

#[derive(Debug, Clone)]
enum Source {
    /// Programs of this machine.
    Programs,
    /// Recorded output, as files.
    Recorded(PathBuf),
}

/// Programs `zpool` and `zfs`.
#[derive(Debug, Clone)]
pub struct Zpool {
    source: Source,
    userland: String,
    kernel: String,
    speaks_json: bool,
}

/// Kinds of histograms in `zpool iostat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Histogram {
    /// Waiting and service times of requests (`-w`).
    Latency,
    /// Sizes of requests (`-r`).
    Size,
}

#[derive(Debug, Clone, Copy)]
enum Question {
    Version,
    Names,
    StatusJson,
    StatusText,
    List,
    Properties,
    VdevProperties,
    Datasets,
    Histogram(Histogram),
    Latencies,
}

impl Question {
    /// Program, its arguments before and after the pool's name, and the recording's file with the answer.
    fn words(self) -> (&'static str, &'static [&'static str], &'static [&'static str], &'static str) {
        match self {
            Question::Version => ("zpool", &["version"], &[], "version.txt"),
            Question::Names => ("zpool", &["list", "-H", "-o", "name"], &[], "list.tsv"),
            Question::StatusJson => ("zpool", &["status", "-j", "--json-int", "-s"], &[], "status.json"),
            Question::StatusText => ("zpool", &["status", "-P", "-p"], &[], "status.txt"),
            Question::List => ("zpool", &["list", "-Hp", "-v", "-o", LIST_COLUMNS], &[], "list.tsv"),
            Question::Properties => ("zpool", &["get", "-Hp", "all"], &[], "pool.tsv"),
            Question::VdevProperties => ("zpool", &["get", "-Hp", "all"], &["all-vdevs"], "vdevs.tsv"),
            Question::Datasets => {
                ("zfs", &["get", "-Hp", "-r", "-t", "filesystem,volume", "all"], &[], "datasets.tsv")
            }
            Question::Latencies => ("zpool", &["iostat", "-Hpvl"], &[], "iostat-vl.tsv"),
            Question::Histogram(Histogram::Latency) => ("zpool", &["iostat", "-wHpv"], &[], "iostat-w.tsv"),
            Question::Histogram(Histogram::Size) => ("zpool", &["iostat", "-rHpv"], &[], "iostat-r.tsv"),
        }
    }
}

/// Columns of `zpool list` that this module reads.
const LIST_COLUMNS: &str =
    "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";

impl Zpool {
    /// Finds the programs of this machine.
    ///
    /// # Errors
    /// Not installed, or the ZFS module is not loaded; the text says which.
    pub fn find() -> Result<Zpool> {
        Zpool::from(Source::Programs)
    }

    /// Opens recorded output in a folder.
    ///
    /// # Errors
    /// The folder has no `version.txt`.
    pub fn recorded(folder: &Path) -> Result<Zpool> {
        Zpool::from(Source::Recorded(folder.to_owned()))
    }

    fn from(source: Source) -> Result<Zpool> {
        let mut zpool = Zpool { source, userland: String::new(), kernel: String::new(), speaks_json: false };
        let text = zpool.ask(Question::Version, "")?;
        for line in text.lines() {
            match line.strip_prefix("zfs-kmod-") {
                Some(version) => version.trim().clone_into(&mut zpool.kernel),
                None => line.trim().trim_start_matches("zfs-").clone_into(&mut zpool.userland),
            }
        }
        zpool.speaks_json = zpool.is_since(JSON_SINCE);
        Ok(zpool)
    }

    /// Version of the programs: `2.3.2-2~bpo12+2`.
    pub fn userland(&self) -> &str {
        &self.userland
    }

    /// Version of the module.
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    fn is_since(&self, (major, minor): (u32, u32)) -> bool {
        let mut numbers = self.userland.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>());
        match (numbers.next(), numbers.next()) {
            (Some(Ok(a)), Some(Ok(b))) => (a, b) >= (major, minor),
            _ => false,
        }
    }

    /// Names of the imported pools.
    ///
    /// # Errors
    /// The program failed.
    pub fn names(&self) -> Result<Vec<String>> {
        let text = self.ask(Question::Names, "")?;
        // A recording has all columns, and its vdevs have a leading tab or a trailing `-`.
        let pools = text.lines().filter(|line| !line.starts_with('\t') && !line.contains(" - "));
        Ok(pools.filter_map(|line| line.split('\t').next()).map(str::to_owned).collect())
    }

    /// A pool with its vdevs and datasets.
    ///
    /// # Errors
    /// No such pool, a program failed, or its output cannot be parsed.
    pub fn pool(&self, name: &str) -> Result<Pool> {
        let status = self.status(name)?;
        let mut pool = Pool::from_status(name, &status);
        pool.add_properties(&Properties::parse(&self.ask(Question::Properties, name)?));
        if self.is_since(VDEV_PROPERTIES_SINCE) {
            // The program complains about cache devices, which have no properties, but prints the rest.
            let properties = Properties::parse(&self.ask(Question::VdevProperties, name)?);
            pool.vdevs.iter_mut().for_each(|vdev| vdev.add_properties(&properties));
        }
        let datasets = Properties::parse(&self.ask(Question::Datasets, name)?);
        pool.datasets =
            datasets.names.iter().filter_map(|name| Dataset::from_properties(name, &datasets)).collect();
        Ok(pool)
    }

    /// A pool's object in `zpool status -j`.
    fn status(&self, name: &str) -> Result<Value> {
        if !self.speaks_json {
            let status = self.ask(Question::StatusText, name)?;
            return Ok(status::from_text(&status, &self.ask(Question::List, name)?));
        }
        let text = self.ask(Question::StatusJson, name)?;
        let unread = |why: String| LabError::Program { program: "zpool".into(), what: why };
        let mut value: Value = serde_json::from_str(&text)
            .map_err(|error| unread(format!("`zpool status -j` printed no JSON: {error}")))?;
        let pool = value.get_mut("pools").and_then(|pools| pools.get_mut(name)).map(Value::take);
        pool.ok_or_else(|| unread(format!("`zpool status -j` does not mention pool {name}")))
    }

    /// Histograms of a pool and its vdevs since the import, as printed by `zpool iostat`.
    ///
    /// # Errors
    /// The program failed.
    pub fn iostat_histogram(&self, pool: &str, histogram: Histogram) -> Result<String> {
        self.ask(Question::Histogram(histogram), pool)
    }

    /// Mean latencies of a pool and its vdevs, as printed by `zpool iostat -l`: since the import, or during
    /// `window` from now on.
    ///
    /// # Errors
    /// The program failed.
    pub fn iostat_latencies(&self, pool: &str, window: Option<Duration>) -> Result<String> {
        let Some(window) = window.filter(|_| !matches!(self.source, Source::Recorded(_))) else {
            return self.ask(Question::Latencies, pool);
        };
        let seconds = format!("{:.3}", window.as_secs_f64());
        let words = ["iostat", "-Hpvly", pool, &seconds, "1"];
        let output = command("zpool")?.args(words).output();
        Ok(String::from_utf8_lossy(&output.map_err(LabError::io("zpool iostat"))?.stdout).into_owned())
    }

    /// Starts a `zpool iostat` that prints the activity of pools and vdevs in each interval, one line each,
    /// with the columns of `-l` and `-q`.
    ///
    /// # Errors
    /// It cannot be started, or this is a recording.
    pub fn follow_iostat(&self, pools: &[String], interval: Duration) -> Result<Child> {
        if !matches!(self.source, Source::Programs) {
            return Err(LabError::Refused("only this machine's programs can be followed".into()));
        }
        command("zpool")?
            .args(["iostat", "-Hpvylq"])
            .args(pools)
            .arg(format!("{:.3}", interval.as_secs_f64()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(LabError::io("zpool iostat"))
    }

    fn ask(&self, question: Question, pool: &str) -> Result<String> {
        let (program, before, after, file) = question.words();
        if let Source::Recorded(folder) = &self.source {
            let path = folder.join(file);
            return fs::read_to_string(&path).map_err(LabError::io(path.display().to_string()));
        }
        let output = command(program)?
            .args(before)
            .args((!pool.is_empty()).then_some(pool))
            .args(after)
            .output()
            .map_err(LabError::io(program))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let partly = matches!(question, Question::VdevProperties) && !said.is_empty();
        if output.status.success() || partly {
            return Ok(said);
        }
        let what = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        Err(LabError::Program { program: program.to_owned(), what })
    }
}

/// Program, in the C locale so that its output can be parsed.
///
/// # Errors
/// Not installed.
pub(crate) fn command(name: &str) -> Result<Command> {
    let path = program::find(&[name]).ok_or_else(|| LabError::Program {
        program: name.to_owned(),
        what: "the OpenZFS programs are not installed (links to Cenote do not count)".to_owned(),
    })?;
    let mut command = Command::new(path);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    Ok(command)
}

#[cfg(test)]
mod tests;
