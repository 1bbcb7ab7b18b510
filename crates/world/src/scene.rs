//! The calls of all clients, as the oracle and the log see them.
//!
//! Locking: one mutex, held for one beginning or end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cenote_engine::TxgRecord;
use cenote_runtime::Runtime;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::less::Choice;
use crate::log::Log;
use crate::model::{Action, Call, CallId, ClientId, DatasetId, Outcome, Pool};
use crate::oracle::{Oracle, Violation};
use crate::record::Record;

/// The history of a world, over all lives of its machine.
#[derive(Default)]
pub struct Scene {
    state: Mutex<State>,
    /// Notified when a call ends.
    progress: Notify,
}

#[derive(Default)]
struct State {
    oracle: Oracle,
    log: Log,
    record: Record,
    begun: CallId,
    ended: u64,
    /// Names are never used again.
    names: BTreeMap<String, DatasetId>,
    violation: Option<Violation>,
    is_resting: bool,
    /// Choices of each client so far.
    choices: BTreeMap<ClientId, u64>,
    left_out: BTreeSet<Choice>,
    /// The datasets of verbs under way.
    verbs: BTreeMap<CallId, DatasetId>,
}

impl Scene {
    /// Without these choices.
    pub fn new(left_out: BTreeSet<Choice>) -> Scene {
        Scene { state: State { left_out, ..State::default() }.into(), ..Scene::default() }
    }

    /// Whether a client carries out its next choice.
    pub fn takes(&self, client: ClientId) -> bool {
        let state = &mut *self.state.lock();
        let count = state.choices.entry(client).or_default();
        let choice = Choice { of: client, number: *count };
        *count += 1;
        !state.left_out.contains(&choice)
    }

    /// Numbers of choices.
    pub fn choices(&self) -> BTreeMap<ClientId, u64> {
        self.state.lock().choices.clone()
    }

    /// Begins a call; in a script it has its number already.
    pub fn begin(&self, runtime: &Runtime, id: Option<CallId>, client: ClientId, action: Action) -> CallId {
        let state = &mut *self.state.lock();
        let id = id.unwrap_or(state.begun + 1);
        state.begun = state.begun.max(id);
        match &action {
            Action::Create { name, .. } | Action::Clone { name, .. } | Action::Receive { name, .. } => {
                state.names.insert(name.clone(), id);
            }
            Action::RenameDataset { dataset, name } => {
                state.names.insert(name.clone(), *dataset);
            }
            _ => {}
        }
        let call = Arc::new(Call { client, action });
        if call.is_verb() {
            state.verbs.extend(call.dataset().map(|dataset| (id, dataset)));
        }
        state.log.begin(runtime.now(), id, &call);
        state.record.begin(runtime.now(), id, &call);
        state.oracle.begin(id, call);
        id
    }

    /// Ends a call. A wrong outcome ends the world.
    pub fn end(&self, runtime: &Runtime, id: CallId, outcome: &Outcome) {
        let state = &mut *self.state.lock();
        state.ended += 1;
        state.verbs.remove(&id);
        state.log.end(runtime.now(), id, outcome);
        state.record.end(runtime.now(), id, &Record::text_of(outcome));
        if state.violation.is_none() {
            state.violation = state.oracle.end(id, outcome).err();
        }
        self.progress.notify_waiters();
    }

    /// The caller gave up: the call may still take effect, at any time.
    pub fn abandon(&self, runtime: &Runtime, id: CallId, why: &str) {
        let state = &mut *self.state.lock();
        state.ended += 1;
        state.verbs.remove(&id);
        state.log.note(runtime.now(), &format!("{id} is given up: {why}"));
        state.record.end(runtime.now(), id, &format!("given up: {why}"));
        self.progress.notify_waiters();
    }

    /// Waits until this many calls have ended, or the history is wrong.
    pub async fn until(&self, ended: u64) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            if self.ended() >= ended || self.is_wrong() {
                return;
            }
            progress.await;
        }
    }

    /// Notes something else.
    pub fn note(&self, runtime: &Runtime, what: &str) {
        let state = &mut *self.state.lock();
        state.log.note(runtime.now(), what);
        state.record.note(runtime.now(), what);
    }

    /// A state that the pool may have, for clients to choose by.
    pub fn state(&self) -> Pool {
        self.state.lock().oracle.states().next().cloned().unwrap_or_default()
    }

    /// All names that a dataset has, had, or may get.
    pub fn names_of(&self, dataset: DatasetId) -> Vec<String> {
        let state = self.state.lock();
        state.names.iter().filter(|(_, of)| **of == dataset).map(|(name, _)| name.clone()).collect()
    }

    /// The dataset of the last verb under way.
    pub fn dataset_at_work(&self) -> Option<DatasetId> {
        self.state.lock().verbs.last_key_value().map(|(_, dataset)| *dataset)
    }

    /// A number that no call had yet, for new names.
    pub fn next(&self) -> CallId {
        self.state.lock().begun + 1
    }

    /// Calls that ended.
    pub fn ended(&self) -> u64 {
        self.state.lock().ended
    }

    /// Whether the history is wrong.
    pub fn is_wrong(&self) -> bool {
        self.state.lock().violation.is_some()
    }

    /// Whether clients stop after the call at hand.
    pub fn rest(&self, is_resting: bool) {
        self.state.lock().is_resting = is_resting;
    }

    /// Whether clients stop.
    pub fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.is_resting || state.violation.is_some()
    }

    /// The first fault of the history.
    pub fn violation(&self) -> Option<Violation> {
        self.state.lock().violation.clone()
    }

    /// Asks the oracle about something else than a call.
    pub fn judge(&self, judge: impl FnOnce(&mut Oracle) -> Result<(), Violation>) {
        let state = &mut *self.state.lock();
        if state.violation.is_none() {
            state.violation = judge(&mut state.oracle).err();
        }
        self.progress.notify_waiters();
    }

    /// The log, for reports.
    pub fn with_log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.state.lock().log)
    }

    /// Takes over the engine's last txgs.
    pub fn take_txgs(&self, txgs: &[TxgRecord]) {
        self.state.lock().record.take_txgs(txgs);
    }

    /// Everything so far, by lives.
    pub fn record(&self) -> Record {
        self.state.lock().record.clone()
    }

    /// A life of the machine has ended.
    pub fn next_life(&self) {
        let state = &mut *self.state.lock();
        state.record.next_life();
        state.verbs.clear();
    }

    /// A life of the machine has ended with this hash of its steps.
    pub fn mix(&self, steps: u64) {
        self.state.lock().log.mix(steps);
    }
}
