//! Samples from a measurement: series over time, and sources that could not be sampled.

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// Interpretation of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Running count: its growth matters.
    Counter,
    /// State at one time.
    Gauge,
}

/// One value over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Source: `arcstats`, `diskstats`, `pressure`, `cpu`, ...
    pub source: String,
    /// Instance, if several: a disk, a pool, a processor; otherwise empty.
    pub subject: String,
    /// Name in the source: `hits`, `read_ios`, `some_avg10`.
    pub name: String,
    /// Counter or gauge.
    pub kind: Kind,
    /// Unit of the values.
    pub unit: Unit,
    /// (nanoseconds since the start of the measurement, value), in time order. Values from before the start
    /// have time 0.
    pub points: Vec<(u64, f64)>,
}

/// A source that could not be sampled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Missing {
    /// Name of the source.
    pub source: String,
    /// Reason and remedy.
    pub why: String,
}

/// Growth of a source's own histogram during the measurement: `zpool iostat -w` and `-r`.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledHistogram {
    /// Source: `iostat_latency`, `iostat_size`.
    pub source: String,
    /// Pool or vdev.
    pub subject: String,
    /// Column: `total_wait.read`, `asyncq_wait.write`.
    pub name: String,
    /// Unit of the bounds.
    pub unit: Unit,
    /// (lower bound, upper bound, count).
    pub buckets: Vec<(f64, f64, u64)>,
}

/// All samples from one measurement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// Values over time.
    pub series: Vec<Series>,
    /// Histograms.
    pub histograms: Vec<SampledHistogram>,
    /// Sources that could not be sampled.
    pub missing: Vec<Missing>,
}

impl Samples {
    /// Series of that name, if sampled.
    pub fn find(&self, source: &str, subject: &str, name: &str) -> Option<&Series> {
        self.series.iter().find(|s| s.source == source && s.subject == subject && s.name == name)
    }
}

impl Series {
    /// A counter's growth from the first to the last point; 0 without two points.
    pub fn growth(&self) -> f64 {
        match (self.points.first(), self.points.last()) {
            (Some(first), Some(last)) => last.1 - first.1,
            _ => 0.0,
        }
    }

    /// Growth per second between neighbouring points of a counter, or the points of a gauge. A reading much
    /// sooner than usual (at the end of a run) is left out: a rate over so short a time is chance.
    pub fn rates(&self) -> Vec<(u64, f64)> {
        if self.kind == Kind::Gauge {
            return self.points.clone();
        }
        let (Some(&first), Some(&last)) = (self.points.first(), self.points.last()) else {
            return Vec::new();
        };
        let usual_ns = last.0.saturating_sub(first.0) / (self.points.len() as u64 - 1).max(1);
        let mut before = first;
        let rate = |&(at, value): &(u64, f64)| {
            let step_ns = at.saturating_sub(before.0);
            if step_ns == 0 || step_ns < usual_ns / 10 {
                return None;
            }
            let rate = (value - before.1) / (step_ns as f64 / 1e9);
            before = (at, value);
            Some((at, rate))
        };
        self.points.iter().skip(1).filter_map(rate).collect()
    }

    /// Mean of a gauge; mean rate of a counter. None without points.
    pub fn mean(&self) -> Option<f64> {
        let values = self.rates();
        (!values.is_empty()).then(|| values.iter().map(|v| v.1).sum::<f64>() / values.len() as f64)
    }
}
