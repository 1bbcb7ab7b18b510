//! A run as rows: the columns, and conversion of measurement and samples to rows and back.
//!
//! ```text
//! series      test target repeat │ source subject name kind unit │ at_ns value
//! seconds     test target repeat │ stream operation │ at_ns operations bytes latency_sum_ns latency_max_ns
//! histograms  test target repeat │ stream source subject name unit │ lower upper count
//! ```
//! In `histograms`, `stream` is the index of the stream with these latencies; null for sampled histograms. A
//! series or histogram without values is one row with nulls in the last columns, so that it reads back as
//! written.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Run;
use super::table::{Cell, Columns, Of, Table};
use crate::load::measurement::{Latency, Measurement, Second, Stream};
use crate::load::samples::{SampledHistogram, Samples, Series};

pub const SERIES: Columns = &[
    ("test", Of::Text),
    ("target", Of::Text),
    ("repeat", Of::Count),
    ("source", Of::Text),
    ("subject", Of::Text),
    ("name", Of::Text),
    ("kind", Of::Text),
    ("unit", Of::Text),
    ("at_ns", Of::Count),
    ("value", Of::Real),
];

pub const SECONDS: Columns = &[
    ("test", Of::Text),
    ("target", Of::Text),
    ("repeat", Of::Count),
    ("stream", Of::Count),
    ("operation", Of::Text),
    ("at_ns", Of::Count),
    ("operations", Of::Count),
    ("bytes", Of::Count),
    ("latency_sum_ns", Of::Count),
    ("latency_max_ns", Of::Count),
];

pub const HISTOGRAMS: Columns = &[
    ("test", Of::Text),
    ("target", Of::Text),
    ("repeat", Of::Count),
    ("stream", Of::Count),
    ("source", Of::Text),
    ("subject", Of::Text),
    ("name", Of::Text),
    ("unit", Of::Text),
    ("lower", Of::Real),
    ("upper", Of::Real),
    ("count", Of::Count),
];

fn which(m: &Measurement) -> [Cell<'_>; 3] {
    [Cell::Text(&m.test), Cell::Text(&m.target), Cell::Count(m.repeat.into())]
}

pub fn series(run: &Run) -> Table {
    let mut table = Table::new(SERIES);
    let [test, target, repeat] = which(&run.measurement);
    for series in &run.samples.series {
        let (kind, unit) = (word(&series.kind), word(&series.unit));
        let mut push = |at, value| {
            let (source, subject, name) = (&series.source, &series.subject, &series.name);
            let [source, subject, name, kind, unit] =
                [source, subject, name, &kind, &unit].map(|text| Cell::Text(text.as_str()));
            table.push(&[test, target, repeat, source, subject, name, kind, unit, at, value]);
        };
        if series.points.is_empty() {
            push(Cell::Null, Cell::Null);
        }
        for &(at, value) in &series.points {
            push(Cell::Count(at), Cell::Real(value));
        }
    }
    table
}

pub fn seconds(run: &Run) -> Table {
    let mut table = Table::new(SECONDS);
    let [test, target, repeat] = which(&run.measurement);
    for (number, stream) in (0..).zip(&run.measurement.outcome.streams) {
        for second in &stream.seconds {
            let s =
                [second.at_ns, second.operations, second.bytes, second.latency_sum_ns, second.latency_max_ns];
            let [at, operations, bytes, sum, max] = s.map(Cell::Count);
            let (number, operation) = (Cell::Count(number), Cell::Text(&stream.operation));
            table.push(&[test, target, repeat, number, operation, at, operations, bytes, sum, max]);
        }
    }
    table
}

