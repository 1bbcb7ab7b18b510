//! State passed from one commit to the next.

use std::collections::VecDeque;

/// `ZIL_BURSTS`: commits whose sizes predict the next.
const BURSTS: usize = 8;

#[derive(Default)]
pub(crate) struct Turn {
    /// All numbers up to this one are served.
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
