//! The suspension state of a pool, and its reason.

use cenote_format::units::{Txg, VdevId};
use cenote_runtime::Instant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::watch;

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
}

pub(crate) struct Suspension(pub(super) watch::Sender<State>);

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
}

impl Default for Suspension {
    fn default() -> Suspension {
        Suspension(watch::Sender::new(State::default()))
    }
}
