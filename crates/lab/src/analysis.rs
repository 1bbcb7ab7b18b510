//! Analysis: from a result to findings, as a careful engineer would argue them.
//!
//! Each part looks at one question and gives typed values with the numbers that they rest on, and [`Finding`]s with a sentence each:
//! - [`stability`]: do the repeats agree, was the run in a steady state;
//! - [`compare`]: which target is faster, by how much, and do the data support that;
//! - [`latency`]: were there two kinds of operations, and do the caches explain them;
//! - [`limits`]: what limited a run, by utilisation and Little's law;
//! - [`project`]: what another link or disk would give;
//! - [`fill`]: is there a fill level at which speed falls off.
//!
//! [`analyse_runs`] does all of them, run by run: no more than one run's samples need be in memory. It is deterministic, reads no
//! clock, and knows nothing of how it is shown.

mod across;
mod cache;
mod compare;
mod fill;
mod finding;
mod latency;
mod limits;
mod observed;
mod project;
mod setting;
mod stability;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use across::{Source, compare_results, compare_targets, fill_against_speed};
pub use cache::{Cache, HitRate, hit_rates};
pub use compare::{Comparison, Side, Verdict, compare};
pub use fill::{Cliff, FillPoint, Found, NoCliff, cliff};
pub use finding::{Evidence, Finding, Severity};
pub use latency::LatencyModes;
pub use limits::{Limits, Part, Resource, Role};
pub use observed::{DiskLoad, LinkLoad, Observed};
pub use project::{DEVICES, Demands, Device, Projected, Projection, project};
pub use setting::{Setting, TargetFacts};

use crate::Result;
use crate::measurement::{Latency, Stream};
use crate::result::{FigureSummary, Figures, Run};
use crate::suite::Plan;

/// All that was found in a result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// All figures over their repeats.
    pub figures: Vec<FigureSummary>,
    /// Every pair of targets, every figure that both have.
    pub comparisons: Vec<Comparison>,
    /// Streams with more than one kind of latency.
    pub modes: Vec<LatencyModes>,
    /// What limited each test on each target, in its middle repeat.
    pub limits: Vec<Limits>,
    /// Each of these with other links and disks.
    pub projections: Vec<Projected>,
    /// In words, in the order in which a reader wants them.
    pub findings: Vec<Finding>,
}

/// Analyses the runs of a plan.
///
/// # Errors
/// A run can't be read.
pub fn analyse_runs<R: Borrow<Run>>(
    plan: &Plan,
    setting: &Setting,
    runs: impl IntoIterator<Item = Result<R>>,
) -> Result<Analysis> {
    let mut gathered = Gathered::default();
    for run in runs {
        gathered.add(plan, setting, run?.borrow());
    }
    Ok(gathered.finish(setting))
}

/// The test and the target.
type Place = (String, String);

/// What is kept of runs that were looked at.
#[derive(Debug, Default)]
struct Gathered {
    figures: Figures,
    /// In the order in which they came.
    places: Vec<Place>,
    observed: BTreeMap<Place, Vec<(Observed, Vec<HitRate>)>>,
    latencies: BTreeMap<Place, Vec<(String, Latency)>>,
    drifts: Vec<Finding>,
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
        self.observed.entry(place).or_default().push((observed, hit_rates(&run.samples, reads)));
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
        let (comparisons, mut findings) = compare_targets(&figures);
        findings.extend(fill_against_speed(&figures, setting));
        findings.extend(limits.iter().flat_map(Limits::findings));
        findings.extend(modes.iter().map(LatencyModes::finding));
        findings.extend(stability::repeats(&figures));
        findings.extend(self.drifts);
        let projections = limits.iter().filter_map(|l| project(&l.observed, &DEVICES)).collect();
        Analysis { figures, comparisons, modes, limits, projections, findings }
    }
}

/// Whether a stream is one of such operations: `read`, or `JOB/read` where several jobs ran together.
fn is_of(stream: &Stream, operation: &str) -> bool {
    stream.operation.rsplit('/').next() == Some(operation)
}

/// Whether a figure is one that people name first: of each stream operations or bytes a second, whichever fits the size of its operations;
/// and every figure that no stream gives.
pub fn is_headline(all: &[FigureSummary], figure: &FigureSummary) -> bool {
    /// Streams of operations from this size on are known by their bytes.
    const LARGE_BYTES: f64 = 65536.0;
    /// What streams give, as ends of names; of those that end alike the longer first.
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
