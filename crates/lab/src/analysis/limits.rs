//! What limited a run, argued from utilisation and from Little's law.
//!
//! ```text
//! a resource at its capacity ──────────────────> it is the limit; the queue before it is a consequence
//! none, and as many in flight as allowed ──────> latency x concurrency is: more in flight, or shorter waits, would give more
//! none, and fewer in flight than allowed ──────> whoever submits is: its own processor, a rate, time in fsync
//! ```
//! Each resource gets a verdict with its numbers, and those that were not sampled are named: what is not known does not count as free.

use serde::{Deserialize, Serialize};

use super::cache::{Cache, HitRate};
use super::observed::Observed;
use super::{Finding, Severity};
use crate::unit::{Unit, digits};

/// Above this part of its capacity a resource is full: the rest is headers, gaps and what the mean over the run hides.
pub const FULL: f64 = 0.85;
/// Above this it may have been full at times.
const NEARLY: f64 = 0.6;
/// So much of the allowed depth in flight is all of it.
const DEPTH_REACHED: f64 = 0.8;
/// A core is full at this: the scheduler moves work about.
const CORE_FULL: f64 = 0.95;
/// A link that carried less than this part of what the workload moved was not on its way.
pub const IN_THE_PATH: f64 = 0.3;
/// Caches that had so much of the reads decide the figure.
const CACHED: f64 = 0.9;

/// What may limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// A link.
    Network,
    /// A disk.
    Disk,
    /// All processors.
    Cpu,
    /// One processor, with others free.
    Core,
    /// Latency of one operation times how many are in flight.
    Concurrency,
    /// Time until data are durable.
    SyncLatency,
    /// Who submits the operations.
    Submitter,
    /// On purpose: a rate, a think time.
    Throttle,
}

/// Whether it limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It did.
    Limit,
    /// It may have, at times.
    Possible,
    /// It had room.
    Free,
    /// It was not sampled.
    Unknown,
}

/// One resource's part in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Which.
    pub resource: Resource,
    /// Whether it limited.
    pub role: Role,
    /// Used part of its capacity, from 0 to 1, where that can be said.
    pub used: Option<f64>,
    /// The argument, with its numbers.
    pub argument: String,
}

/// What limited one test on one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The test.
    pub test: String,
    /// The target.
    pub target: String,
    /// What it is concluded from.
    pub observed: Observed,
    /// All resources, those that limited first.
    pub parts: Vec<Part>,
    /// Reads came from memory mostly: the figures are the cache's.
    pub cached: Option<HitRate>,
}

impl Limits {
    /// Argues from what was observed.
    pub fn of(observed: Observed, hit_rates: &[HitRate]) -> Limits {
        let o = &observed;
        let mut parts = vec![network(o), disk(o), cpu(o)];
        parts.extend(core(o));
        parts.extend(sync(o));
        let last = if o.throttled { Some(throttle()) } else { concurrency(o, &parts) };
        parts.extend(last);
        parts.sort_by_key(|part| part.role as u8);
        let reads_matter = o.read_bandwidth > o.bandwidth / 2.0;
        let decides = |h: &&HitRate| reads_matter && h.cache != Cache::L2arc && h.rate >= CACHED;
        let cached = hit_rates.iter().find(decides).copied();
        Limits { test: o.test.clone(), target: o.target.clone(), cached, parts, observed }
    }

    /// What limited, if that can be said.
    pub fn limit(&self) -> Option<&Part> {
        self.parts.iter().find(|part| part.role == Role::Limit)
    }

