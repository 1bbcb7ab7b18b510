//! Prometheus formats: samples collected by family name.
//!
//! ```text
//!   text      version 0.0.4: a line per sample; histograms by upper bounds
//!   protobuf  io.prometheus.client: histograms by upper bounds, plus native histograms
//! ```
//!
//! Idea: each sample is formatted when added, so memory holds only the output.

mod protobuf;
mod text;

use std::collections::BTreeMap;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Default.
    Text,
    /// On request: Prometheus asks for it when it stores native histograms.
    Protobuf,
}

impl Format {
    /// Format that an `Accept` header asks for.
    pub fn accepted(header: &str) -> Format {
        let is_wanted = |range: &str| {
            range.trim().starts_with("application/vnd.google.protobuf")
                && range.contains("proto=io.prometheus.client.MetricFamily")
                && range.contains("encoding=delimited")
        };
        // Clients that want it name it first. Clients without support do not name it.
        if header.split(',').any(is_wanted) { Format::Protobuf } else { Format::Text }
    }

    /// Content-Type value.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

/// Families by name.
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

/// Metric type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Can rise and fall.
    Gauge,
    /// Only rises.
    Counter,
    /// Counts by bucket.
    Histogram,
    /// Not stated: node_exporter gives no type for kstats.
    Untyped,
}

/// Labels of a sample: name and value.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Counts in power-of-two buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram<'a> {
    /// Bucket `n` counts values from 2^n to below 2^(n+1) units.
    pub counts: &'a [u64],
    /// First and last buckets with upper bounds of their own in the classic form.
    pub shown: (usize, usize),
    /// Size of a unit, in the family's unit.
    pub unit: f64,
    /// The same as a power of two, for native histograms, whose bounds are powers of two.
    pub unit_log2: i32,
    /// Sum of all values, in the family's unit.
    pub sum: f64,
}

/// First time bucket shown: 2^13 ns (8 µs).
const TIME_FIRST: usize = 13;
/// Last: 2^34 ns (17 s).
const TIME_LAST: usize = 34;

impl<'a> Histogram<'a> {
    /// A histogram of nanoseconds, shown in seconds. Its native form takes 1 ns as 2^-30 s, which is 7 %
    /// less.
    pub fn of_times(counts: &'a [u64], sum: f64) -> Histogram<'a> {
        Histogram { counts, shown: (TIME_FIRST, TIME_LAST), unit: 1e-9, unit_log2: -30, sum }
    }

    /// Upper bounds and cumulative counts.
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
    /// No families yet.
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

    /// The complete output.
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
