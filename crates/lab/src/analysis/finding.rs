//! Findings: what the analysis concludes, as values that reports put into words and advice builds
//! on.

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Changes the conclusions, or shows a weak spot.
    Notice,
    /// Something is wrong with the storage or the measurement.
    Warning,
}

/// A number that a finding rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
}

/// One conclusion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What kind of finding: `repeats.unstable`, `latency.bimodal`, `limit.network`, `fill.cliff`...
    pub id: String,
    /// How much it matters.
    pub severity: Severity,
    /// Its test; None if it concerns all.
    pub test: Option<String>,
    /// Its target; None if it concerns all.
    pub target: Option<String>,
    /// The finding and its argument, in full sentences.
    pub sentence: String,
    /// The numbers of the argument.
    pub evidence: Vec<Evidence>,
}

impl Finding {
    /// A finding that concerns everything.
    pub fn new(id: &str, severity: Severity, sentence: impl Into<String>) -> Finding {
        Finding {
            id: id.into(),
            severity,
            test: None,
            target: None,
            sentence: sentence.into(),
            evidence: Vec::new(),
        }
    }

    /// Sets the test.
    pub fn of_test(mut self, test: &str) -> Finding {
        self.test = Some(test.into());
        self
    }

    /// Sets the target.
    pub fn of_target(mut self, target: &str) -> Finding {
        self.target = Some(target.into());
        self
    }

    /// Adds a number.
    pub fn with(mut self, name: impl Into<String>, value: f64, unit: Unit) -> Finding {
        self.evidence.push(Evidence { name: name.into(), value, unit });
        self
    }
}