/// Latencies of all streams and sampled histograms, as rows.
pub fn histograms(run: &Run) -> Table {
    let mut table = Table::new(HISTOGRAMS);
    let [test, target, repeat] = which(&run.measurement);
    for (number, stream) in (0..).zip(&run.measurement.outcome.streams) {
        let [source, subject, unit] = ["latency", "", "nanoseconds"].map(Cell::Text);
        let name = Cell::Text(&stream.operation);
        for (low, high, count) in stream.latency.buckets() {
            let (number, low, high) = (Cell::Count(number), Cell::Real(low as f64), Cell::Real(high as f64));
            table.push(&[
                test,
                target,
                repeat,
                number,
                source,
                subject,
                name,
                unit,
                low,
                high,
                Cell::Count(count),
            ]);
        }
    }
    for histogram in &run.samples.histograms {
        let unit = word(&histogram.unit);
        let mut push = |low, high, count| {
            let [source, subject, name, unit] =
                [&histogram.source, &histogram.subject, &histogram.name, &unit]
                    .map(|t| Cell::Text(t.as_str()));
            table.push(&[test, target, repeat, Cell::Null, source, subject, name, unit, low, high, count]);
        };
        if histogram.buckets.is_empty() {
            push(Cell::Null, Cell::Null, Cell::Null);
        }
        for &(low, high, count) in &histogram.buckets {
            push(Cell::Real(low), Cell::Real(high), Cell::Count(count));
        }
    }
    table
}

/// Series in these rows; None if inconsistent.
pub fn series_of(table: &Table) -> Option<Vec<Series>> {
    let [source, subject, name, kind, unit] =
        ["source", "subject", "name", "kind", "unit"].map(|column| table.texts(column));
    let (at, value) = (table.counts("at_ns"), table.reals("value"));
    let mut all: Vec<Series> = Vec::new();
    for row in 0..table.rows() {
        let is_next = |s: &Series| {
            Some(s.source.as_str()) == source[row]
                && Some(s.subject.as_str()) == subject[row]
                && Some(s.name.as_str()) == name[row]
        };
        if !all.last().is_some_and(is_next) {
            all.push(Series {
                source: source[row]?.into(),
                subject: subject[row]?.into(),
                name: name[row]?.into(),
                kind: from_word(kind[row]?)?,
                unit: from_word(unit[row]?)?,
                points: Vec::new(),
            });
        }
        if let (Some(at), Some(value)) = (at[row], value[row]) {
            all.last_mut()?.points.push((at, value));
        }
    }
    Some(all)
}

/// Adds the seconds in these rows to their streams; None if inconsistent.
pub fn put_seconds(table: &Table, streams: &mut [Stream]) -> Option<()> {
    let [stream, at, operations, bytes, sum, max] =
        ["stream", "at_ns", "operations", "bytes", "latency_sum_ns", "latency_max_ns"]
            .map(|column| table.counts(column));
    for row in 0..table.rows() {
        streams.get_mut(usize::try_from(stream[row]?).ok()?)?.seconds.push(Second {
            at_ns: at[row]?,
            operations: operations[row]?,
            bytes: bytes[row]?,
            latency_sum_ns: sum[row]?,
            latency_max_ns: max[row]?,
        });
    }
    Some(())
}

/// Adds the latencies in these rows to their streams, and other histograms to `samples`; None if
/// inconsistent.
pub fn put_histograms(table: &Table, streams: &mut [Stream], samples: &mut Samples) -> Option<()> {
    let [source, subject, name, unit] =
        ["source", "subject", "name", "unit"].map(|column| table.texts(column));
    let [lower, upper] = ["lower", "upper"].map(|column| table.reals(column));
    let [stream, count] = ["stream", "count"].map(|column| table.counts(column));
    for row in 0..table.rows() {
        if let Some(number) = stream[row] {
            let latency: &mut Latency = &mut streams.get_mut(usize::try_from(number).ok()?)?.latency;
            latency.record_many(lower[row]? as u64, count[row]?);
            continue;
        }
        let is_next = |h: &SampledHistogram| {
            Some(h.source.as_str()) == source[row]
                && Some(h.subject.as_str()) == subject[row]
                && Some(h.name.as_str()) == name[row]
        };
        if !samples.histograms.last().is_some_and(is_next) {
            samples.histograms.push(SampledHistogram {
                source: source[row]?.into(),
                subject: subject[row]?.into(),
                name: name[row]?.into(),
                unit: from_word(unit[row]?)?,
                buckets: Vec::new(),
            });
        }
        if let (Some(low), Some(high), Some(count)) = (lower[row], upper[row], count[row]) {
            samples.histograms.last_mut()?.buckets.push((low, high, count));
        }
    }
    Some(())
}

fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("not a word: {other:?}"),
    }
}

fn from_word<T: DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(word.into())).ok()
}
