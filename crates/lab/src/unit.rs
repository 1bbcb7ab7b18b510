//! Units of measurements, and formatting of their values.

use serde::{Deserialize, Serialize};

/// Unit of a value. Values are stored in base units (bytes, nanoseconds, counts); only formatting scales
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Operations (or files, or inodes) per second.
    PerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// Number of things.
    Count,
    /// Percent.
    Percent,
    /// Degrees Celsius.
    Celsius,
    /// A plain number: a ratio, a load.
    Number,
}

/// Better direction of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Throughput.
    Higher,
    /// Latency, duration.
    Lower,
    /// No preference.
    Neither,
}

const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl Unit {
    /// Value with its unit, scaled, with three significant digits: `1.84 GiB/s`, `12.7 k/s`, `566 ms`.
    pub fn show(self, value: f64) -> String {
        let (divisor, name) = self.scale(value);
        let space = if name.is_empty() || name == "%" { "" } else { " " };
        format!("{}{space}{name}", digits(value / divisor))
    }

    /// Divisor and scaled unit for values of about this size: for an axis or a column.
    pub fn scale(self, about: f64) -> (f64, String) {
        let about = about.abs();
        let scaled = |factor: f64, names: &[&str], after: &str| {
            let mut divisor = 1.0;
            let mut index = 0;
            while about / divisor >= factor * 0.9995 && index + 1 < names.len() {
                divisor *= factor;
                index += 1;
            }
            (divisor, format!("{}{after}", names[index]))
        };
        match self {
            Unit::Bytes => scaled(1024.0, &BINARY, ""),
            Unit::BytesPerSecond => scaled(1024.0, &BINARY, "/s"),
            Unit::PerSecond => scaled(1000.0, &["", "k", "M", "G"], "/s"),
            Unit::Count => scaled(1000.0, &["", "k", "M", "G", "T"], ""),
            Unit::Nanoseconds if about < 60e9 => scaled(1000.0, &["ns", "us", "ms", "s"], ""),
            Unit::Nanoseconds if about < 3600e9 => (60e9, "min".into()),
            Unit::Nanoseconds => (3600e9, "h".into()),
            Unit::Percent => (1.0, "%".into()),
            Unit::Celsius => (1.0, "°C".into()),
            Unit::Number => (1.0, String::new()),
        }
    }
}

/// Three significant digits, but never fewer than the integer part has: `0.54`, `5.34`, `88.8`, `1837`.
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if !v.is_finite() => return "-".into(),
        0.0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// A number in a sentence: small ones as words.
pub fn number(number: usize) -> String {
    const SMALL: [&str; 10] = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    SMALL.get(number).map_or_else(|| number.to_string(), |word| (*word).to_owned())
}

/// A number of times: `once`, `twice`, `five times`.
pub fn times(times: u32) -> String {
    match times {
        1 => "once".into(),
        2 => "twice".into(),
        more => format!("{} times", number(more as usize)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_formatted_as_people_write_them() {
        assert_eq!(Unit::BytesPerSecond.show(1837.0 * 1048576.0), "1.79 GiB/s");
        assert_eq!(Unit::BytesPerSecond.show(317.0 * 1048576.0), "317 MiB/s");
        assert_eq!(Unit::PerSecond.show(12_700.0), "12.7 k/s");
        assert_eq!(Unit::PerSecond.show(419.0), "419 /s");
        assert_eq!(Unit::Nanoseconds.show(125_000.0), "125 us");
        assert_eq!(Unit::Nanoseconds.show(1.28e9), "1.28 s");
        assert_eq!(Unit::Nanoseconds.show(999.9e6), "1.00 s");
        assert_eq!(Unit::Percent.show(91.0), "91.0%");
        assert_eq!(Unit::Number.show(0.0), "0");
    }
}
