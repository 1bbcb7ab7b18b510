//! Distributions: histograms on a logarithmic axis, and percentiles with one more nine at each step.

use super::axis::Axis;
use super::frame::Frame;
use super::svg::{Svg, colour};
use crate::load::measurement::Latency;
use crate::unit::{Unit, digits};

/// Counts of values in ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Name in the legend.
    pub name: String,
    /// Unit of the values.
    pub unit: Unit,
    /// (lowest value, highest value, count), from low to high.
    pub buckets: Vec<(f64, f64, u64)>,
}

/// Bins per factor of ten: enough to separate two peaks, few enough to hide noise.
const BINS_PER_DECADE: f64 = 12.0;
const HEIGHT: f64 = 150.0;

impl Spread {
    /// Distribution of latencies.
    pub fn of_latency(name: impl Into<String>, latency: &Latency) -> Spread {
        let buckets = latency.buckets().map(|(low, high, count)| (low as f64, high as f64, count)).collect();
        Spread { name: name.into(), unit: Unit::Nanoseconds, buckets }
    }

    fn total(&self) -> u64 {
        self.buckets.iter().map(|b| b.2).fold(0, u64::saturating_add)
    }

    /// (bin, percent of all) for each non-empty bin, ascending. A bucket counts at the middle of its range.
    fn bins(&self) -> Vec<(i64, f64)> {
        let total = self.total() as f64;
        let mut bins: Vec<(i64, f64)> = Vec::new();
        for &(low, high, count) in &self.buckets {
            let middle = (low.max(1e-9).log10() + high.max(1e-9).log10()) / 2.0;
            let bin = (middle.min(24.0) * BINS_PER_DECADE).floor() as i64;
            match bins.last_mut() {
                Some(last) if last.0 == bin => last.1 += count as f64 / total * 100.0,
                _ => bins.push((bin, count as f64 / total * 100.0)),
            }
        }
        bins
    }

    /// (value, percent of all not above it), ascending.
    fn cumulative(&self) -> Vec<(f64, f64)> {
        let total = self.total() as f64;
        let sums = self.buckets.iter().scan(0u64, |sum, bucket| {
            *sum = sum.saturating_add(bucket.2);
            Some((bucket.1, *sum as f64 / total * 100.0))
        });
        self.buckets.first().map(|first| (first.0, 0.0)).into_iter().chain(sums).collect()
    }

    /// Value that `percent` of all do not exceed.
    fn percentile(&self, percent: f64) -> Option<f64> {
        self.cumulative().iter().find(|p| p.1 >= percent).map(|p| p.0)
    }
}

/// Non-empty distributions with their colours, and their common axis.
fn axis(spreads: &[Spread]) -> Option<Axis> {
    let buckets = || spreads.iter().flat_map(|s| &s.buckets).filter(|b| b.2 > 0);
    let low = buckets().map(|b| b.0).fold(f64::MAX, f64::min).max(1.0);
    let high = buckets().map(|b| b.1).fold(0.0, f64::max);
    (high >= low).then(|| Axis::log(spreads[0].unit, low, high))
}

fn names(spreads: &[Spread]) -> Vec<&str> {
    spreads.iter().map(|spread| spread.name.as_str()).collect()
}

pub(super) fn draw_histogram(spreads: &[Spread], svg: &mut Svg) {
    let Some(x) = axis(spreads) else { return svg.nothing() };
    let bins: Vec<_> = spreads.iter().map(Spread::bins).collect();
    let y = Axis::around(Unit::Percent, bins.iter().flatten().map(|b| b.1), 4);
    svg.legend("% of operations", "", &names(spreads));
    let frame = Frame::new(x, y.clone(), svg.y, HEIGHT, Frame::room(&y));
    frame.draw(svg, true);
    let edge = |bin: i64| frame.x(10f64.powf(bin as f64 / BINS_PER_DECADE));
    for (i, bins) in bins.iter().enumerate() {
        // Steps: up at the left of a bin, down at its right if the next bin is empty.
        for run in bins.chunk_by(|a, b| a.0 + 1 == b.0) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let mut steps = vec![(edge(first.0), frame.y(0.0))];
            steps.extend(run.iter().flat_map(|&(bin, percent)| {
                [(edge(bin), frame.y(percent)), (edge(bin + 1), frame.y(percent))]
            }));
            steps.push((edge(last.0 + 1), frame.y(0.0)));
            svg.path(&format!("area {}", colour(i)), &steps, Some(frame.y(0.0)));
            svg.path(&format!("line {}", colour(i)), &steps, None);
        }
    }
}

pub(super) fn draw_percentiles(spreads: &[Spread], svg: &mut Svg) {
    let Some(x) = axis(spreads) else { return svg.nothing() };
    // Only as many nines as the operations support: one in a thousand takes a thousand.
    let most = spreads.iter().map(Spread::total).max().unwrap_or(0).max(1);
    let y = Axis::nines(most.ilog10());
    svg.legend("% no longer than", "", &names(spreads));
    let frame = Frame::new(x, y.clone(), svg.y, HEIGHT, Frame::room(&y));
    frame.draw(svg, true);
    for (i, spread) in spreads.iter().enumerate() {
        let mut points: Vec<(f64, f64)> = spread.cumulative().into_iter().map(|p| frame.at(p)).collect();
        // Neighbours within half a unit look like one point.
        points.dedup_by(|b, a| (b.0 - a.0).abs() < 0.5 && (b.1 - a.1).abs() < 0.5);
        svg.path(&format!("line {}", colour(i)), &points, None);
    }
}

pub(super) fn describe(spreads: &[Spread]) -> String {
    let one = |spread: &Spread| {
        let parts = [50.0, 99.0, 99.9].into_iter().filter_map(|percent| {
            let value = spread.unit.show(spread.percentile(percent)?);
            Some(format!("{}% within {value}", digits(percent).trim_end_matches(".0")))
        });
        format!("{}: {}", spread.name, parts.collect::<Vec<_>>().join(", "))
    };
    spreads.iter().filter(|s| s.total() > 0).map(one).collect::<Vec<_>>().join("; ")
}
