//! Whether a pool waits for its devices, and why.

use cenote_format::units::{Txg, VdevId};
use cenote_runtime::Instant;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::watch;

/// The pool property `failmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailMode {
    /// Those who change the pool wait.
    Wait,
    /// They get an error, until the pool goes on.
    Continue,
    /// The program ends at once.
    Panic,
}

impl FailMode {
    /// As the property is shown.
    pub fn name(self) -> &'static str {
        match self {
            FailMode::Wait => "wait",
            FailMode::Continue => "continue",
            FailMode::Panic => "panic",
        }
    }

    /// As the property is stored: `wait`, `continue`, `panic`.
    pub fn of_property(stored: u64) -> FailMode {
        match stored {
            1 => FailMode::Continue,
            2 => FailMode::Panic,
            _ => FailMode::Wait,
        }
    }
}

/// Why a pool takes no changes at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standstill {
    /// It waits for its devices, and does so as this says.
    Suspended(FailMode),
    /// A txg could not be written: it has to be opened again.
    Stopped,
}

/// Which reads through a view wait for devices that don't work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// None, and not for long for devices that don't answer: commands that look.
    Briefly,
    /// None.
    Never,
    /// If `failmode` is `wait`.
    AsClient,
    /// All.
    AsTxg,
}

/// Why a pool waits, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspended {
    /// Since the first failure.
    pub since: Instant,
    /// The txg that could not be written.
    pub txg: Txg,
    /// The vdev that failed last.
    pub vdev: VdevId,
    /// How.
    pub why: Arc<str>,
}

/// The state of a pool in this respect.
pub(crate) struct Suspension(pub(super) watch::Sender<State>);

#[derive(Default)]
pub(super) struct State {
    pub(super) mode: Option<FailMode>,
    pub(super) suspended: Option<Suspended>,
    /// Writes, flushes and labels that wait: a read that succeeds does not say that these would.
    pub(super) failing_writes: usize,
    /// Grows when all that waits is to be tried again.
    pub(super) tries: u64,
    pub(super) is_given_up: bool,
    pub(super) is_stopped: bool,
}

impl Default for Suspension {
    fn default() -> Suspension {
        Suspension(watch::Sender::new(State::default()))
    }
}
