//! Samples from a run, as panels that share the time axis: the ARC, the disks, the machine.
//!
//! A panel is left out if its source was not sampled or did not change.

use crate::analysis::plot::{Line, Panel, Plot, Shape};
use crate::load::result::Run;
use crate::load::samples::{Samples, Series};
use crate::unit::Unit;

/// More lines cannot be distinguished.
const MOST_LINES: usize = 6;
/// The busiest disk must be this busy for disks to be shown, in percent.
const LEAST_BUSY: f64 = 1.0;

pub fn panels(test: &str, run: &Run) -> Vec<Plot> {
    let samples = &run.samples;
    let all = [("ARC", arc(samples)), ("disks", disks(samples)), ("machine", machine(samples))];
    let plot = |(what, panels): (&str, Vec<Panel>)| {
        (!panels.is_empty())
            .then(|| Plot { title: format!("{test}: {what}"), shape: Shape::OverTime(panels) })
    };
    all.into_iter().filter_map(plot).collect()
}

fn arc(samples: &Samples) -> Vec<Panel> {
    let find = |name: &str| samples.find("arcstats", "", name);
    let mut panels = Vec::new();
    if let (Some(hits), Some(misses)) = (find("hits"), find("misses")) {
        panels.extend(panel("Hit rate", Unit::Percent, vec![line("", parts(hits, misses))]));
    }
    let gauge = |name: &str, shown: &str| find(name).map(|series| line(shown, series.points.clone()));
    let sizes: Vec<Line> = [gauge("size", "size"), gauge("c", "target")].into_iter().flatten().collect();
    panels.extend(panel("Size", Unit::Bytes, sizes));
    let rate = |name: &str, shown: &str| find(name).map(|series| line(shown, grown(series)));
    let second: Vec<Line> =
        [rate("l2_hits", "hits"), rate("l2_misses", "misses")].into_iter().flatten().collect();
    panels.extend(panel("L2ARC", Unit::PerSecond, second));
    panels
}

/// Growth of a counter; empty if it did not change: only the ends of such a series are kept.
fn grown(series: &Series) -> Vec<(u64, f64)> {
    if series.growth() > 0.0 { series.rates() } else { Vec::new() }
}

/// Share of `one` in the sum of both, in percent, wherever the sum is not zero.
fn parts(one: &Series, other: &Series) -> Vec<(u64, f64)> {
    let one = grown(one);
    let all = sum(one.clone(), grown(other));
    if one.is_empty() { all.into_iter().map(|(at, _)| (at, 0.0)).collect() } else { percent_of(&one, &all) }
}

/// `one` as a percentage of `all`, wherever `all` is not zero.
fn percent_of(one: &[(u64, f64)], all: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let some = one.iter().zip(all).filter(|(_, all)| all.1 > 0.0);
    some.map(|(one, all)| (one.0, 100.0 * one.1 / all.1)).collect()
}

fn disks(samples: &Samples) -> Vec<Panel> {
    let of = |name: &str| {
        let name = name.to_owned();
        samples.series.iter().filter(move |s| s.source == "diskstats" && s.name == name)
    };
    let busy = |s: &Series| s.rates().into_iter().map(|(at, rate)| (at, rate / 1e7)).collect::<Vec<_>>();
    let mean = |s: &Series| s.mean().unwrap_or(0.0) / 1e7;
    let mut all: Vec<&Series> = of("io_time").filter(|s| mean(s) >= LEAST_BUSY).collect();
    all.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    all.truncate(MOST_LINES);
    all.sort_by(|a, b| a.subject.cmp(&b.subject));
    let moved =
        |name: &str, subject: &str| samples.find("diskstats", subject, name).map(grown).unwrap_or_default();
    let throughput = |disk: &&Series| {
        line(&disk.subject, sum(moved("read_bytes", &disk.subject), moved("write_bytes", &disk.subject)))
    };
    let busy = all.iter().map(|s| line(&s.subject, busy(s))).collect();
    let throughput = all.iter().map(throughput).collect();
    [panel("Busy", Unit::Percent, busy), panel("Read and written", Unit::BytesPerSecond, throughput)]
        .into_iter()
        .flatten()
        .collect()
}

/// Sum of both; an empty series did not change.
fn sum(one: Vec<(u64, f64)>, other: Vec<(u64, f64)>) -> Vec<(u64, f64)> {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => other,
        (_, true) => one,
        _ => one.into_iter().zip(other).map(|(a, b)| (a.0, a.1 + b.1)).collect(),
    }
}

fn machine(samples: &Samples) -> Vec<Panel> {
    const ALL: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
    let rates = |name: &str| samples.find("cpu", "", name).map(grown).unwrap_or_default();
    let total = ALL.iter().map(|name| rates(name)).reduce(sum).unwrap_or_default();
    let part = |name: &str, shown: &str| line(shown, percent_of(&rates(name), &total));
    let processors = vec![part("user", "user"), part("system", "system"), part("iowait", "waiting for I/O")];
    let stalled = samples.find("pressure", "io", "some_total");
    let stalled =
        stalled.map(|s| line("", s.rates().into_iter().map(|(at, rate)| (at, rate / 1e7)).collect()));
    let network = |name: &str, shown: &str| {
        let all =
            samples.series.iter().filter(|s| s.source == "network" && s.name == name && s.subject != "lo");
        let moved = all.map(grown).reduce(sum);
        line(shown, moved.unwrap_or_default())
    };
    [
        panel("Processors", Unit::Percent, processors),
        panel("Tasks stalled on I/O (PSI)", Unit::Percent, stalled.into_iter().collect()),
        panel(
            "Network",
            Unit::BytesPerSecond,
            vec![network("rx_bytes", "received"), network("tx_bytes", "sent")],
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn line(name: &str, points: Vec<(u64, f64)>) -> Line {
    Line { name: name.to_owned(), points }
}

/// A panel of the lines with points; None if none.
fn panel(name: &str, unit: Unit, lines: Vec<Line>) -> Option<Panel> {
    let lines: Vec<Line> = lines.into_iter().filter(|line| line.points.len() > 1).collect();
    (!lines.is_empty()).then(|| Panel { name: name.to_owned(), unit, log: false, lines })
}
