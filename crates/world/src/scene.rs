//! The calls of all clients, as the oracle and the log see them.
//!
//! Locking: one mutex, held for one beginning or end.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_runtime::Runtime;
use parking_lot::Mutex;

use crate::log::Log;
use crate::model::{Action, Call, CallId, ClientId, DatasetId, Outcome, Pool};
use crate::oracle::{Oracle, Violation};

/// The history of a world, over all lives of its machine.
#[derive(Default)]
pub struct Scene(Mutex<State>);

#[derive(Default)]
struct State {
    oracle: Oracle,
    log: Log,
    begun: CallId,
    ended: u64,
    /// Names are never used again.
    names: BTreeMap<String, DatasetId>,
    violation: Option<Violation>,
    is_resting: bool,
}

impl Scene {
    /// Begins a call; in a script it has its number already.
    pub fn begin(&self, runtime: &Runtime, id: Option<CallId>, client: ClientId, action: Action) -> CallId {
        let state = &mut *self.0.lock();
        let id = id.unwrap_or(state.begun + 1);
        state.begun = state.begun.max(id);
        match &action {
            Action::Create { name, .. } | Action::Clone { name, .. } => {
                state.names.insert(name.clone(), id);
            }
            Action::RenameDataset { dataset, name } => {
                state.names.insert(name.clone(), *dataset);
            }
            _ => {}
        }
        let call = Arc::new(Call { client, action });
        state.log.begin(runtime.now(), id, &call);
        state.oracle.begin(id, call);
        id
    }

    /// Ends a call. A wrong outcome ends the world.
    pub fn end(&self, runtime: &Runtime, id: CallId, outcome: &Outcome) {
        let state = &mut *self.0.lock();
        state.ended += 1;
        state.log.end(runtime.now(), id, outcome);
        if state.violation.is_none() {
            state.violation = state.oracle.end(id, outcome).err();
        }
    }

    /// Notes something else.
    pub fn note(&self, runtime: &Runtime, what: &str) {
        self.0.lock().log.note(runtime.now(), what);
    }

    /// A state that the pool may have, for clients to choose by.
    pub fn state(&self) -> Pool {
        self.0.lock().oracle.states().next().cloned().unwrap_or_default()
    }

    /// All names that a dataset has, had, or may get.
    pub fn names_of(&self, dataset: DatasetId) -> Vec<String> {
        let state = self.0.lock();
        state.names.iter().filter(|(_, of)| **of == dataset).map(|(name, _)| name.clone()).collect()
    }

    /// A number that no call had yet, for new names.
    pub fn next(&self) -> CallId {
        self.0.lock().begun + 1
    }

    /// Calls that ended.
    pub fn ended(&self) -> u64 {
        self.0.lock().ended
    }

    /// Whether the history is wrong.
    pub fn is_wrong(&self) -> bool {
        self.0.lock().violation.is_some()
    }

    /// Clients stop after the call at hand.
    pub fn rest(&self) {
        self.0.lock().is_resting = true;
    }

    /// Whether clients stop.
    pub fn is_over(&self) -> bool {
        let state = self.0.lock();
        state.is_resting || state.violation.is_some()
    }

    /// The first fault of the history.
    pub fn violation(&self) -> Option<Violation> {
        self.0.lock().violation.clone()
    }

    /// Asks the oracle about something else than a call.
    pub fn judge(&self, judge: impl FnOnce(&mut Oracle) -> Result<(), Violation>) {
        let state = &mut *self.0.lock();
        if state.violation.is_none() {
            state.violation = judge(&mut state.oracle).err();
        }
    }

    /// The log, for reports.
    pub fn with_log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.0.lock().log)
    }

    /// A life of the machine has ended with this hash of its steps.
    pub fn mix(&self, steps: u64) {
        self.0.lock().log.mix(steps);
    }
}
