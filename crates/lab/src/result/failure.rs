//! Tests that failed: what was planned, was tried, and gave no measurement.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::file;
use crate::Result;

/// Where they are kept in a result.
const FILE: &str = "failures.json";

/// A test that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The test.
    pub test: String,
    /// On which target.
    pub target: String,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// Why.
    pub error: String,
}

/// Those of the result at `path`.
pub fn read(path: &Path) -> Result<Vec<Failure>> {
    let path = path.join(FILE);
    if path.exists() { file::read_json(&path) } else { Ok(Vec::new()) }
}

/// Notes one; a former one of the same test, target and repeat goes.
pub fn add(path: &Path, failure: Failure) -> Result<()> {
    let mut all = read(path)?;
    let same = |other: &Failure| {
        (&other.test, &other.target, other.repeat) == (&failure.test, &failure.target, failure.repeat)
    };
    all.retain(|other| !same(other));
    all.push(failure);
    file::write_json(&path.join(FILE), &all)
}
