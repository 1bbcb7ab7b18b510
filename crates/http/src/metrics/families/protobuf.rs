//! The protobuf format: length-delimited messages of `io.prometheus.client`.
//!
//! ```text
//!   MetricFamily  1 name, 2 help, 3 type, 4 metric...
//!   Metric        1 label (1 name, 2 value)..., 2 gauge, 3 counter, 5 untyped (each: 1 value), 7 histogram
//!   Histogram     1 count, 2 sum, 3 bucket (1 cumulative count, 2 upper bound)...
//!                 5 schema, 6 zero threshold, 7 zero count, 12 span (1 offset, 2 length), 13 delta...
//! ```
//!
//! Bounds of a native histogram of schema 0 are powers of two: bucket `i` ends at 2^i. A span is the index of
//! its first bucket and a length. Deltas are differences between successive counts.
//!
//! Source: Prometheus's `client_model`, `metrics.proto`.

use super::{Family, Histogram, Kind, Labels};

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Message {
        self.varint(field << 3 | VARINT);
        self.varint(value);
        self
    }

    /// `sint32`, `sint64`: zigzag encoding.
    fn signed(self, field: u64, value: i64) -> Message {
        self.number(field, (value << 1 ^ value >> 63).cast_unsigned())
    }

    fn double(mut self, field: u64, value: f64) -> Message {
        self.varint(field << 3 | FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        self.varint(field << 3 | BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn message(self, field: u64, value: Message) -> Message {
        self.bytes(field, &value.0)
    }
}

/// Metric type number.
fn number_of(kind: Kind) -> u64 {
    match kind {
        Kind::Counter => 0,
        Kind::Gauge => 1,
        Kind::Untyped => 3,
        Kind::Histogram => 4,
    }
}

pub fn family(out: &mut Vec<u8>, name: &str, family: &Family) {
    let head = Message::default().bytes(1, name.as_bytes()).bytes(2, family.help.as_bytes());
    let head = head.number(3, number_of(family.kind));
    let mut length = Message::default();
    length.varint((head.0.len() + family.samples.len()) as u64);
    out.extend(length.0);
    out.extend(head.0);
    out.extend(&family.samples);
}

fn labelled(labels: Labels) -> Message {
    labels.iter().fold(Message::default(), |metric, (name, value)| {
        metric.message(1, Message::default().bytes(1, name.as_bytes()).bytes(2, value.as_bytes()))
    })
}

/// Appends a metric as a field of its family.
fn put(out: &mut Vec<u8>, metric: Message) {
    out.extend(Message::default().message(4, metric).0);
}

pub fn sample(out: &mut Vec<u8>, kind: Kind, labels: Labels, value: f64) {
    let field = match kind {
        Kind::Gauge => 2,
        Kind::Counter => 3,
        Kind::Untyped | Kind::Histogram => 5,
    };
    put(out, labelled(labels).message(field, Message::default().double(1, value)));
}

pub fn histogram(out: &mut Vec<u8>, labels: Labels, histogram: &Histogram) {
    let mut message = Message::default().number(1, histogram.count()).double(2, histogram.sum);
    for (bound, count) in histogram.cumulative().chain([(f64::INFINITY, histogram.count())]) {
        message = message.message(3, Message::default().number(1, count).double(2, bound));
    }
    message = message.signed(5, 0).double(6, 0.0).number(7, 0);
    let is_there = |count: &u64| *count > 0;
    let first = histogram.counts.iter().position(is_there).unwrap_or(0);
    let length = histogram.counts.iter().rposition(is_there).map_or(0, |last| last + 1 - first);
    // Without a span, Prometheus would see only a classic histogram.
    let offset = first as i64 + 1 + i64::from(histogram.unit_log2);
    message = message.message(12, Message::default().signed(1, offset).number(2, length as u64));
    let mut before = 0;
    for &count in &histogram.counts[first..][..length] {
        let count = count.cast_signed();
        message = message.signed(13, count.wrapping_sub(before));
        before = count;
    }
    put(out, labelled(labels).message(7, message));
}

#[cfg(test)]
mod tests {
    use super::super::{Families, Format};
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_need_be() {
        assert_eq!(Message::default().number(1, 300).0, [0x08, 0xac, 0x02]);
        assert_eq!(Message::default().signed(5, -3).0, [0x28, 0x05]);
        assert_eq!(Message::default().bytes(2, b"x").0, [0x12, 1, b'x']);
    }

    #[test]
    fn a_family_is_a_message_behind_its_length() {
        let mut families = Families::new(Format::Protobuf);
        families.add("up", (Kind::Gauge, "H"), &[("a", "b")], 1.0);
        let metric = b"\x0a\x06\x0a\x01a\x12\x01b\x12\x09\x09\0\0\0\0\0\0\xf0\x3f";
        let family = [b"\x0a\x02up\x12\x01H\x18\x01\x22", &[metric.len() as u8][..], metric].concat();
        assert_eq!(families.written(), [&[family.len() as u8][..], &family].concat());
    }

    #[test]
    fn a_histogram_has_both_forms() {
        let mut out = Vec::new();
        let counts = [0, 2, 5, 0, 1, 0];
        histogram(
            &mut out,
            &[],
            &Histogram { counts: &counts, shown: (2, 2), unit: 1.0, unit_log2: -4, sum: 0.0 },
        );
        // The native form: a span of four buckets from index -2, then the deltas 2, 3, -5, 1.
        let native =
            [b"\x28\0\x31\0\0\0\0\0\0\0\0\x38\0".as_slice(), b"\x62\x04\x08\x03\x10\x04", b"\x68\x04"]
                .concat();
        assert!(out.windows(native.len()).any(|found| found == native), "{out:x?}");
        assert!(out.ends_with(b"\x68\x04\x68\x06\x68\x09\x68\x02"), "{out:x?}");
    }
}
