//! What the task whose turn it is to commit knows of those before it.

use std::collections::VecDeque;

/// `ZIL_BURSTS`: commits whose sizes foretell that of the next.
const BURSTS: usize = 8;

/// What whose turn it is knows of those before.
#[derive(Default)]
pub(crate) struct Turn {
    /// All numbers up to this one have been served.
    pub(crate) served: u64,
    /// Bytes of the last commits.
    pub(crate) bursts: VecDeque<u64>,
}

impl Turn {
    pub(crate) fn note(&mut self, burst_bytes: u64) {
        self.bursts.truncate(BURSTS - 1);
        self.bursts.push_front(burst_bytes);
    }
}
