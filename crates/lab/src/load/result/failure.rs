//! Failed tests: planned and tried, but without a measurement.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::file;
use crate::Result;

const FILE: &str = "failures.json";

/// A failed test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Name of the test.
    pub test: String,
    /// Name of the target.
    pub target: String,
    /// Repeat, from 1.
    pub repeat: u32,
    /// Error message.
    pub error: String,
}

/// Failures of the result at `path`.
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
