//! The rules: what each looks for, why it matters, where that is written. What a rule looks at is in the module of its kind.

mod cache;
mod datasets;
mod disks;
mod health;
mod layout;
mod log;
mod raidz;
mod smart;
mod space;
mod special;
mod workers;

use serde::Serialize;

use super::{Evidence, Facts, Gauge, Remedy, Risk, Severity};

/// A rule.
#[derive(Debug, Serialize)]
pub struct Rule {
    /// Its name, which stays the same from version to version.
    pub id: &'static str,
    /// What it looks for, in one sentence.
    pub about: &'static str,
    /// Why that matters.
    pub reason: &'static str,
    /// Where that is written, or who measured it.
    pub sources: &'static [&'static str],
    /// What it finds.
    #[serde(skip)]
    pub(super) check: fn(&Facts) -> Vec<Finding>,
}

/// What a rule finds of one thing.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) subject: String,
    pub(super) gauge: Option<Gauge>,
    pub(super) verdict: Verdict,
}

/// One of three.
#[derive(Debug)]
pub(super) enum Verdict {
    Fine,
    /// Why it can't be told.
    Unknown(String),
    Bad(Problem),
}

/// What is wrong, and what to do.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) severity: Severity,
    pub(super) summary: String,
    pub(super) evidence: Vec<Evidence>,
    pub(super) remedy: Remedy,
}

impl Finding {
    fn fine(subject: impl Into<String>) -> Finding {
        Finding { subject: subject.into(), gauge: None, verdict: Verdict::Fine }
    }

    fn unknown(subject: impl Into<String>, why: impl Into<String>) -> Finding {
        Finding { subject: subject.into(), gauge: None, verdict: Verdict::Unknown(why.into()) }
    }

    fn bad(subject: impl Into<String>, problem: Problem) -> Finding {
        Finding { subject: subject.into(), gauge: None, verdict: Verdict::Bad(problem) }
    }

    /// Bad or fine as the gauge says.
    fn measured(subject: impl Into<String>, gauge: Gauge, problem: impl FnOnce() -> Problem) -> Finding {
        let verdict = if gauge.bad() { Verdict::Bad(problem()) } else { Verdict::Fine };
        Finding { subject: subject.into(), gauge: Some(gauge), verdict }
    }
}

fn remedy(commands: &[String], risk: Risk, caution: &str) -> Remedy {
    Remedy { commands: commands.to_vec(), risk, caution: caution.to_owned() }
}

/// All of them.
pub const RULES: &[Rule] = &[
    health::DEGRADED,
    special::SPECIAL_LESS_REDUNDANT,
    special::SPECIAL_FULL,
    space::FILL_90,
    space::FILL_80,
    space::FRAGMENTATION,
    health::UNSCRUBBED,
    smart::SMART_TREND,
    disks::SLOW_DISK,
    layout::ASHIFT,
    layout::MIXED_VDEVS,
    raidz::RAIDZ_PADDING,
    datasets::RECORDSIZE_IO_SIZE,
    log::SYNC_WITHOUT_SLOG,
    log::SLOG_UNMIRRORED,
    log::SLOG_UNUSED,
    cache::ARC_SMALL_FOR_METADATA,
    cache::L2ARC_HIT_RATE,
    cache::L2ARC_HEADERS,
    workers::PARALLEL_WORKERS,
];
