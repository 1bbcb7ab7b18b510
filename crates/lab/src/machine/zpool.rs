//! The programs `zpool` and `zfs`: how they are asked, in one place; and what they know of pools, as plain values.
//!
//! A [`Zpool`] asks the programs of this machine, or a folder in which somebody recorded what they said (each [`Question`] has
//! its file there; crates/lab/tests/recorded/zfs has such folders). From OpenZFS 2.3 on `zpool status` is asked for JSON; what
//! older ones print for people is brought into the same shape, so that there is one reader.
//!
//! Nothing here changes a pool.

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
pub use pool::{Pool, Scan};
pub use properties::Properties;
pub use vdev::{Class, Latencies, Vdev, VdevKind};

use crate::{LabError, Result, program};

/// The first OpenZFS that speaks JSON.
const JSON_SINCE: (u32, u32) = (2, 3);
/// The first whose vdevs have properties.
const VDEV_PROPERTIES_SINCE: (u32, u32) = (2, 2);

/// Whom to ask.
#[derive(Debug, Clone)]
enum Source {
    /// The programs of this machine.
    Programs,
    /// What they said, as files.
    Recorded(PathBuf),
}

/// The programs `zpool` and `zfs`.
#[derive(Debug, Clone)]
pub struct Zpool {
    source: Source,
    userland: String,
    kernel: String,
    speaks_json: bool,
}

/// Which histograms of `zpool iostat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Histogram {
    /// How long requests waited and took (`-w`).
    Latency,
    /// How large they were (`-r`).
    Size,
}

/// What can be asked.
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
    /// The program, its words before and after the pool's name, and the file in which a recording has the answer.
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
    /// The programs of this machine.
    ///
    /// # Errors
    /// They are not installed, or the ZFS module is not loaded; the text says which.
    pub fn find() -> Result<Zpool> {
        Zpool::from(Source::Programs)
    }

    /// What the programs said, from a folder.
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
        // A recording has columns, and vdevs with a tab in front or `-` behind.
        let pools = text.lines().filter(|line| !line.starts_with('\t') && !line.contains(" - "));
        Ok(pools.filter_map(|line| line.split('\t').next()).map(str::to_owned).collect())
    }

    /// All about a pool, its vdevs and datasets.
    ///
    /// # Errors
    /// There is none of that name, or a program failed or said what can't be read.
    pub fn pool(&self, name: &str) -> Result<Pool> {
        let status = self.status(name)?;
        let mut pool = Pool::from_status(name, &status);
        pool.add_properties(&Properties::parse(&self.ask(Question::Properties, name)?));
        if self.is_since(VDEV_PROPERTIES_SINCE) {
            // It complains of cache devices, which have no properties, and says the rest.
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
            .map_err(|error| unread(format!("`zpool status -j` gave no JSON: {error}")))?;
        let pool = value.get_mut("pools").and_then(|pools| pools.get_mut(name)).map(Value::take);
        pool.ok_or_else(|| unread(format!("`zpool status -j` says nothing of pool {name}")))
    }

    /// Histograms of a pool and its vdevs since the import, as `zpool iostat` prints them.
    ///
    /// # Errors
    /// The program failed.
    pub fn iostat_histogram(&self, pool: &str, histogram: Histogram) -> Result<String> {
        self.ask(Question::Histogram(histogram), pool)
    }

    /// Mean latencies of a pool and its vdevs, as `zpool iostat -l` prints them: since the import, or of `window` from now on.
    ///
    /// # Errors
    /// The program failed.
    pub fn iostat_latencies(&self, pool: &str, window: Option<Duration>) -> Result<String> {
        let Some(window) = window.filter(|_| matches!(self.source, Source::Programs)) else {
            return self.ask(Question::Latencies, pool);
        };
        let seconds = format!("{:.3}", window.as_secs_f64());
        let output = command("zpool")?.args(["iostat", "-Hpvly", pool, &seconds, "1"]).output();
        Ok(String::from_utf8_lossy(&output.map_err(LabError::io("zpool iostat"))?.stdout).into_owned())
    }

    /// Starts a `zpool iostat` that says each interval what pools and their vdevs did in it: a line each, with the columns of
    /// `-l` and `-q`.
    ///
    /// # Errors
    /// It can't be started, or this is a recording.
    pub fn follow_iostat(&self, pools: &[String], interval: Duration) -> Result<Child> {
        if let Source::Recorded(folder) = &self.source {
            return Err(LabError::Refused(format!("{}: a recording does not go on", folder.display())));
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

/// The program, untranslated, so that what it says can be read.
///
/// # Errors
/// It is not installed.
pub(crate) fn command(name: &str) -> Result<Command> {
    let path = program::find(&[name]).ok_or_else(|| LabError::Program {
        program: name.to_owned(),
        what: "OpenZFS is not installed".to_owned(),
    })?;
    let mut command = Command::new(path);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    Ok(command)
}

#[cfg(test)]
mod tests;
