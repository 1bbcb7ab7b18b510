//! The limit of a run, argued from utilisation and Little's law.
//!
//! ```text
//! one resource saturated ───────────────> it is the limit; the queue in front of it is a consequence
//! several saturated ────────────────────> all of them: relieving one gains little
//! none, as many in flight as allowed ───> latency x concurrency: more in flight would be faster
//! none, fewer in flight than allowed ───> the submitter: its own processor, a rate, time in fsync
//! ```
//!
//! Each resource gets a part with its numbers ([`parts`]); [`Limits::verdict`] is the conclusion. A resource
//! not sampled is named and never counts as free. Other processes' processor time is never the work's limit.

mod parts;

use serde::{Deserialize, Serialize};

use super::cache::{Cache, HitRate};
use super::observed::Observed;
use super::{Finding, Severity};
use crate::unit::{Unit, digits};

/// Utilisation from which a resource counts as saturated; the rest is headers, gaps and variation
/// within the run.
pub const FULL: f64 = 0.85;
/// A link that carried less than this share of the workload's bytes was not on the data path.
pub const IN_THE_PATH: f64 = 0.3;
/// From this share of reads on, a cache decides the figure.
const CACHED: f64 = 0.9;

/// Resource that may limit a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// A link.
    Network,
    /// A disk.
    Disk,
    /// All processors.
    Cpu,
    /// One processor, while others are idle.
    Core,
    /// Latency of an operation times the number in flight.
    Concurrency,
    /// Time until data are durable.
    SyncLatency,
    /// Program that submits the operations.
    Submitter,
    /// A deliberate limit: a rate or think time.
    Throttle,
}

/// Role of a resource in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The limit.
    Limit,
    /// Perhaps the limit, at times.
    Possible,
    /// Had spare capacity.
    Free,
    /// Not sampled.
    Unknown,
}

/// One resource's part in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The resource.
    pub resource: Resource,
    /// Role in the run.
    pub role: Role,
    /// Utilisation from 0 to 1, where known.
    pub used: Option<f64>,
    /// Argument with its numbers.
    pub argument: String,
}

/// Limits of one test on one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Name of the test.
    pub test: String,
    /// Name of the target.
    pub target: String,
    /// Observations behind the conclusion.
    pub observed: Observed,
    /// All resources, limits first.
    pub parts: Vec<Part>,
    /// Set if most reads came from memory: the figures are the cache's.
    pub cached: Option<HitRate>,
}

impl Limits {
    /// Argues from the observations.
    pub fn of(observed: Observed, hit_rates: &[HitRate]) -> Limits {
        let o = &observed;
        let mut parts = parts::of(o);
        parts.sort_by_key(|part| part.role as u8);
        let reads_matter = o.read_bandwidth > o.bandwidth / 2.0;
        let decides = |h: &&HitRate| reads_matter && h.cache != Cache::L2arc && h.rate >= CACHED;
        let cached = hit_rates.iter().find(decides).copied();
        Limits { test: o.test.clone(), target: o.target.clone(), cached, parts, observed }
    }

    /// The limits: none if unknown, several if saturated at once.
    pub fn limited_by(&self) -> Vec<&Part> {
        self.parts.iter().filter(|part| part.role == Role::Limit).collect()
    }

    /// Limit, if exactly one.
    pub fn limit(&self) -> Option<&Part> {
        match self.limited_by().as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Conclusion in one statement.
    pub fn verdict(&self) -> String {
        let limits = self.limited_by();
        match limits.as_slice() {
            [] if self.observed.cpu.is_some_and(|cpu| cpu.is_crowded()) => {
                "the limit is unknown: other work used much of the processor time.".into()
            }
            [] => "the limit is unknown: the samples do not show it.".into(),
            [only] => only.argument.clone(),
            several => {
                let names: Vec<&str> = several.iter().map(|part| part.resource.name()).collect();
                let numbers: Vec<&str> = several.iter().map(|part| part.argument.as_str()).collect();
                format!(
                    "No single resource is the limit: {} were saturated at once, so relieving one alone \
                     would gain little. {}",
                    names.join(" and "),
                    numbers.join(" ")
                )
            }
        }
    }

    /// Conclusion and its arguments as findings.
    pub fn findings(&self) -> Vec<Finding> {
        let place = |finding: Finding| finding.of_test(&self.test).of_target(&self.target);
        let arguments = |role: Role| -> Vec<&str> {
            self.parts.iter().filter(|p| p.role == role).map(|p| p.argument.as_str()).collect()
        };
        let others: Vec<&str> = [Role::Possible, Role::Free].into_iter().flat_map(arguments).collect();
        let mut findings = Vec::new();
        let id = match self.limited_by().as_slice() {
            [] => "limit.unknown",
            [only] => only.resource.id(),
            _ => "limit.several",
        };
        let mut sentence = format!("{} on {}: {}", self.test, self.target, self.verdict());
        if !others.is_empty() {
            sentence = format!("{sentence} Also: {}", others.join(" "));
        }
        let unknown: Vec<&str> =
            self.parts.iter().filter(|p| p.role == Role::Unknown).map(|p| p.resource.name()).collect();
        if !unknown.is_empty() {
            sentence = format!("{sentence} Not sampled, or idle: {}.", unknown.join(", "));
        }
        let mut finding = Finding::new(id, Severity::Info, sentence);
        for part in &self.parts {
            if let Some(used) = part.used {
                finding = finding.with(format!("{} used", part.resource.name()), used * 100.0, Unit::Percent);
            }
        }
        if let (Some(in_flight), Some(latency)) = (self.observed.in_flight(), self.observed.latency_ns) {
            finding = finding
                .with("operations in flight", in_flight, Unit::Number)
                .with("mean latency", latency, Unit::Nanoseconds)
                .with("operations per second", self.observed.iops, Unit::PerSecond);
        }
        findings.push(place(finding));
        if let Some(hit) = self.cached {
            let sentence = format!(
                "{} on {}: {} % of the reads came from the {}, so these figures show the cache, not the \
                 disks. A data set that does not fit in it would be far slower.",
                self.test,
                self.target,
                digits(hit.rate * 100.0),
                hit.cache.name()
            );
            let finding = Finding::new("limit.cached", Severity::Notice, sentence);
            findings.push(place(finding.with("hit rate", hit.rate * 100.0, Unit::Percent)));
        }
        findings
    }
}

impl Resource {
    /// Name within a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Network => "network",
            Resource::Disk => "busiest disk",
            Resource::Cpu => "processors",
            Resource::Core => "busiest processor",
            Resource::Concurrency | Resource::Submitter => "allowed depth",
            Resource::SyncLatency => "time in fsync",
            Resource::Throttle => "rate",
        }
    }

    fn id(self) -> &'static str {
        match self {
            Resource::Network => "limit.network",
            Resource::Disk => "limit.disk",
            Resource::Cpu => "limit.cpu",
            Resource::Core => "limit.core",
            Resource::Concurrency => "limit.concurrency",
            Resource::SyncLatency => "limit.sync",
            Resource::Submitter => "limit.submitter",
            Resource::Throttle => "limit.throttle",
        }
    }
}
