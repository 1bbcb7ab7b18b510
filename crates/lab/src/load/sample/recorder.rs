//! Records values tick by tick, in bounded memory.
//!
//! All sources are read at the same ticks, so a series is a column over one list of times: 8 bytes per value,
//! and one value while unchanged. After [`MOST_TICKS`] ticks, every other one is dropped, and from then on
//! only every second one is recorded (later every fourth, ...). Counters lose no growth by this; gauges lose
//! detail. A tick without a value from a source is `NaN` in its columns, and no point of the series.

use std::collections::HashMap;

use crate::load::samples::{Kind, Missing, SampledHistogram, Samples, Series};
use crate::unit::Unit;

/// Most ticks kept: an hour of seconds. A column then takes at most 29 kB, and 300 changing ones 9 MB.
pub const MOST_TICKS: usize = 3600;

#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    pub source: &'a str,
    pub subject: &'a str,
    pub kind: Kind,
}

#[derive(Debug)]
struct Column {
    name: String,
    kind: Kind,
    unit: Unit,
    /// Tick of the first value.
    from: usize,
    values: Values,
}

#[derive(Debug)]
enum Values {
    /// Same value at each of this many ticks.
    Same(f64, usize),
    /// One value per tick.
    Each(Vec<f64>),
}

#[derive(Debug, Default)]
pub struct Recorder {
    ticks: Vec<u64>,
    /// One tick in `1 << skip` is kept.
    skip: u32,
    tick: u64,
    kept: bool,
    columns: Vec<Column>,
    /// Columns of (source, subject), by name.
    index: HashMap<(String, String), HashMap<String, usize>>,
    missing: Vec<Missing>,
    histograms: Vec<SampledHistogram>,
}

impl Recorder {
    /// Starts a new tick at this time; the last tick is always kept. Returns false if nothing needs to be
    /// read.
    pub fn tick(&mut self, at_ns: u64, last: bool) -> bool {
        // `MOST_TICKS` is even, so the tick at which the list is full remains a kept one after thinning.
        self.kept = last || self.tick.is_multiple_of(1 << self.skip);
        if self.kept && self.ticks.len() >= MOST_TICKS {
            self.thin();
        }
        self.tick += 1;
        if self.kept {
            self.ticks.push(at_ns);
        }
        self.kept
    }

    pub fn note(&mut self, head: Head<'_>, name: &str, unit: Unit, value: f64) {
        let Some(tick) = self.ticks.len().checked_sub(1).filter(|_| self.kept) else { return };
        let key = (head.source.to_owned(), head.subject.to_owned());
        let names = self.index.entry(key).or_default();
        match names.get(name) {
            Some(&column) => self.columns[column].push(tick, value),
            None => {
                names.insert(name.to_owned(), self.columns.len());
                let values = Values::Same(value, 1);
                self.columns.push(Column {
                    name: name.to_owned(),
                    kind: head.kind,
                    unit,
                    from: tick,
                    values,
                });
            }
        }
    }

    /// Records, once, that a source cannot be sampled.
    pub fn missing(&mut self, source: &str, why: impl Into<String>) {
        if self.missing.iter().all(|missing| missing.source != source) {
            self.missing.push(Missing { source: source.to_owned(), why: why.into() });
        }
    }

    pub fn histogram(&mut self, histogram: SampledHistogram) {
        self.histograms.push(histogram);
    }

    /// All samples, by source, subject and name.
    pub fn finish(self) -> Samples {
        let Recorder { ticks, columns, index, missing, histograms, .. } = self;
        let mut subjects = vec![(String::new(), String::new()); columns.len()];
        for (key, names) in index {
            names.values().for_each(|&column| subjects[column] = key.clone());
        }
        let mut series: Vec<Series> = columns
            .into_iter()
            .zip(subjects)
            .map(|(column, (source, subject))| Series {
                source,
                subject,
                kind: column.kind,
                unit: column.unit,
                points: column.points(&ticks),
                name: column.name,
            })
            .collect();
        series.sort_by(|a, b| (&a.source, &a.subject, &a.name).cmp(&(&b.source, &b.subject, &b.name)));
        Samples { series, histograms, missing }
    }

    fn thin(&mut self) {
        self.skip += 1;
        halve(&mut self.ticks, 0);
        for column in &mut self.columns {
            column.thin();
        }
    }
}

