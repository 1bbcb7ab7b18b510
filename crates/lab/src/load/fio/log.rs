//! fio's logs: averages of about one second each.
//!
//! ```text
//! LOG_bw.N.log    LOG_iops.N.log    LOG_clat.N.log          N: worker, from 1
//!   time, value, direction, block size, offset...      time: end of the span, ms since 1970 (log_unix_epoch)
//!                                                      value: KiB/s, operations/s, mean ns
//!                                                      direction: 0 read, 1 write
//! ```
//! Spans are a few milliseconds longer than a second, and differ between workers. Each is spread over the
//! seconds it overlaps, so the seconds of a job can be summed.

use std::fs;
use std::path::Path;

use super::report::Seconds;
use super::report::failed;
use crate::Result;
use crate::load::measurement::Second;

/// Value of `log_avg_msec`.
const SPAN_MS: u64 = 1000;

/// A remainder this short is not its own second: spans are slightly longer than requested.
const SLIVER_MS: u64 = 50;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    end_ms: u64,
    value: f64,
    is_write: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Span {
    start_ms: u64,
    end_ms: u64,
    operations: f64,
    bytes: f64,
    mean_ns: f64,
}

/// Seconds of each worker; `workers` gives the job of each. The measurement began at `began_unix_ms`.
pub(super) fn read_all(logs: &Path, workers: &[(usize, u32)], began_unix_ms: u64) -> Result<Vec<Seconds>> {
    let mut spans = Vec::new();
    for number in 1..=workers.len() {
        let lines = |kind: &str| read(&logs.with_file_name(format!("log_{kind}.{number}.log")));
        let (bandwidth, iops, latency) = (lines("bw")?, lines("iops")?, lines("clat")?);
        spans.push([false, true].map(|is_write| joined(&bandwidth, &iops, &latency, is_write)));
    }
    let start_of = |job: usize| {
        let of_job = workers.iter().zip(&spans).filter(|(worker, _)| worker.0 == job);
        of_job
            .flat_map(|(_, both)| both.iter().flatten())
            .map(|span| span.start_ms)
            .min()
            .unwrap_or(began_unix_ms)
    };
    let seconds = |spans: &[Span], start_ms: u64| {
        let mut seconds = spread(spans, start_ms);
        for second in &mut seconds {
            second.at_ns += start_ms.saturating_sub(began_unix_ms) * 1_000_000;
        }
        seconds
    };
    let of_worker = |(worker, [reads, writes]): (&(usize, u32), &[Vec<Span>; 2])| {
        let start_ms = start_of(worker.0);
        Seconds { read: seconds(reads, start_ms), write: seconds(writes, start_ms) }
    };
    Ok(workers.iter().zip(&spans).map(of_worker).collect())
}

/// Reads a log. A missing one is empty: its worker was too short-lived.
fn read(path: &Path) -> Result<Vec<Line>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let mut fields = line.split(',').map(str::trim);
        let line = Line {
            end_ms: fields.next()?.parse().ok()?,
            value: fields.next()?.parse().ok()?,
            is_write: fields.next()? == "1",
        };
        Some(line)
    };
    let parsed =
        |text: &str| line(text).ok_or_else(|| failed(&format!("{}: not a log line: {text}", path.display())));
    text.lines().map(parsed).collect()
}

/// Spans of a direction: its lines have the same order in all three logs.
fn joined(bandwidth: &[Line], iops: &[Line], latency: &[Line], is_write: bool) -> Vec<Span> {
    let of =
        |lines: &[Line]| lines.iter().filter(|line| line.is_write == is_write).copied().collect::<Vec<_>>();
    let mut before_ms = None;
    let lines = of(bandwidth).into_iter().zip(of(iops)).zip(of(latency));
    let span = |((bandwidth, iops), latency): ((Line, Line), Line)| {
        let end_ms = bandwidth.end_ms;
        // Nothing completed during a gap.
        let start_ms = end_ms.saturating_sub(SPAN_MS).max(before_ms.unwrap_or(0));
        let start_ms = before_ms.filter(|before| end_ms - before < 2 * SPAN_MS).unwrap_or(start_ms);
        before_ms = Some(end_ms);
        let length_s = (end_ms - start_ms) as f64 / 1000.0;
        let (operations, bytes) = (iops.value * length_s, bandwidth.value * 1024.0 * length_s);
        Span { start_ms, end_ms, operations, bytes, mean_ns: latency.value }
    };
    lines.map(span).collect()
}

fn spread(spans: &[Span], start_ms: u64) -> Vec<Second> {
    let mut sums: Vec<[f64; 4]> = Vec::new();
    for span in spans {
        let mut from_ms = span.start_ms;
        while from_ms < span.end_ms {
            let index = ((from_ms - start_ms) / 1000) as usize;
            let until_ms = (start_ms + (index as u64 + 1) * 1000).min(span.end_ms);
            let share = (until_ms - from_ms) as f64 / (span.end_ms - span.start_ms) as f64;
            sums.resize(sums.len().max(index + 1), [0.0; 4]);
            let [operations, bytes, latency, longest] = &mut sums[index];
            *operations += span.operations * share;
            *bytes += span.bytes * share;
            *latency += span.operations * share * span.mean_ns;
            *longest = longest.max(span.mean_ns);
            from_ms = until_ms;
        }
    }
    let rest_ms = spans.last().map_or(0, |span| (span.end_ms - start_ms) % 1000);
    if sums.len() > 1 && (1..=SLIVER_MS).contains(&rest_ms) {
        sums.pop();
    }
    let second = |(index, [operations, bytes, latency, longest]): (usize, [f64; 4])| Second {
        at_ns: index as u64 * 1_000_000_000,
        operations: operations.round() as u64,
        bytes: bytes.round() as u64,
        latency_sum_ns: latency.round() as u64,
        latency_max_ns: longest.round() as u64,
    };
    sums.into_iter().enumerate().map(second).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_spread_over_the_seconds_that_they_overlap() {
        let span =
            |start_ms, end_ms, operations| Span { start_ms, end_ms, operations, bytes: 0.0, mean_ns: 5.0 };
        let spans = [span(10_000, 11_000, 100.0), span(11_000, 12_500, 300.0), span(14_000, 15_000, 40.0)];
        let seconds: Vec<_> =
            spread(&spans, 10_000).into_iter().map(|s| (s.at_ns / 1_000_000, s.operations)).collect();
        assert_eq!(seconds, [(0, 100), (1000, 200), (2000, 100), (3000, 0), (4000, 40)]);
        assert_eq!(spread(&[span(0, 1002, 500.0)], 0).len(), 1);
    }
}
