//! The text format, version 0.0.4.

use std::io::Write as _;

use super::{Family, Histogram, Kind, Labels};

// Writing to memory cannot fail.

pub fn family(out: &mut Vec<u8>, name: &str, family: &Family) {
    let kind = match family.kind {
        Kind::Gauge => "gauge",
        Kind::Counter => "counter",
        Kind::Histogram => "histogram",
        Kind::Untyped => "untyped",
    };
    let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
    out.extend(&family.samples);
}

pub fn sample(out: &mut Vec<u8>, name: &str, labels: Labels, value: f64) {
    out.extend(name.bytes());
    for (number, (label, value)) in labels.iter().enumerate() {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{}{label}=\"{escaped}\"", if number == 0 { '{' } else { ',' });
    }
    let _ = writeln!(out, "{} {value}", if labels.is_empty() { "" } else { "}" });
}

pub fn histogram(out: &mut Vec<u8>, name: &str, labels: Labels, histogram: &Histogram) {
    let bucket_name = format!("{name}_bucket");
    let mut bucket = |bound: &str, count: u64| {
        let with_bound: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
        sample(out, &bucket_name, &with_bound, count as f64);
    };
    for (bound, count) in histogram.cumulative() {
        bucket(&bound.to_string(), count);
    }
    bucket("+Inf", histogram.count());
    sample(out, &format!("{name}_sum"), labels, histogram.sum);
    sample(out, &format!("{name}_count"), labels, histogram.count() as f64);
}

#[cfg(test)]
mod tests {
    use super::super::{Families, Format};
    use super::*;

    #[test]
    fn samples_of_a_family_stand_together() {
        let mut families = Families::new(Format::Text);
        for (name, value) in [("b", 1.0), ("a", 0.5), ("b", 18_446_744_073_709_552_000.0)] {
            families.add(name, (Kind::Gauge, "Help."), &[("pool", "a\"\\b\n")], value);
        }
        let histogram =
            Histogram { counts: &[1, 1, 0, 0, 3], shown: (1, 2), unit: 0.5, unit_log2: -1, sum: 7.0 };
        families.add_histogram("h", "Help.", &[], &histogram);
        let wanted = "# HELP a Help.\n# TYPE a gauge\na{pool=\"a\\\"\\\\b\\n\"} 0.5\n\
            # HELP b Help.\n# TYPE b gauge\nb{pool=\"a\\\"\\\\b\\n\"} 1\n\
            b{pool=\"a\\\"\\\\b\\n\"} 18446744073709552000\n\
            # HELP h Help.\n# TYPE h histogram\nh_bucket{le=\"2\"} 2\nh_bucket{le=\"4\"} 2\n\
            h_bucket{le=\"+Inf\"} 5\nh_sum 7\nh_count 5\n";
        assert_eq!(String::from_utf8(families.written()).unwrap(), wanted);
    }
}
