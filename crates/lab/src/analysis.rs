//! Analysis: from a result to findings, argued as a careful engineer would.
//!
//! Each part answers one question. It returns typed values with the numbers behind them, and
//! [`Finding`]s of a sentence each:
//! - [`quiet`]: did the machine do other work meanwhile?
//! - [`stability`]: do the repeats agree, and was the run in a steady state?
//! - [`compare`]: which target is faster, by how much, and do the data support it?
//! - [`latency`]: were there several kinds of operations, and do the caches explain them?
//! - [`limits`]: what limited a run, by utilisation and Little's law?
//! - [`project`]: how fast would it be with another link or disk?
//! - [`fill`]: is there a fill level where speed collapses?
//! - [`recovery`]: how do layouts, fills and ways of recovery compare?
//!
//! [`analyse_runs`] does all of them, with at most one run's samples in memory. It is deterministic and reads
//! no clock. [`report`] presents the findings, with plots and advice.

mod across;
mod cache;
mod compare;
mod fill;
mod finding;
mod latency;
mod limits;
mod observed;
mod plot;
mod processors;
mod project;
mod quiet;
mod recovery;
pub mod report;
mod results;
mod setting;
mod shared;
mod stability;
mod standing;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use across::{compare_targets, fill_against_speed};
pub use cache::{Cache, HitRate, hit_rates};
#[cfg(test)]
pub use compare::compare;
pub use compare::{Comparison, FigureKind, Side, Verdict};
pub use fill::{Cliff, FillPoint, Found, NoCliff, cliff};
pub use finding::{Evidence, Finding, Severity};
pub use latency::LatencyModes;
pub use limits::{Limits, Part, Resource, Role};
pub use observed::{DiskLoad, LinkLoad, Observed};
pub use processors::Processors;
pub use project::{DEVICES, Demands, Device, Projected, Projection, project};
pub use quiet::{Noise, Quiet};
pub use results::{Source, compare_results};
pub use setting::{Setting, TargetFacts};
pub use shared::shared_devices;
pub use standing::Standing;

use crate::Result;
use crate::load::measurement::{Latency, Stream};
use crate::load::result::{FigureSummary, Figures, Run};
use crate::load::suite::Plan;

/// Findings of a result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// All figures over their repeats.
    pub figures: Vec<FigureSummary>,
    /// Every figure common to each pair of targets.
    pub comparisons: Vec<Comparison>,
    /// Streams with several kinds of latency.
    pub modes: Vec<LatencyModes>,
    /// Limit of each test on each target, in its median repeat.
    pub limits: Vec<Limits>,
    /// Projections of these to other links and disks.
    pub projections: Vec<Projected>,
    /// Whether the machine did other work meanwhile.
    pub quiet: Quiet,
    /// Findings in words, in reading order.
    pub findings: Vec<Finding>,
}

/// Analyses the runs of a plan.
///
/// # Errors
/// A run cannot be read.
pub fn analyse_runs<R: Borrow<Run>>(
    plan: &Plan,
    setting: &Setting,
    runs: impl IntoIterator<Item = Result<R>>,
) -> Result<Analysis> {
    let mut gathered = Gathered::default();
    for run in runs {
        gathered.add(plan, setting, run?.borrow());
    }
    let mut analysis = gathered.finish(setting);
    analysis.findings.extend(recovery::recovery(plan, &analysis.figures));
    Ok(analysis)
}

type TestOnTarget = (String, String);

/// Analysis of the runs so far.
#[derive(Debug, Default)]
struct Gathered {
    figures: Figures,
    /// In order of appearance.
    places: Vec<TestOnTarget>,
    observed: BTreeMap<TestOnTarget, Vec<(Observed, Vec<HitRate>)>>,
    latencies: BTreeMap<TestOnTarget, Vec<(String, Latency)>>,
    drifts: Vec<Finding>,
    noise: Vec<Noise>,
}

