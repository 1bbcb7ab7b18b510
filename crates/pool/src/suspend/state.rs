//! The suspension state of a pool, and its reason.

use cenote_format::units::{Txg, VdevId};
use cenote_runtime::{Instant, Watched};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The pool property `failmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailMode {
    /// Changes wait.
    Wait,
    /// Changes fail until the pool resumes.
    Continue,
    /// The program ends at once.
    Panic,
}

impl FailMode {
    /// The displayed value.
    pub fn name(self) -> &'static str {
        match self {
            FailMode::Wait => "wait",
            FailMode::Continue => "continue",
            FailMode::Panic => "panic",
        }
    }

    /// Decodes the stored value: `wait`, `continue`, `panic`.
    pub fn of_property(stored: u64) -> FailMode {
        match stored {
            1 => FailMode::Continue,
            2 => FailMode::Panic,
            _ => FailMode::Wait,
        }
    }
}

/// Why a pool accepts no changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standstill {
    /// It waits for its devices, in this mode.
    Suspended(FailMode),
    /// A txg could not be written; the pool must be reopened.
    Stopped,
    /// Multihost heartbeats failed: another machine may have it. The pool must be reopened.
    Multihost,
}

/// Which reads through a view wait for failed devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// None, and not for long for devices that don't answer: commands that look.
    Briefly,
    /// None.
    Never,
    /// All, if `failmode` is `wait`.
    AsClient,
    /// All.
    AsTxg,
}

/// A suspension and its cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspended {
    /// Time of the first failure.
    pub since: Instant,
    /// The unwritten txg.
    pub txg: Txg,
    /// The vdev that failed last.
    pub vdev: VdevId,
    /// Its error.
    pub why: Arc<str>,
    /// What it waits for.
    pub cause: Cause,
}

/// The cause of a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Devices fail (`ZIO_SUSPEND_IOERR`).
    Devices,
    /// Heartbeats failed (`ZIO_SUSPEND_MMP`): it never resumes.
    Multihost,
}

/// Whether a pool waits for its devices. Shared by all views.
pub struct Suspension(pub(super) Watched<State>);

#[derive(Default)]
pub(super) struct State {
    pub(super) mode: Option<FailMode>,
    pub(super) suspended: Option<Suspended>,
    /// Waiting writes, flushes and labels, which a successful read does not resume.
    pub(super) failing_writes: usize,
    /// Incremented to retry all waiting operations.
    pub(super) tries: u64,
    pub(super) is_given_up: bool,
    pub(super) is_stopped: bool,
    pub(super) is_fenced: bool,
}

impl Default for Suspension {
    fn default() -> Suspension {
        Suspension(Watched::new(State::default()))
    }
}

impl Suspension {
    /// Sets whether failing writes wait; with `None` their errors are returned.
    pub fn set_failmode(&self, mode: Option<FailMode>) {
        self.0.modify(|state| state.mode = mode);
    }

    /// The mode in effect.
    pub fn failmode(&self) -> Option<FailMode> {
        self.0.borrow().mode
    }

    /// Why the pool is suspended, if it is.
    pub fn suspended(&self) -> Option<Suspended> {
        self.0.borrow().suspended.clone()
    }

    /// Retries all waiting operations.
    pub fn resume(&self) {
        self.0.modify(|state| state.tries += 1);
    }

    /// Fails all waiting operations, and all that would wait later.
    pub fn give_up(&self) {
        self.0.modify(|state| state.is_given_up = true);
    }

    /// Suspends the pool for good: heartbeats failed. Waiting operations fail, and all that would wait later.
    pub fn fence(&self, now: Instant, txg: Txg, why: &str) {
        let suspended =
            Suspended { since: now, txg, vdev: VdevId(0), why: why.into(), cause: Cause::Multihost };
        self.0.modify(|state| {
            state.suspended = Some(suspended);
            (state.is_given_up, state.is_fenced) = (true, true);
        });
    }

    /// Waits until [`Suspension::fence`] is called.
    pub async fn fenced(&self) {
        let mut states = self.0.watch();
        // The sender is part of the pool.
        states.until(|state| state.is_fenced).await.ok();
    }

    /// Records that no txg will be written any more.
    pub fn note_stopped(&self) {
        self.0.modify(|state| state.is_stopped = true);
    }

    /// Why the pool accepts no changes, if so.
    pub fn standstill(&self) -> Option<Standstill> {
        let state = self.0.borrow();
        match (&state.suspended, state.mode) {
            _ if state.is_fenced => Some(Standstill::Multihost),
            _ if state.is_stopped => Some(Standstill::Stopped),
            (Some(_), Some(mode)) => Some(Standstill::Suspended(mode)),
            _ => None,
        }
    }

    /// Waits until the pool is suspended or resumed; returns the reason if suspended.
    pub async fn suspended_or_not(&self, is_suspended: bool) -> Option<Suspended> {
        let mut states = self.0.watch();
        // The sender is part of the pool.
        let state = states.until(|state| state.suspended.is_some() == is_suspended).await;
        state.ok().and_then(|state| state.suspended.clone())
    }
}
