//! Daily SMART records and their trends: one file per disk, with one line of JSON per day.
//!
//! A value's slope is a least-squares fit to the last [`WINDOW_DAYS`] days. A sentence gives its meaning:
//! when a disk's endurance runs out at this rate, or that a disk which reallocates sectors is likely to fail.
//!
//! Files are only appended to; an unreadable line (a power cut during the write) is skipped.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Smart;
use crate::load::machine::date;
use crate::{LabError, Result};

/// Days that trends look back.
pub const WINDOW_DAYS: u64 = 180;
/// Days needed for a credible wear slope: disks report it in whole percents.
const LEAST_DAYS: u64 = 14;
/// Endurance that runs out within this many days is worth mentioning.
const SOON_DAYS: f64 = 730.0;

/// A disk's record for one day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Day {
    /// Days since 1970, UTC.
    pub day: u64,
    /// Date of the day, for readers.
    pub date: String,
    /// SMART record.
    pub smart: Smart,
}

/// Trend of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    /// Name, as in [`Smart::values`].
    pub name: &'static str,
    /// First value in the window.
    pub first: f64,
    /// Last value in the window.
    pub last: f64,
    /// Days between them.
    pub days: u64,
    /// Growth per day.
    pub per_day: f64,
    /// Meaning, if worth mentioning.
    pub meaning: Option<String>,
}

/// The records of disks in a folder.
#[derive(Debug, Clone)]
pub struct History {
    folder: PathBuf,
}

impl History {
    /// Opens the records in `folder`, which is created if necessary.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn open(folder: &Path) -> Result<History> {
        fs::create_dir_all(folder).map_err(LabError::io(folder.display().to_string()))?;
        Ok(History { folder: folder.to_owned() })
    }

    /// Adds a record, unless the disk already has one for that day. Returns whether it was added.
    ///
    /// # Errors
    /// The disk has no serial number, or its file cannot be read or written.
    pub fn record(&self, smart: &Smart, unix_s: u64) -> Result<bool> {
        let path = self.path(&smart.serial)?;
        let day = unix_s / date::DAY_S;
        if self.days(&smart.serial)?.last().is_some_and(|last| last.day >= day) {
            return Ok(false);
        }
        let line = serde_json::to_string(&Day { day, date: date::show(day), smart: smart.clone() });
        let line = line.map_err(|error| LabError::io(path.display().to_string())(error.into()))?;
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(LabError::io(path.display().to_string()))?;
        // One call, with a leading newline, too: the record may follow a partial line.
        file.write_all(format!("\n{line}\n").as_bytes()).map_err(LabError::io(path.display().to_string()))?;
        Ok(true)
    }

    /// All records of a disk, by day.
    ///
    /// # Errors
    /// The file exists but cannot be read.
    pub fn days(&self, serial: &str) -> Result<Vec<Day>> {
        let path = self.path(serial)?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(LabError::io(path.display().to_string())(error)),
        };
        let mut days: Vec<Day> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        days.sort_by_key(|day| day.day);
        Ok(days)
    }

    /// Trends of a disk's values; none with records of fewer than two days.
    ///
    /// # Errors
    /// As for [`History::days`].
    pub fn trends(&self, serial: &str) -> Result<Vec<Trend>> {
        Ok(trends(&self.days(serial)?))
    }

    /// The serial number is the file's name, and must not lead elsewhere.
    fn path(&self, serial: &str) -> Result<PathBuf> {
        let name: String =
            serial.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        if name.is_empty() {
            return Err(LabError::Refused(
                "a disk without a serial number, so its records cannot be identified".into(),
            ));
        }
        Ok(self.folder.join(format!("smart-{name}.jsonl")))
    }
}

/// Trends of values over these days, which are in order.
pub fn trends(days: &[Day]) -> Vec<Trend> {
    let Some(last) = days.last() else { return Vec::new() };
    let window: Vec<&Day> = days.iter().filter(|day| day.day + WINDOW_DAYS >= last.day).collect();
    let trend = |(name, _, now): (&'static str, _, f64)| {
        let value = |day: &&Day| day.smart.values().find(|v| v.0 == name).map(|v| (day.day as f64, v.2));
        let points: Vec<(f64, f64)> = window.iter().filter_map(value).collect();
        let first = points.first().filter(|_| points.len() > 1)?;
        let days = last.day - first.0 as u64;
        let per_day = slope(&points);
        let meaning = meaning(name, first.1, now, days, per_day);
        Some(Trend { name, first: first.1, last: now, days, per_day, meaning })
    };
    last.smart.values().filter_map(trend).collect()
}

/// Least squares; 0 if all points are of one day.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let (mut products, mut squares) = (0.0, 0.0);
    for point in points {
        products += (point.0 - x) * (point.1 - y);
        squares += (point.0 - x).powi(2);
    }
    if squares > 0.0 { products / squares } else { 0.0 }
}

fn meaning(name: &str, first: f64, last: f64, days: u64, per_day: f64) -> Option<String> {
    let grew = last - first;
    match name {
        "wear" if last >= 100.0 => Some("the rated endurance is used up: plan to replace the disk".into()),
        "wear" if days >= LEAST_DAYS && per_day > 0.0 => {
            let left = (100.0 - last) / per_day;
            (left <= SOON_DAYS)
                .then(|| format!("at this rate the rated endurance will be used up in {left:.0} days"))
        }
        "reallocated" if grew > 0.0 => Some(format!(
            "{grew:.0} more sectors reallocated in {days} days: disks that have started to reallocate are \
             several times more likely to fail; have a spare ready"
        )),
        "pending" if last > 0.0 => Some(format!(
            "{last:.0} sectors cannot be read: a scrub rewrites those that hold data; if the number stays or \
             grows, replace the disk"
        )),
        "uncorrectable" if grew > 0.0 => {
            Some(format!("{grew:.0} more uncorrectable errors in {days} days: replace the disk"))
        }
        "link_errors" if grew > 0.0 => {
            Some(format!("{grew:.0} damaged transfers in {days} days: check the cable and backplane first"))
        }
        "spare" if grew < 0.0 => {
            Some(format!("spare blocks fell from {first:.0} to {last:.0} % in {days} days"))
        }
        _ => None,
    }
}