impl Gathered {
    fn add(&mut self, plan: &Plan, setting: &Setting, run: &Run) {
        let m = &run.measurement;
        self.figures.add(run);
        self.drifts.extend(stability::drift(run));
        let place = (m.test.clone(), m.target.clone());
        if !self.places.contains(&place) {
            self.places.push(place.clone());
        }
        let latencies = self.latencies.entry(place.clone()).or_default();
        for stream in &m.outcome.streams {
            match latencies.iter_mut().find(|(operation, _)| *operation == stream.operation) {
                Some((_, all)) => all.add(&stream.latency),
                None => latencies.push((stream.operation.clone(), stream.latency.clone())),
            }
        }
        let reads = m.outcome.streams.iter().filter(|s| is_of(s, "read")).map(|s| s.operations).sum();
        let work = plan.tests.iter().find(|test| test.name == m.test).map(|test| &test.work);
        let observed = Observed::of(run, work, setting);
        self.noise.push(Noise::of(&observed));
        let rates = hit_rates(&run.samples, reads, cache::is_buffered(work) && !setting.is_pool(&m.target));
        self.observed.entry(place).or_default().push((observed, rates));
    }

    fn finish(mut self, setting: &Setting) -> Analysis {
        let figures = self.figures.finish();
        let (mut modes, mut limits) = (Vec::new(), Vec::new());
        for place in &self.places {
            let Some(mut observed) = self.observed.remove(place).filter(|all| !all.is_empty()) else {
                continue;
            };
            observed.sort_by(|a, b| a.0.iops.total_cmp(&b.0.iops));
            let (middle, rates) = observed.swap_remove(observed.len() / 2);
            for (operation, latency) in self.latencies.get(place).into_iter().flatten() {
                modes.extend(LatencyModes::find(&place.0, &place.1, operation, latency, &rates));
            }
            limits.push(Limits::of(middle, &rates));
        }
        let quiet = Quiet::of(&self.noise);
        let mut findings: Vec<Finding> = quiet.finding().into_iter().collect();
        findings.extend(shared_devices(setting));
        let (comparisons, more) = compare_targets(&figures);
        findings.extend(more);
        findings.extend(fill_against_speed(&figures, setting));
        findings.extend(limits.iter().flat_map(Limits::findings));
        findings.extend(modes.iter().map(LatencyModes::finding));
        findings.extend(stability::repeats(&figures));
        findings.extend(self.drifts);
        let projections = limits.iter().filter_map(|l| project(&l.observed, &DEVICES)).collect();
        Analysis { figures, comparisons, modes, limits, projections, quiet, findings }
    }
}

/// Whether a stream belongs to an operation: `read`, or `JOB/read` where several jobs ran together.
fn is_of(stream: &Stream, operation: &str) -> bool {
    stream.operation.rsplit('/').next() == Some(operation)
}

/// Whether a figure is a headline: for each stream, operations or bytes per second, whichever suits the
/// operation size; and every figure that does not belong to a stream.
pub fn is_headline(all: &[FigureSummary], figure: &FigureSummary) -> bool {
    /// Streams with operations of at least this size are known by their bytes.
    const LARGE_BYTES: f64 = 65536.0;
    /// Figures of streams, as name suffixes; where one is a suffix of another, the longer comes first.
    const OF_STREAMS: [&str; 9] =
        [".iops", ".bandwidth", ".mean", ".p99.5", ".p99.9", ".p50", ".p95", ".p99", ".max"];
    let split = OF_STREAMS.iter().find_map(|end| Some((figure.figure.strip_suffix(end)?, &end[1..])));
    let Some((operation, what)) = split else { return true };
    let of_stream = |what: &str| {
        let name = format!("{operation}.{what}");
        let is = |f: &&FigureSummary| f.test == figure.test && f.target == figure.target && f.figure == name;
        all.iter().find(is).map(|f| f.spread.median)
    };
    match (of_stream("iops"), of_stream("bandwidth")) {
        (Some(iops), Some(bandwidth)) if bandwidth >= iops * LARGE_BYTES => what == "bandwidth",
        (Some(_), _) => what == "iops",
        (None, _) => true,
    }
}
