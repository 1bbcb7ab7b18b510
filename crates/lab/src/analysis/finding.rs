//! Findings: conclusions of the analysis, as values that reports put into words and advice builds on.

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// Importance of a finding.
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

/// Number that a finding rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Name of the number.
    pub name: String,
    /// Value in `unit`.
    pub value: f64,
    /// Unit of `value`.
    pub unit: Unit,
}

/// One conclusion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Kind of finding: `repeats.unstable`, `latency.bimodal`, `limit.network`, `fill.cliff`...
    pub id: String,
    /// Importance.
    pub severity: Severity,
    /// Test concerned; None for all.
    pub test: Option<String>,
    /// Target concerned; None for all.
    pub target: Option<String>,
    /// Finding and argument, in full sentences.
    pub sentence: String,
    /// Numbers of the argument.
    pub evidence: Vec<Evidence>,
}

impl Finding {
    /// Finding about all tests and targets.
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

    /// Adds evidence.
    pub fn with(mut self, name: impl Into<String>, value: f64, unit: Unit) -> Finding {
        self.evidence.push(Evidence { name: name.into(), value, unit });
        self
    }
}
