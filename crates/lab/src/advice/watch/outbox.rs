//! Events on their way to a webhook: delivered in order, each retried until accepted, with growing pauses.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Event;
use crate::Result;

/// First pause after a failure, and the longest, in seconds.
const PAUSE_S: (u64, u64) = (10, 600);
/// Maximum of waiting events; the oldest are dropped first.
const MOST: usize = 1000;

/// Events not yet accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outbox {
    waiting: VecDeque<Event>,
    /// Failures since the last success.
    failures: u32,
    /// No attempt before this time.
    next_unix_s: u64,
}

impl Outbox {
    /// Number of waiting events.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues events.
    pub fn add(&mut self, events: &[Event]) {
        self.waiting.extend(events.iter().cloned());
        let too_many = self.waiting.len().saturating_sub(MOST);
        self.waiting.drain(..too_many);
    }

    /// Posts waiting events, unless a pause is in force. The first failure stops the delivery and starts a
    /// pause.
    ///
    /// # Errors
    /// That failure.
    pub fn deliver(&mut self, now_unix_s: u64, post: &mut dyn FnMut(&Event) -> Result<()>) -> Result<()> {
        // A clock set back must not cause a pause of years.
        if now_unix_s < self.next_unix_s && self.next_unix_s - now_unix_s <= PAUSE_S.1 {
            return Ok(());
        }
        while let Some(event) = self.waiting.front() {
            if let Err(error) = post(event) {
                let pause = PAUSE_S.0.saturating_mul(1 << self.failures.min(16)).min(PAUSE_S.1);
                self.failures += 1;
                self.next_unix_s = now_unix_s + pause;
                return Err(error);
            }
            self.waiting.pop_front();
            self.failures = 0;
        }
        Ok(())
    }
}
