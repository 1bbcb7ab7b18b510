//! Named counters from a kstat.
//!
//! A named kstat has a line of numbers about itself, a header line, then lines of `name type value`.

use std::collections::BTreeMap;

/// Width of the name column (`KSTAT_NAMED`: `%-31s %-4d value`).
const NAME_COLUMNS: usize = 31;

/// Named counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters(pub BTreeMap<String, u64>);

impl Counters {
    /// Parses a named kstat.
    pub fn of_kstat(text: &str) -> Counters {
        Counters(
            named(text).filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect(),
        )
    }

    /// Value of a counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Value of a counter; 0 if absent.
    pub fn or_zero(&self, name: &str) -> u64 {
        self.get(name).unwrap_or(0)
    }

    /// `part` of `part + rest`, in percent; None if both are 0 or unknown.
    pub fn percent(&self, part: &str, rest: &str) -> Option<f64> {
        let (part, rest) = (self.get(part)? as f64, self.get(rest)? as f64);
        (part + rest > 0.0).then(|| part / (part + rest) * 100.0)
    }
}

/// Names and values of a named kstat, including strings.
pub fn named(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().skip(2).filter_map(|line| {
        // Names (`512 ns`) and strings may contain spaces, so split by columns, unless the name overflows its
        // own.
        let (name, rest) = match line.as_bytes().get(NAME_COLUMNS) {
            Some(b' ') => line.split_at_checked(NAME_COLUMNS)?,
            _ => line.split_once(' ')?,
        };
        let (kind, value) = rest.trim_start().split_once(' ')?;
        (kind.len() == 1).then(|| (name.trim_end(), value.trim()))
    })
}
