//! Rules and their findings.

use serde::Serialize;

use crate::advice::facts::Facts;
use crate::advice::item::{Evidence, Gauge, Remedy, Risk, Severity};

/// A check with its reason and sources.
#[derive(Debug, Serialize)]
pub struct Rule {
    /// Id, stable across versions.
    pub id: &'static str,
    /// Problem it detects, in one sentence.
    pub about: &'static str,
    /// Why the problem matters.
    pub reason: &'static str,
    /// Documentation or measurements.
    pub sources: &'static [&'static str],
    #[serde(skip)]
    pub(crate) check: fn(&Facts) -> Vec<Finding>,
}

#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) subject: String,
    pub(crate) gauge: Option<Gauge>,
    pub(crate) verdict: Verdict,
}

#[derive(Debug)]
pub(crate) enum Verdict {
    Fine,
    /// Reason.
    Unknown(String),
    Bad(Problem),
}

/// A problem and its remedy.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    pub(crate) summary: String,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) remedy: Remedy,
}

impl Finding {
    pub(super) fn fine(subject: impl Into<String>) -> Finding {
        Finding { subject: subject.into(), gauge: None, verdict: Verdict::Fine }
    }

    pub(super) fn unknown(subject: impl Into<String>, why: impl Into<String>) -> Finding {
        Finding { subject: subject.into(), gauge: None, verdict: Verdict::Unknown(why.into()) }
    }

    pub(super) fn bad(subject: impl Into<String>, problem: Problem) -> Finding {
        Finding { subject: subject.into(), gauge: None, verdict: Verdict::Bad(problem) }
    }

    /// Verdict by the gauge: bad or fine.
    pub(super) fn measured(
        subject: impl Into<String>,
        gauge: Gauge,
        problem: impl FnOnce() -> Problem,
    ) -> Finding {
        let verdict = if gauge.bad() { Verdict::Bad(problem()) } else { Verdict::Fine };
        Finding { subject: subject.into(), gauge: Some(gauge), verdict }
    }
}

pub(super) fn remedy(commands: &[String], risk: Risk, caution: &str) -> Remedy {
    Remedy { commands: commands.to_vec(), risk, caution: caution.to_owned() }
}
