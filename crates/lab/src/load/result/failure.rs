//! Failed tests: planned and tried, but without a measurement.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::file;
use crate::Result;

/// Their file in a result.
const FILE: &str = "failures.json";

/// A test that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The test.
    pub test: String,
    /// Its target.
    pub target: String,
    /// The number of the repeat, from 1.
    pub repeat: u32,
    /// The error.
    pub error: String,
}

/// The failures of the result at `path`.
pub fn read(path: &Path) -> Result<Vec<Failure>> {
    let path = path.join(FILE);
    if path.exists() { file::read_json(&path) } else { Ok(Vec::new()) }
}

/// Records a failure, replacing an earlier one of the same test, target and repeat.
pub fn add(path: &Path, failure: Failure) -> Result<()> {
    let mut all = read(path)?;
    let same = |other: &Failure| {
        (&other.test, &other.target, other.repeat) == (&failure.test, &failure.target, failure.repeat)
    };
    all.retain(|other| !same(other));
    all.push(failure);
    file::write_json(&path.join(FILE), &all)
}
