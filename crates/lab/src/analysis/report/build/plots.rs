//! Plots of runs: their seconds, and the latency of their operations.

use crate::analysis::plot::{Line, Panel, Plot, Shape, Spread};
use crate::load::measurement::{Latency, Second, Stream};
use crate::load::result::Run;
use crate::unit::Unit;

const SECOND_NS: u64 = 1_000_000_000;
/// A shorter partial second at the end says little.
const SHORTEST_NS: u64 = SECOND_NS / 5;
/// Larger operations are counted in bytes.
const LARGE_BYTES: u64 = 64 * 1024;

/// Throughput and latency of a run, second by second; None if it has no seconds.
pub fn over_time(test: &str, run: &Run) -> Option<Plot> {
    let streams = &run.measurement.outcome.streams;
    let streams: Vec<&Stream> = streams.iter().filter(|s| s.seconds.len() > 1).collect();
    let large = streams.iter().any(|s| s.bytes / s.operations.max(1) >= LARGE_BYTES);
    let (name, unit) =
        if large { ("Throughput", Unit::BytesPerSecond) } else { ("Operations", Unit::PerSecond) };
    let amount = move |second: &Second| if large { second.bytes } else { second.operations };
    let rate = |s: &&Stream| Line { name: s.operation.clone(), points: rates(s, amount) };
    let panels = vec![
        Panel { name: name.into(), unit, log: false, lines: streams.iter().map(rate).collect() },
        Panel {
            name: "Latency".into(),
            unit: Unit::Nanoseconds,
            log: true,
            lines: streams.iter().flat_map(|s| latencies(s)).filter(|line| !line.points.is_empty()).collect(),
        },
    ];
    let title = format!("{test}: over time, repeat {}", run.measurement.repeat);
    (!streams.is_empty()).then_some(Plot { title, shape: Shape::OverTime(panels) })
}

fn rates(stream: &Stream, amount: impl Fn(&Second) -> u64) -> Vec<(u64, f64)> {
    let ends = stream.seconds.iter().skip(1).map(|s| s.at_ns).chain([stream.runtime_ns]);
    let rate = |(second, end): (&Second, u64)| {
        let lasted = end.saturating_sub(second.at_ns).min(SECOND_NS);
        (lasted >= SHORTEST_NS).then(|| (second.at_ns, amount(second) as f64 / (lasted as f64 / 1e9)))
    };
    stream.seconds.iter().zip(ends).filter_map(rate).collect()
}

fn latencies(stream: &Stream) -> [Line; 2] {
    let with = |value: &dyn Fn(&Second) -> f64| {
        let some = stream.seconds.iter().filter(|s| s.operations > 0 && s.latency_max_ns > 0);
        some.map(|s| (s.at_ns, value(s))).collect()
    };
    let operation = &stream.operation;
    [
        Line {
            name: format!("{operation}, mean"),
            points: with(&|s| s.latency_sum_ns as f64 / s.operations as f64),
        },
        Line { name: format!("{operation}, longest"), points: with(&|s| s.latency_max_ns as f64) },
    ]
}

/// Latencies of one operation in all repeats; None if none.
pub fn spread(repeats: &[&Run], operation: &str, name: &str) -> Option<Spread> {
    let mut all = Latency::default();
    for run in repeats {
        for stream in run.measurement.outcome.streams.iter().filter(|s| s.operation == operation) {
            all.add(&stream.latency);
        }
    }
    (!all.is_empty()).then(|| Spread::of_latency(name, &all))
}

/// Histogram and percentiles of all operations of a test over all repeats.
pub fn distributions(test: &str, repeats: &[&Run], operations: &[&str]) -> Vec<Plot> {
    let spreads: Vec<Spread> = operations.iter().filter_map(|o| spread(repeats, o, o)).collect();
    if spreads.is_empty() {
        return Vec::new();
    }
    vec![
        Plot { title: format!("{test}: latency histogram"), shape: Shape::Histogram(spreads.clone()) },
        Plot { title: format!("{test}: latency percentiles"), shape: Shape::Percentiles(spreads) },
    ]
}
