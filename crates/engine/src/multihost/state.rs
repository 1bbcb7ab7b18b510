//! The state of heartbeats, apart from the engine.

use std::collections::{BTreeSet, VecDeque};
use std::sync::OnceLock;
use std::time::Duration;

use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg};
use cenote_pool::multihost::{MultihostSettings, Stake};
use cenote_runtime::{AbortOnDrop, Instant, Runtime, Watched};
use parking_lot::Mutex;

/// The delay is a decaying average of the last heartbeats.
const DECAY: u64 = 128;
/// After a reduction of the tunables, the time without heartbeats falls by this part at a time.
const SMOOTHING: u32 = 32;
/// Heartbeats kept (`zfs_multihost_history`).
const HISTORY: usize = 100;

pub(crate) struct Multihost {
    pub(super) runtime: Runtime,
    pub(super) settings: MultihostSettings,
    pub(super) state: Mutex<State>,
    /// Of a pool that another machine may claim before the first change.
    pub(super) stake: OnceLock<Stake>,
    /// Wakes the task; closed with the engine.
    pub(super) orders: Watched<u64>,
    pub(super) task: Mutex<Option<AbortOnDrop<()>>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) is_on: bool,
    /// The property is off in the syncing txg.
    pub(super) is_ending: bool,
    /// Changes have begun, and not ended.
    pub(super) is_beating: bool,
    /// When the last heartbeat that landed was begun: from then on no other machine can have watched.
    pub(super) sure: Instant,
    pub(super) landed: Instant,
    pub(super) delay_ns: u64,
    /// Of the last heartbeat.
    pub(super) stamp: (u64, u16),
    pub(super) last_leaf: Option<Guid>,
    pub(super) pending: BTreeSet<Guid>,
    /// Time without heartbeats until the engine stops; zero: it never does.
    pub(super) patience: Duration,
    pub(super) known: (Duration, u32),
    /// Heartbeats to be written soon.
    pub(super) soon: usize,
    pub(super) counts: BeatCounts,
    pub(super) history: VecDeque<BeatRecord>,
    pub(super) next_id: u64,
}

/// Heartbeats so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BeatCounts {
    /// Written.
    pub written: u64,
    /// Failed.
    pub failed: u64,
    /// Not written, because no leaf could take one.
    pub skipped: u64,
}

/// A heartbeat, as in OpenZFS's kstat `multihost`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct BeatRecord {
    /// Number.
    pub id: u64,
    /// Txg of its uberblock.
    pub txg: Txg,
    /// When it was begun, in seconds since 1970.
    pub timestamp_s: u64,
    /// Decaying average of the time between heartbeats.
    pub delay_ns: u64,
    /// The leaf; none: it was skipped.
    pub leaf: Option<Guid>,
    /// Time it took; none: under way.
    pub duration_ns: Option<u64>,
    /// Whether it failed.
    pub failed: bool,
    /// Heartbeats skipped in a row.
    pub skipped: u64,
}

impl Multihost {
    pub(crate) fn new(runtime: &Runtime, is_on: bool) -> Multihost {
        let settings = MultihostSettings::default();
        let delay_ns = if is_on { nanos(settings.interval()) } else { 0 };
        Multihost {
            runtime: runtime.clone(),
            state: State { is_on, delay_ns, ..State::default() }.into(),
            settings,
            stake: OnceLock::new(),
            orders: Watched::new(0),
            task: Mutex::default(),
        }
    }

    /// An uberblock of a txg with the present settings.
    pub(crate) fn stamp(&self, uberblock: Uberblock) -> Uberblock {
        let state = self.state.lock();
        let is_on = state.is_on && !state.is_ending;
        uberblock.with_mmp(is_on.then(|| (state.delay_ns, self.settings.recorded(0))))
    }

    pub(super) fn order(&self) {
        self.orders.modify(|orders| *orders += 1);
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl State {
    /// Follows the tunables. A shorter patience comes gradually, so that heartbeats at the old pace suffice.
    pub(super) fn follow(&mut self, settings: &MultihostSettings, leaves: u32) {
        let (interval, fails) = (settings.interval(), settings.fail_intervals());
        let patience = interval * fails;
        self.patience = match patience < self.patience && fails > 0 {
            true => (self.patience * (SMOOTHING - 1) + patience) / SMOOTHING,
            false => patience,
        };
        if self.known != (interval, fails) && self.known != Default::default() {
            self.soon += leaves as usize;
        }
        self.known = (interval, fails);
    }

    pub(super) fn landed(&mut self, settings: &MultihostSettings, began: Instant, now: Instant, leaves: u32) {
        let since_ns = nanos(now - self.landed);
        self.delayed(now);
        (self.sure, self.landed) = (self.sure.max(began), now);
        if self.is_on && since_ns < self.delay_ns {
            let least_ns = nanos(settings.interval() / leaves.max(1));
            self.delay_ns = (since_ns.saturating_add(self.delay_ns * (DECAY - 1)) / DECAY).max(least_ns);
        }
    }

    /// A sudden delay counts at once, since an importer must wait for it.
    pub(super) fn delayed(&mut self, now: Instant) {
        let since_ns = nanos(now - self.landed);
        self.delay_ns = if self.is_on { self.delay_ns.max(since_ns).max(1) } else { 0 };
    }

    /// The time and number of the next heartbeat, which must be newer than the last, although clocks are set
    /// back. Numbers begin anew with each second.
    pub(super) fn next_stamp(&mut self, now_s: u64) -> (u64, u16) {
        self.stamp = match self.stamp {
            (second, _) if now_s > second => (now_s, 1),
            (second, u16::MAX) => (second + 1, 1),
            (second, seq) => (second, seq + 1),
        };
        self.stamp
    }

    pub(super) fn note(&mut self, record: BeatRecord) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(BeatRecord { id, ..record });
        id
    }

    pub(super) fn skipped(&mut self, txg: Txg, now_s: u64) {
        self.counts.skipped += 1;
        match self.history.back_mut().filter(|last| last.leaf.is_none()) {
            Some(last) => last.skipped += 1,
            None => {
                let record = BeatRecord {
                    txg,
                    timestamp_s: now_s,
                    delay_ns: self.delay_ns,
                    skipped: 1,
                    ..Default::default()
                };
                self.note(record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::State;

    #[test]
    fn each_heartbeat_is_newer_than_the_last_even_if_the_clock_is_set_back() {
        let mut state = State { stamp: (100, 7), ..State::default() };
        let clock = [90, 90, 100, 101, 101, 50];
        let stamps = clock.map(|now_s| state.next_stamp(now_s));
        assert_eq!(stamps, [(100, 8), (100, 9), (100, 10), (101, 1), (101, 2), (101, 3)]);
        state.stamp = (200, u16::MAX);
        assert_eq!(state.next_stamp(200), (201, 1));
    }
}