    /// All of it as findings.
    pub fn findings(&self) -> Vec<Finding> {
        let place = |finding: Finding| finding.of_test(&self.test).of_target(&self.target);
        let head = format!("{} on {}: ", self.test, self.target);
        let arguments = |role: Role| -> Vec<&str> {
            self.parts.iter().filter(|p| p.role == role).map(|p| p.argument.as_str()).collect()
        };
        let others: Vec<&str> = [Role::Possible, Role::Free].into_iter().flat_map(arguments).collect();
        let mut findings = Vec::new();
        let (id, severity, mut sentence) = match self.limit() {
            Some(limit) => (limit.resource.id(), Severity::Info, head + &arguments(Role::Limit).join(" ")),
            None => (
                "limit.unknown",
                Severity::Info,
                head + "what limited it can't be said from what was sampled.",
            ),
        };
        if !others.is_empty() {
            sentence = format!("{sentence} Besides: {}", others.join(" "));
        }
        let unknown: Vec<&str> =
            self.parts.iter().filter(|p| p.role == Role::Unknown).map(|p| p.resource.name()).collect();
        if !unknown.is_empty() {
            sentence = format!("{sentence} Not sampled, or idle: {}.", unknown.join(", "));
        }
        let mut finding = Finding::new(id, severity, sentence);
        for part in &self.parts {
            if let Some(used) = part.used {
                finding = finding.with(format!("{} used", part.resource.name()), used * 100.0, Unit::Percent);
            }
        }
        if let (Some(in_flight), Some(latency)) = (self.observed.in_flight(), self.observed.latency_ns) {
            finding = finding
                .with("operations in flight", in_flight, Unit::Number)
                .with("mean latency", latency, Unit::Nanoseconds)
                .with("operations a second", self.observed.iops, Unit::PerSecond);
        }
        findings.push(place(finding));
        if let Some(hit) = self.cached {
            let sentence = format!(
                "{} on {}: {} % of the reads came from the {}: these figures are the cache's, not the disks'. A data set that does not fit \
                 would be far slower.",
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

fn role(used: f64, full: f64) -> Role {
    match used {
        used if used >= full => Role::Limit,
        used if used >= NEARLY => Role::Possible,
        _ => Role::Free,
    }
}

/// `36 %`.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn unknown(resource: Resource, why: &str) -> Part {
    Part { resource, role: Role::Unknown, used: None, argument: why.into() }
}

fn network(o: &Observed) -> Part {
    let busiest = o.links.iter().max_by(|a, b| (a.bandwidth / a.speed).total_cmp(&(b.bandwidth / b.speed)));
    let Some(link) = busiest else {
        return unknown(Resource::Network, "No link with a known speed carried anything.");
    };
    let used = link.bandwidth / link.speed;
    let role = role(used, FULL);
    if role == Role::Free && link.bandwidth < IN_THE_PATH * o.bandwidth {
        let argument = "The data did not go over the network.".into();
        return Part { resource: Resource::Network, role, used: Some(used), argument };
    }
    let numbers = format!(
        "{} carried {} of {} ({})",
        link.name,
        Unit::BytesPerSecond.show(link.bandwidth),
        Unit::BytesPerSecond.show(link.speed),
        percent(used)
    );
    let argument = match role {
        Role::Limit => format!("The network is the limit: {numbers}; headers take most of the rest."),
        Role::Possible => format!("The network may have been full at times: {numbers} in the mean."),
        _ => format!("The network is not the limit: {numbers}."),
    };
    Part { resource: Resource::Network, role, used: Some(used), argument }
}

fn disk(o: &Observed) -> Part {
    let Some(disk) = o.disks.iter().max_by(|a, b| a.busy.total_cmp(&b.busy)) else {
        return unknown(Resource::Disk, "The disks' counters were not sampled, or no disk did anything.");
    };
    let is_parallel = disk.rotates != Some(true);
    let full = role(disk.busy, FULL);
    // Busy tells that a solid-state disk had one operation; only a queue that stays tells that it was full.
    let role = if full == Role::Limit && is_parallel && disk.in_flight < 8.0 { Role::Possible } else { full };
    let numbers = format!(
        "{}, the busiest of {}, had work {} of the time ({} operations in flight, {}, {})",
        disk.name,
        o.disks.len(),
        percent(disk.busy),
        digits(disk.in_flight),
        Unit::PerSecond.show(disk.iops),
        Unit::BytesPerSecond.show(disk.bandwidth)
    );
    let argument = match role {
        Role::Limit => format!("The disks are the limit: {numbers}."),
        Role::Possible if is_parallel && full == Role::Limit => format!(
            "The disks may be the limit: {numbers}; a solid-state disk that always has work may still take more at once."
        ),
        Role::Possible => format!("The disks may have been full at times: {numbers}."),
        _ => format!("The disks are not the limit: {numbers}."),
    };
    Part { resource: Resource::Disk, role, used: Some(disk.busy), argument }
}

fn cpu(o: &Observed) -> Part {
    let Some(used) = o.cpu else {
        return unknown(Resource::Cpu, "Processor time was not sampled.");
    };
    let role = role(used, FULL);
    let mut numbers = format!("all processors together were busy {} of the time", percent(used));
    if let Some(iowait) = o.iowait {
        numbers = format!("{numbers}, and {} idle with I/O outstanding", percent(iowait));
    }
    if let Some(pressure) = o.io_pressure {
        numbers = format!("{numbers}; some task waited for I/O {} of the time", percent(pressure));
    }
    let argument = match role {
        Role::Limit => format!("The processors are the limit: {numbers}."),
        Role::Possible => format!("The processors may have been full at times: {numbers}."),
        _ => format!("The processors are not the limit: {numbers}."),
    };
    Part { resource: Resource::Cpu, role, used: Some(used), argument }
}

/// One full core limits what one thread does, however many others are idle.
fn core(o: &Observed) -> Option<Part> {
    let (used, all) = (o.busiest_cpu?, o.cpu?);
    if used < CORE_FULL || all >= FULL {
        return None;
    }
    let argument = format!(
        "One processor was busy {} of the time while all together were {}: a single thread is the limit, and more processors would not help it.",
        percent(used),
        percent(all)
    );
    Some(Part { resource: Resource::Core, role: Role::Limit, used: Some(used), argument })
}

fn sync(o: &Observed) -> Option<Part> {
    let used = o.sync_share?;
    let role = if used >= 0.5 { Role::Limit } else { role(used, 0.5) };
    let numbers = format!("the workers spent {} of their time in fsync or fdatasync", percent(used));
    let argument = match role {
        Role::Limit => format!(
            "Waiting for data to be durable is the limit: {numbers}. A faster log device (SLOG) shortens just that."
        ),
        _ => format!("Waiting for data to be durable is not the limit: {numbers}."),
    };
    Some(Part { resource: Resource::SyncLatency, role, used: Some(used), argument })
}

fn throttle() -> Part {
    let argument = "The workload itself is the limit: it holds a rate or pauses on purpose.".into();
    Part { resource: Resource::Throttle, role: Role::Limit, used: None, argument }
}

/// Little's law: whether as many operations were in flight as the workload allows, and whether that says what limited it. `others` are
/// the verdicts on everything else.
fn concurrency(o: &Observed, others: &[Part]) -> Option<Part> {
    let (in_flight, depth) = (o.in_flight()?, o.depth.filter(|depth| *depth > 0.0)?);
    let used = in_flight / depth;
    let law = format!(
        "{} at {} each are {in_flight:.1} in flight (Little's law), of {depth:.0} allowed",
        Unit::PerSecond.show(o.iops),
        Unit::Nanoseconds.show(o.latency_ns?),
    );
    let is = |role: Role| others.iter().any(|part| part.role == role);
    let unseen = |part: &Part| part.role == Role::Unknown && part.resource != Resource::Network;
    let part = |resource, role, argument| Some(Part { resource, role, used: Some(used), argument });
    if used < DEPTH_REACHED {
        let argument = format!(
            "{law}: the queue was not kept full, so who submits may be the limit, and not the storage."
        );
        let role = if is(Role::Limit) { Role::Free } else { Role::Possible };
        return part(Resource::Submitter, role, argument);
    }
    let (role, argument) = if is(Role::Limit) {
        (Role::Free, format!("{law}: the queue is full, as it must be before a full resource."))
    } else if o.sync_writes {
        let what = "Waiting for data to be durable is the limit: each write returns only then";
        let argument = format!("{what} ({law}). A faster log device (SLOG) shortens just that.");
        return part(Resource::SyncLatency, Role::Limit, argument);
    } else if depth <= 1.0 {
        let what =
            "One operation at a time is the limit: each waits for the one before, so speed is one by latency";
        (
            Role::Limit,
            format!(
                "{what} ({law}). A shorter way for each, or more at once as far as the devices bear it, would give more."
            ),
        )
    } else if others.iter().any(unseen) || is(Role::Possible) {
        let what = "the queue was kept full, but whether more in flight would give more can't be said while it is not known that disks and \
                    processors had room";
        (Role::Possible, format!("{law}: {what}."))
    } else {
        let what = "all of them, and neither disks nor processors were full. More in flight, or a shorter way for each, would give more";
        (Role::Limit, format!("Latency times concurrency is the limit: {law}, {what}."))
    };
    part(Resource::Concurrency, role, argument)
}

impl Resource {
    /// Its name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Network => "network",
            Resource::Disk => "busiest disk",
            Resource::Cpu => "processors",
            Resource::Core => "busiest processor",
            Resource::Concurrency | Resource::Submitter => "allowed depth",
            Resource::SyncLatency => "time for syncs",
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
