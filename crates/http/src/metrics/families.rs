//! Prometheus's text format: samples gathered by the name of their family.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Families of samples, by name.
#[derive(Debug, Default)]
pub struct Families(BTreeMap<String, Family>);

#[derive(Debug)]
struct Family {
    kind: Kind,
    help: &'static str,
    samples: String,
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

impl Families {
    /// Adds a sample.
    pub fn add(&mut self, name: &str, (kind, help): (Kind, &'static str), labels: Labels, value: f64) {
        let family = self.family(name, kind, help);
        line(&mut family.samples, name, labels, value);
    }

    /// Adds a histogram. `counts`: what lies in each bucket, and each bucket's upper bound; what lies above
    /// the last bound is counted with `f64::INFINITY`.
    pub fn add_histogram(
        &mut self,
        name: &str,
        help: &'static str,
        labels: Labels,
        counts: impl Iterator<Item = (f64, u64)>,
        sum: f64,
    ) {
        let family = self.family(name, Kind::Histogram, help);
        let mut total = 0;
        let mut bound_text = String::new();
        for (bound, count) in counts {
            total += count;
            if bound.is_finite() {
                bound_text.clear();
                // Writing to a string can't fail.
                let _ = write!(bound_text, "{bound}");
                let with_bound: Vec<_> = labels.iter().copied().chain([("le", &*bound_text)]).collect();
                line(&mut family.samples, &format!("{name}_bucket"), &with_bound, total as f64);
            }
        }
        let with_bound: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
        line(&mut family.samples, &format!("{name}_bucket"), &with_bound, total as f64);
        line(&mut family.samples, &format!("{name}_sum"), labels, sum);
        line(&mut family.samples, &format!("{name}_count"), labels, total as f64);
    }

    fn family(&mut self, name: &str, kind: Kind, help: &'static str) -> &mut Family {
        self.0.entry(name.to_owned()).or_insert_with(|| Family { kind, help, samples: String::new() })
    }

    /// All of them as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.0 {
            let kind = match family.kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
                Kind::Histogram => "histogram",
                Kind::Untyped => "untyped",
            };
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
            text += &family.samples;
        }
        text
    }
}

fn line(out: &mut String, name: &str, labels: Labels, value: f64) {
    *out += name;
    for (number, (label, value)) in labels.iter().enumerate() {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{}{label}=\"{escaped}\"", if number == 0 { '{' } else { ',' });
    }
    let _ = writeln!(out, "{} {value}", if labels.is_empty() { "" } else { "}" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_family_stand_together() {
        let mut families = Families::default();
        for (name, value) in [("b", 1.0), ("a", 0.5), ("b", 18_446_744_073_709_552_000.0)] {
            families.add(name, (Kind::Gauge, "Help."), &[("pool", "a\"\\b\n")], value);
        }
        let counts = [(0.1, 2), (1.0, 0), (f64::INFINITY, 3)];
        families.add_histogram("h", "Help.", &[], counts.into_iter(), 7.0);
        let wanted = "# HELP a Help.\n# TYPE a gauge\na{pool=\"a\\\"\\\\b\\n\"} 0.5\n\
            # HELP b Help.\n# TYPE b gauge\nb{pool=\"a\\\"\\\\b\\n\"} 1\n\
            b{pool=\"a\\\"\\\\b\\n\"} 18446744073709552000\n\
            # HELP h Help.\n# TYPE h histogram\nh_bucket{le=\"0.1\"} 2\nh_bucket{le=\"1\"} 2\n\
            h_bucket{le=\"+Inf\"} 5\nh_sum 7\nh_count 5\n";
        assert_eq!(families.text(), wanted);
    }
}
