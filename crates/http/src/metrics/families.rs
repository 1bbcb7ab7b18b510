//! Prometheus's formats: samples gathered by the name of their family.
//!
//! ```text
//!   text      version 0.0.4: a line a sample; histograms by upper bounds
//!   protobuf  io.prometheus.client: histograms by upper bounds, and native ones beside them
//! ```
//!
//! Idea: a sample is written in its form as it is added, so all that is kept is what will be sent.

mod protobuf;
mod text;

use std::collections::BTreeMap;

/// How samples are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For everybody.
    Text,
    /// For those who ask for it: Prometheus, if it is to keep native histograms.
    Protobuf,
}

impl Format {
    /// What the `Accept` header asks for.
    pub fn accepted(header: &str) -> Format {
        let is_wanted = |range: &str| {
            range.trim().starts_with("application/vnd.google.protobuf")
                && range.contains("proto=io.prometheus.client.MetricFamily")
                && range.contains("encoding=delimited")
        };
        // Clients name it first if they want it; nobody names it that does not understand it.
        if header.split(',').any(is_wanted) { Format::Protobuf } else { Format::Text }
    }

    /// For the header.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

/// Families of samples, by name.
#[derive(Debug)]
pub struct Families {
    format: Format,
    families: BTreeMap<String, Family>,
}

#[derive(Debug)]
struct Family {
    kind: Kind,
    help: &'static str,
    samples: Vec<u8>,
}

/// What a family's numbers mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up.
    Counter,
    /// Counts by upper bounds.
    Histogram,
    /// Whatever the source has: node_exporter says no more of kstats.
    Untyped,
}

/// Labels of a sample: names and values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Counts in buckets that double.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram<'a> {
    /// Bucket `n` has what lies from 2^n up to 2^(n+1) units.
    pub counts: &'a [u64],
    /// The first and last buckets that have upper bounds of their own in the classic form.
    pub shown: (usize, usize),
    /// A unit's size in the family's unit.
    pub unit: f64,
    /// The same as a power of two, for the native form, whose bounds are powers of two.
    pub unit_log2: i32,
    /// The sum of all that was counted, in the family's unit.
    pub sum: f64,
}

/// The first bucket of times that is shown: 2^13 ns, 8 microseconds.
const TIME_FIRST: usize = 13;
/// The last: 2^34 ns, 17 seconds.
const TIME_LAST: usize = 34;

impl<'a> Histogram<'a> {
    /// Of nanoseconds, in seconds. Natively a nanosecond is 2^-30 seconds: 7 % less.
    pub fn of_times(counts: &'a [u64], sum: f64) -> Histogram<'a> {
        Histogram { counts, shown: (TIME_FIRST, TIME_LAST), unit: 1e-9, unit_log2: -30, sum }
    }

    /// Upper bounds, and how many lie below.
    fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let (first, last) = self.shown;
        let below = |bucket: usize| self.counts.iter().take(bucket + 1).sum();
        (first..=last).map(move |bucket| ((1u64 << (bucket + 1)) as f64 * self.unit, below(bucket)))
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Families {
    /// None yet.
    pub fn new(format: Format) -> Families {
        Families { format, families: BTreeMap::new() }
    }

    /// Adds a sample.
    pub fn add(&mut self, name: &str, (kind, help): (Kind, &'static str), labels: Labels, value: f64) {
        let format = self.format;
        let family = self.family(name, kind, help);
        match format {
            Format::Text => text::sample(&mut family.samples, name, labels, value),
            Format::Protobuf => protobuf::sample(&mut family.samples, kind, labels, value),
        }
    }

    /// Adds a histogram.
    pub fn add_histogram(&mut self, name: &str, help: &'static str, labels: Labels, histogram: &Histogram) {
        let format = self.format;
        let family = self.family(name, Kind::Histogram, help);
        match format {
            Format::Text => text::histogram(&mut family.samples, name, labels, histogram),
            Format::Protobuf => protobuf::histogram(&mut family.samples, labels, histogram),
        }
    }

    fn family(&mut self, name: &str, kind: Kind, help: &'static str) -> &mut Family {
        self.families.entry(name.to_owned()).or_insert_with(|| Family { kind, help, samples: Vec::new() })
    }

    /// All of them.
    pub fn written(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, family) in &self.families {
            match self.format {
                Format::Text => text::family(&mut out, name, family),
                Format::Protobuf => protobuf::family(&mut out, name, family),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_gets_what_it_asks_for() {
        let prometheus = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
            encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::Protobuf);
        for other in ["", "text/plain", "*/*", "application/openmetrics-text;version=1.0.0,text/plain"] {
            assert_eq!(Format::accepted(other), Format::Text, "{other}");
        }
    }
}
