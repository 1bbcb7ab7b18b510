//! The copies of datasets that the agent keeps on other pools and machines, for metrics and alerts.
//!
//! Locking: one mutex, held for one look or change.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// A copy, by its source and target as the rule names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// End of the last run, in seconds since 1970.
    pub ran_s: u64,
    /// Why the last run failed; `None`: it did not.
    pub failed: Option<String>,
    /// When the oldest state of a dataset of the copy was taken at its source, in seconds since 1970; `None`:
    /// there is none yet.
    pub state_of_s: Option<u64>,
    /// Bytes sent since the daemon's start.
    pub sent_bytes: u64,
}

impl Copied {
    /// How old the copy's state is.
    pub fn lag_s(&self, now_s: u64) -> Option<u64> {
        self.state_of_s.map(|state_of_s| now_s.saturating_sub(state_of_s))
    }
}

/// All copies.
#[derive(Debug, Default)]
pub struct Copies(Mutex<BTreeMap<(String, String), Copied>>);

impl Copies {
    /// Changes what is known of one.
    pub fn note(&self, (source, target): (&str, &str), change: impl FnOnce(&mut Copied)) {
        change(self.0.lock().entry((source.into(), target.into())).or_default());
    }

    /// One of them; `None`: no run has ended.
    pub fn of(&self, source: &str, target: &str) -> Option<Copied> {
        self.0.lock().get(&(source.into(), target.into())).cloned()
    }

    /// All of them.
    pub fn all(&self) -> BTreeMap<(String, String), Copied> {
        self.0.lock().clone()
    }
}
