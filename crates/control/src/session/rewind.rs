//! Rewinding to an older state: choice of the state, its loss, and the rewind itself.

use std::fmt;

use cenote_engine::OlderState;
use cenote_format::units::Txg;
use cenote_inspect::rewind::{Reach, newest_that_opens, newest_whole};
use cenote_pool::FoundPool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Session;
use crate::caller::Progress;
use crate::error::ControlError;
use crate::text::ctime;

/// The target state of a rewind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WayBack {
    /// Txg.
    pub txg: Txg,
    /// Time in seconds since 1970.
    pub timestamp_s: u64,
    /// The txg of the newest uberblock.
    pub newest: Txg,
    /// The loss from rewinding to it.
    pub lost: Lost,
}

/// The period whose changes are lost: from the older state to the newest uberblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lost {
    /// Length in seconds.
    pub seconds: u64,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        const DAY: u64 = 24 * HOUR;
        // Timestamps have whole seconds.
        let (count, unit) = match self.seconds.max(1) {
            seconds if seconds < 2 * MINUTE => (seconds, "second"),
            seconds if seconds < 2 * HOUR => (seconds.div_ceil(MINUTE), "minute"),
            seconds if seconds < 2 * DAY => (seconds.div_ceil(HOUR), "hour"),
            seconds => (seconds.div_ceil(DAY), "day"),
        };
        write!(f, "{count} {unit}{}", if count == 1 { "" } else { "s" })
    }
}

impl WayBack {
    fn of(found: &FoundPool, state: &OlderState) -> WayBack {
        let at = state.uberblock();
        let newest = found.uberblocks.first().unwrap_or(at);
        let lost = Lost { seconds: newest.timestamp_s.saturating_sub(at.timestamp_s) };
        WayBack { txg: at.txg, timestamp_s: at.timestamp_s, newest: newest.txg, lost }
    }

    /// Whether it is the newest state, so that nothing is lost.
    pub fn is_newest(&self) -> bool {
        self.txg == self.newest
    }

    /// The time of the state, as text.
    pub fn time(&self) -> String {
        ctime(self.timestamp_s.cast_signed())
    }
}

impl Session {
    /// The state to which a pool could be rewound: a quick check that reads no file contents. Writes nothing.
    pub async fn way_back(&self, found: &FoundPool) -> Option<WayBack> {
        let state = newest_that_opens(self.runtime(), found, &self.newest(found)).await.ok()?;
        Some(WayBack::of(found, &state))
    }

    /// Finds a pool's newest state with everything intact, or only metadata. Writes nothing.
    pub async fn find_whole(
        &self,
        found: &FoundPool,
        reach: Reach,
    ) -> Result<(OlderState, WayBack), ControlError> {
        let console = &self.caller().console;
        let state = newest_whole(self.runtime(), found, &self.newest(found), reach, |now| {
            let (done_bytes, total_bytes) = (now.done_bytes, now.total_bytes);
            console.progress(Some(Progress {
                what: "looking for an intact state:",
                done_bytes,
                total_bytes,
            }));
        })
        .await?;
        console.progress(None);
        let way = WayBack::of(found, &state);
        Ok((state, way))
    }

    /// Permanently rewinds a pool to that state. The caller has checked that the pool may be taken.
    pub async fn rewind_to_whole(&self, found: &FoundPool, reach: Reach) -> Result<WayBack, ControlError> {
        let (found, taking) = self.open_behind_gate(found).await?;
        let (state, way) = self.find_whole(&found, reach).await?;
        self.only_write(state.make_newest().await?, &taking).await?;
        Ok(way)
    }
}

#[cfg(test)]
mod tests {
    use super::Lost;

    #[test]
    fn lost_time_is_told_in_the_unit_that_fits() {
        for (seconds, words) in [
            (0, "1 second"),
            (1, "1 second"),
            (119, "119 seconds"),
            (130, "3 minutes"),
            (7_200, "2 hours"),
            (200_000, "3 days"),
        ] {
            assert_eq!(Lost { seconds }.to_string(), words);
        }
    }
}
