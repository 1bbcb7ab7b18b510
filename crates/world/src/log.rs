//! The log of a world: all events, and their hash.

use cenote_runtime::Instant;

use crate::model::{Call, CallId, Outcome};
use crate::oracle::linear::{shown, shown_outcome};

/// Lines, and their hash.
#[derive(Default)]
pub struct Log {
    lines: Vec<String>,
    hash: u64,
}

impl Log {
    /// A call begins.
    pub fn begin(&mut self, now: Instant, id: CallId, call: &Call) {
        self.add(now, &format!("{id} > {}", shown(call)));
    }

    /// A call ends.
    pub fn end(&mut self, now: Instant, id: CallId, outcome: &Outcome) {
        self.add(now, &format!("{id} < {}", shown_outcome(outcome)));
    }

    /// Something else happens.
    pub fn note(&mut self, now: Instant, what: &str) {
        self.add(now, &format!("--- {what}"));
    }

    fn add(&mut self, now: Instant, text: &str) {
        let line = format!("{:>12} {text}", now.as_ns() / 1000);
        line.bytes().for_each(|byte| self.mix(byte.into()));
        self.lines.push(line);
    }

    /// Order counts: rotate, combine, multiply by an odd constant.
    pub fn mix(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(23) ^ value).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Equal hashes mean equal histories.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Microseconds of a life, and the event.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}
