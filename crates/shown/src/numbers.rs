//! Numbers in answers: rounded for people, or exact; text or numbers in JSON.

use cenote_control::text::{nice_bytes, nice_number};
use serde_json::Value;

/// How numbers are printed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Numbers {
    /// Exact rather than rounded.
    pub exact: bool,
    /// JSON numbers rather than text.
    pub as_numbers: bool,
}

impl Numbers {
    /// A count: `12.3K`.
    pub fn count(self, count: u64) -> String {
        if self.exact { count.to_string() } else { nice_number(count) }
    }

    /// Bytes: `512B`, `12.3K`.
    pub fn bytes(self, bytes: u64) -> String {
        if self.exact { bytes.to_string() } else { nice_bytes(bytes) }
    }

    /// A number in JSON, never rounded.
    pub fn whole(self, number: u64) -> Value {
        self.value(&number.to_string())
    }

    /// A value in JSON: a number if it is one and numbers are wanted, otherwise text.
    pub fn value(self, text: &str) -> Value {
        match text.parse::<u64>() {
            Ok(number) if self.as_numbers => number.into(),
            _ => text.into(),
        }
    }
}

/// The share of hits in percent: `97`; a dash if there was nothing to hit.
pub(crate) fn hit_percent(hits: u64, misses: u64) -> String {
    match hits + misses {
        0 => "-".into(),
        all => format!("{:.0}", hits as f64 * 100.0 / all as f64),
    }
}

/// A share in percent: `97.3 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