/// Keeps even-numbered items, where the first has the number `from`.
fn halve<T>(list: &mut Vec<T>, from: usize) {
    let mut number = from;
    list.retain(|_| {
        number += 1;
        (number - 1).is_multiple_of(2)
    });
}

impl Column {
    fn len(&self) -> usize {
        match &self.values {
            Values::Same(_, count) => *count,
            Values::Each(values) => values.len(),
        }
    }

    fn push(&mut self, tick: usize, value: f64) {
        // Of two values at one tick, the first counts.
        let Some(gap) = tick.checked_sub(self.from + self.len()) else { return };
        match &mut self.values {
            Values::Same(same, count) if gap == 0 && *same == value => *count += 1,
            Values::Same(same, count) => {
                let mut values = vec![*same; *count];
                values.resize(*count + gap, f64::NAN);
                values.push(value);
                self.values = Values::Each(values);
            }
            Values::Each(values) => {
                values.resize(values.len() + gap, f64::NAN);
                values.push(value);
            }
        }
    }

    fn thin(&mut self) {
        let (from, end) = (self.from, self.from + self.len());
        match &mut self.values {
            // The number of even numbers from the first to the last.
            Values::Same(_, count) => *count = end.div_ceil(2) - from.div_ceil(2),
            Values::Each(values) => halve(values, from),
        }
        self.from = from.div_ceil(2);
    }

    /// Points; only the first and last if the value never changed.
    fn points(&self, ticks: &[u64]) -> Vec<(u64, f64)> {
        let at = |tick: usize| ticks.get(self.from + tick).copied();
        match &self.values {
            Values::Same(value, count) => {
                let mut ends = vec![0, count.saturating_sub(1)];
                ends.truncate(*count);
                ends.into_iter().filter_map(|tick| Some((at(tick)?, *value))).collect()
            }
            Values::Each(values) => {
                let said = values.iter().enumerate().filter(|(_, value)| !value.is_nan());
                said.filter_map(|(tick, value)| Some((at(tick)?, *value))).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
    use super::*;

    const HEAD: Head<'_> = Head { source: "a", subject: "b", kind: Kind::Counter };

    #[test]
    fn a_constant_takes_two_points_and_a_late_change_loses_none() {
        let mut recorder = Recorder::default();
        for second in 0..10 {
            recorder.tick(second, second == 9);
            recorder.note(HEAD, "still", Unit::Count, 7.0);
            recorder.note(HEAD, "late", Unit::Count, if second < 8 { 1.0 } else { 2.0 });
            if second != 4 {
                recorder.note(HEAD, "gap", Unit::Count, second as f64);
            }
        }
        let samples = recorder.finish();
        assert_eq!(samples.find("a", "b", "still").unwrap().points, [(0, 7.0), (9, 7.0)]);
        let late = samples.find("a", "b", "late").unwrap();
        assert_eq!((late.points.len(), late.points[7], late.points[8]), (10, (7, 1.0), (8, 2.0)));
        let gap: Vec<u64> = samples.find("a", "b", "gap").unwrap().points.iter().map(|p| p.0).collect();
        assert_eq!(gap, [0, 1, 2, 3, 5, 6, 7, 8, 9], "no point where the source was silent");
    }

    #[test]
    fn long_runs_keep_evenly_spaced_points_and_all_growth() {
        let mut recorder = Recorder::default();
        let end = 20_000;
        for second in 0..=end {
            recorder.tick(second, second == end);
            recorder.note(HEAD, "grows", Unit::Count, second as f64 * 3.0);
            recorder.note(HEAD, "still", Unit::Count, 1.0);
            if second >= 5001 {
                recorder.note(HEAD, "came", Unit::Count, second as f64);
            }
        }
        let samples = recorder.finish();
        let grows = samples.find("a", "b", "grows").unwrap();
        assert!(grows.points.len() <= MOST_TICKS + 1, "{}", grows.points.len());
        assert_eq!(grows.growth(), end as f64 * 3.0);
        assert!(grows.points.iter().all(|p| p.1 == p.0 as f64 * 3.0), "values keep their times");
        let steps: Vec<u64> = grows.points.windows(2).map(|p| p[1].0 - p[0].0).collect();
        assert!(steps[..steps.len() - 1].iter().all(|step| *step == steps[0]), "a step differs");
        assert!(samples.find("a", "b", "came").unwrap().points.iter().all(|p| p.1 == p.0 as f64));
        assert_eq!(samples.find("a", "b", "still").unwrap().points.last().unwrap().0, end);
    }
}
