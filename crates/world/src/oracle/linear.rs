//! All states to which some order of the calls leads.
//!
//! ```text
//!   call a   |-------------|            a state, and the calls that are in it though they go on
//!   call b        |----|                at the end of b: b after nothing, or after a
//!   call c            |--------|        at the end of a: a first, or b before it
//! ```
//!
//! Idea: a call takes effect at one moment between its beginning and its end. When it ends, each state has it
//! already, with this outcome, or takes it now, after any other calls under way. Calls that commute are not
//! tried in both orders.
//!
//! Source: Wing and Gong, "Testing and verifying concurrent objects" (1993); Lowe, "Testing for
//! linearizability" (2017).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cenote_fuse::Errno;

use super::Violation;
use crate::model::{Action, Call, CallId, Outcome, Pool, Scope};

/// Most states: with more, the oracle would take longer than the world.
const STATES_MAX: usize = 4096;

/// A possible state.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Config {
    state: Pool,
    /// Calls under way that have taken effect, and the outcomes that they must have.
    done: BTreeMap<CallId, Outcome>,
}

/// The states before the end of a call become these.
struct Ends<'a> {
    left: &'a mut Vec<Config>,
    between: &'a mut Vec<Pool>,
    /// Outcomes that it would have had in other states.
    expected: &'a mut Vec<Outcome>,
}

/// Possible states, and calls under way.
#[derive(Clone)]
pub struct Linear {
    configs: Vec<Config>,
    pending: BTreeMap<CallId, (Arc<Call>, Scope)>,
    /// Verbs that met a change of names: those that they have may be out of date.
    misnamed: BTreeSet<CallId>,
    /// Calls that destroy a snapshot that another call destroys meanwhile: both succeed.
    twins: BTreeSet<CallId>,
    /// States in which another call took effect before the one that ended last.
    between: Vec<Pool>,
}

impl Default for Linear {
    fn default() -> Linear {
        Linear::of(Pool::default())
    }
}

impl Linear {
    /// Begins in a known state, without calls.
    pub fn of(state: Pool) -> Linear {
        Linear {
            configs: vec![Config { state, done: BTreeMap::new() }],
            pending: BTreeMap::new(),
            misnamed: BTreeSet::new(),
            twins: BTreeSet::new(),
            between: Vec::new(),
        }
    }

    /// A call begins.
    pub fn begin(&mut self, id: CallId, call: Arc<Call>) {
        // A new snapshot has the content of a moment before its name is known.
        let changes_names = |call: &Call| {
            matches!(
                call.action,
                Action::RenameDataset { .. }
                    | Action::Promote { .. }
                    | Action::Destroy { .. }
                    | Action::Snapshot { .. }
            )
        };
        if call.is_verb() && self.pending.values().any(|(other, _)| changes_names(other)) {
            self.misnamed.insert(id);
        }
        if changes_names(&call) {
            self.misnamed.extend(self.pending.keys());
        }
        let twins = |other: &Call| {
            matches!(call.action, Action::DestroySnapshot { .. }) && other.action == call.action
        };
        let twins: Vec<CallId> =
            self.pending.iter().filter(|(_, (other, _))| twins(other)).map(|(id, _)| *id).collect();
        if !twins.is_empty() {
            self.twins.extend(twins);
            self.twins.insert(id);
        }
        let scope = call.scope();
        self.pending.insert(id, (call, scope));
    }

    /// Whether calls are under way.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Calls under way.
    pub fn under_way(&self) -> impl Iterator<Item = &Call> {
        self.pending.values().map(|(call, _)| &**call)
    }

    /// A call under way.
    pub fn call(&self, id: CallId) -> Arc<Call> {
        self.pending[&id].0.clone()
    }

    /// Possible states.
    pub fn states(&self) -> impl Iterator<Item = &Pool> {
        self.configs.iter().map(|config| &config.state)
    }

    /// Possible states now, and states possible before the end of the last call.
    pub fn states_since(&self) -> impl Iterator<Item = &Pool> {
        self.between.iter().chain(self.states())
    }

    /// A call has ended.
    ///
    /// # Errors
    /// No possible state explains its outcome.
    pub fn end(&mut self, id: CallId, outcome: &Outcome) -> Result<(), Violation> {
        let concerned = self.concerned(id);
        let mut left = Vec::new();
        let mut expected = Vec::new();
        let mut between = Vec::new();
        for config in &self.configs {
            let ends = &mut Ends { left: &mut left, between: &mut between, expected: &mut expected };
            self.end_in(config, id, outcome, &concerned, ends);
        }
        self.between = between;
        let (call, _) = self.pending.remove(&id).expect("a call ends once");
        if left.is_empty() {
            expected.dedup();
            let others: Vec<String> =
                self.pending.iter().map(|(id, (call, _))| format!("\n  {id}: {}", shown(call))).collect();
            return Err(Violation(format!(
                "call {id} ended with an outcome that no order of the calls explains\n  {}\n  it ended with \
                 {}\n  expected {}\nunder way:{}",
                shown(&call),
                shown_outcome(outcome),
                expected.iter().map(shown_outcome).collect::<Vec<_>>().join(" or "),
                others.concat(),
            )));
        }
        self.configs = left;
        self.misnamed.remove(&id);
        self.twins.remove(&id);
        Ok(())
    }

    /// Calls under way whose order with this one may matter, directly or through others.
    fn concerned(&self, id: CallId) -> Vec<CallId> {
        let mut found = vec![id];
        let mut at = 0;
        while let Some(one) = found.get(at).copied() {
            let scope = &self.pending[&one].1;
            let meets = |(other, (_, of_other)): (&CallId, &(_, Scope))| {
                (!found.contains(other) && scope.meets(of_other)).then_some(*other)
            };
            let more: Vec<CallId> = self.pending.iter().filter_map(meets).collect();
            found.extend(more);
            at += 1;
        }
        found.retain(|other| *other != id);
        found
    }

    fn end_in(
        &self,
        config: &Config,
        id: CallId,
        outcome: &Outcome,
        concerned: &[CallId],
        ends: &mut Ends<'_>,
    ) {
        match config.done.get(&id) {
            Some(predicted) if predicted == outcome || is_both_refused(predicted, outcome) => {
                let mut config = config.clone();
                config.done.remove(&id);
                add(ends.left, config);
                return;
            }
            Some(predicted) => {
                ends.expected.push(predicted.clone());
                return;
            }
            None => {}
        }
        let mut after = config.state.clone();
        let call = &self.pending[&id].0;
        let predicted = after.apply(id, call);
        // As in OpenZFS, a snapshot that does not exist is destroyed already.
        let is_gone = || *outcome == Outcome::Done && self.twins.contains(&id);
        match () {
            () if predicted == *outcome || is_both_refused(&predicted, outcome) => {
                add(ends.left, Config { state: after, done: config.done.clone() });
            }
            () if has_no_effect(call, outcome) || self.is_misnamed(id, outcome) || is_gone() => {
                add(ends.left, config.clone())
            }
            () => ends.expected.push(predicted),
        }
        for other in concerned.iter().filter(|other| !config.done.contains_key(other)) {
            let mut before = config.clone();
            let mut outcome_of_other = before.state.apply(*other, &self.pending[other].0);
            let mut is_refused = false;
            if let Outcome::Refused(why) = &mut outcome_of_other {
                // Only that it was refused counts: states that differ in the reason are the same.
                why.clear();
                is_refused = true;
            }
            before.done.insert(*other, outcome_of_other);
            if !is_refused && !ends.between.contains(&before.state) {
                ends.between.push(before.state.clone());
            }
            self.end_in(&before, id, outcome, concerned, ends);
        }
    }

    fn is_misnamed(&self, id: CallId, outcome: &Outcome) -> bool {
        const REASONS: [&str; 2] = ["does not exist", "could not find any snapshots"];
        let Outcome::Refused(why) = outcome else { return false };
        self.misnamed.contains(&id) && REASONS.iter().any(|reason| why.contains(reason))
    }

    /// Every state that calls under way may have led to, for a cut now.
    pub fn at_a_cut(&self) -> Vec<Pool> {
        let mut all = self.configs.clone();
        let mut at = 0;
        while at < all.len() && all.len() < STATES_MAX {
            for (id, (call, _)) in &self.pending {
                let config = &all[at];
                if config.done.contains_key(id) {
                    continue;
                }
                let mut next = config.clone();
                let outcome = next.state.apply(*id, call);
                if matches!(outcome, Outcome::Refused(_)) {
                    continue;
                }
                next.done.insert(*id, outcome);
                add(&mut all, next);
            }
            at += 1;
        }
        let mut states: Vec<Pool> = Vec::new();
        for config in all {
            if !states.contains(&config.state) {
                states.push(config.state);
            }
        }
        states
    }
}

fn add(configs: &mut Vec<Config>, config: Config) {
    if !configs.contains(&config) {
        assert!(configs.len() < STATES_MAX, "the oracle has {STATES_MAX} possible states");
        configs.push(config);
    }
}

fn is_both_refused(one: &Outcome, other: &Outcome) -> bool {
    matches!((one, other), (Outcome::Refused(_), Outcome::Refused(_)))
}

/// Whether a call may fail so in any state, without effect: for lack of space, of patience, or of blocks that
/// can be shared.
fn has_no_effect(call: &Call, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Failed(Errno::NOSPC | Errno::DQUOT) => true,
        Outcome::Failed(Errno::OPNOTSUPP) => matches!(call.action, Action::Copy { .. }),
        // It depends on disks.
        Outcome::Refused(_) if matches!(call.action, Action::Pool { .. } | Action::Device { .. }) => true,
        Outcome::Refused(why) => {
            const REASONS: [&str; 4] = ["busy", "out of space", "in use", "no space"];
            call.is_verb() && REASONS.iter().any(|reason| why.contains(reason))
        }
        _ => false,
    }
}

/// A call, without much of its data.
pub fn shown(call: &Call) -> String {
    let Call { client, action } = call;
    match action {
        Action::Write { data, .. } | Action::WriteBlocks { data, .. } if data.len() > MOST => {
            let mut start = action.clone();
            if let Action::Write { data, .. } | Action::WriteBlocks { data, .. } = &mut start {
                data.truncate(MOST);
            }
            format!("client {client} {} of {} bytes", shorten(&format!("{start:?}")), data.len())
        }
        _ => format!("client {client} {}", shorten(&format!("{action:?}"))),
    }
}

/// An outcome, without much of its data.
pub fn shown_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Data(data) if data.len() > MOST => {
            format!("{} of {} bytes", shorten(&format!("{:?}", data.slice(..MOST))), data.len())
        }
        _ => shorten(&format!("{outcome:?}")),
    }
}

/// Most characters shown, and bytes: an escaped byte is one character at least.
const MOST: usize = 200;

/// The beginning of a long text.
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Content;

    fn call(client: usize, action: Action) -> Arc<Call> {
        Arc::new(Call { client, action })
    }

    fn with_dataset() -> Linear {
        let mut linear = Linear::default();
        linear.begin(1, call(9, Action::Create { name: "tank/a".into(), volume_blocks: None }));
        linear.end(1, &Outcome::Done).unwrap();
        linear
    }

    #[test]
    fn a_snapshot_that_two_calls_destroy_at_once_is_destroyed_for_both() {
        let destroy = || call(1, Action::DestroySnapshot { dataset: 1, name: "s".into() });
        let mut linear = with_dataset();
        linear.begin(2, call(1, Action::Snapshot { dataset: 1, name: "s".into() }));
        linear.end(2, &Outcome::Done).unwrap();
        linear.begin(3, destroy());
        linear.begin(4, destroy());
        linear.end(4, &Outcome::Done).unwrap();
        linear.end(3, &Outcome::Done).unwrap();
        linear.begin(5, destroy());
        assert!(linear.end(5, &Outcome::Done).is_err(), "it was gone before the call began");
    }

    fn make(dataset: CallId, name: &str) -> Action {
        Action::Make { dataset, path: vec!["common".into(), name.into()], link_to: None }
    }

    #[test]
    fn concurrent_calls_have_any_order_and_sequential_ones_their_own() {
        for (first, second, is_right) in [
            (Outcome::Done, Outcome::Failed(Errno::EXIST), true),
            (Outcome::Failed(Errno::EXIST), Outcome::Done, true),
            (Outcome::Done, Outcome::Done, false),
        ] {
            let mut linear = with_dataset();
            linear.begin(2, call(0, Action::Make { dataset: 1, path: vec!["common".into()], link_to: None }));
            linear.end(2, &Outcome::Done).unwrap();
            linear.begin(3, call(0, make(1, "a")));
            linear.begin(4, call(1, make(1, "a")));
            let ends = linear.end(3, &first).and_then(|()| linear.end(4, &second));
            assert_eq!(ends.is_ok(), is_right, "{first:?} {second:?}");
        }
    }

    #[test]
    fn a_verb_may_be_refused_for_the_state_before_a_call_that_ended_meanwhile() {
        let path = || vec!["a".to_owned()];
        let remove = || call(9, Action::CommandRemove { dataset: 1, path: path() });
        let make = || call(0, Action::Make { dataset: 1, path: path(), link_to: None });
        let refused = || Outcome::Refused("there is none".into());
        for (first, left, second) in [(refused(), path(), Outcome::Done), (Outcome::Done, vec![], refused())]
        {
            let mut linear = with_dataset();
            linear.begin(2, remove());
            linear.begin(3, make());
            linear.end(3, &Outcome::Done).unwrap();
            linear.end(2, &first).unwrap();
            linear.begin(4, call(0, Action::List { dataset: 1, path: vec![] }));
            linear.end(4, &Outcome::Names(left)).unwrap();
            linear.begin(5, remove());
            linear.begin(6, remove());
            assert!(linear.end(5, &second).is_ok() && linear.end(6, &Outcome::Done).is_err());
        }
    }

    /// The name of a new snapshot is known once its txg is on disk; its content is that of the txg's end.
    #[test]
    fn a_verb_may_miss_a_snapshot_that_has_its_content_already() {
        let dir = || Action::Make { dataset: 1, path: vec!["common".into()], link_to: None };
        let mut linear = with_dataset();
        linear.begin(2, call(9, Action::Snapshot { dataset: 1, name: "s".into() }));
        linear.begin(3, call(0, dir()));
        linear.end(3, &Outcome::Done).unwrap();
        linear.begin(4, call(8, Action::Rollback { dataset: 1, name: "s".into() }));
        linear.end(4, &Outcome::Refused("the dataset does not exist".into())).unwrap();
        linear.end(2, &Outcome::Done).unwrap();
        let is_empty = |state: &Pool| {
            let Content::Files(tree) = &state.datasets[&1].snapshots[0].content else { return false };
            tree.find(&["common".into()]).is_err()
        };
        assert!(linear.states().any(is_empty));
        linear.begin(5, call(8, Action::Rollback { dataset: 1, name: "s".into() }));
        let refused = Outcome::Refused("the dataset does not exist".into());
        assert!(linear.end(5, &refused).is_err(), "its name is known");
    }

    #[test]
    fn a_change_may_be_lost_in_a_rollback_only_while_that_is_under_way() {
        let list = || Action::List { dataset: 1, path: vec![] };
        let dir = || Action::Make { dataset: 1, path: vec!["common".into()], link_to: None };
        let (mut linear, names) = (with_dataset(), |names: &[&str]| {
            Outcome::Names(names.iter().map(|name| (*name).to_owned()).collect())
        });
        linear.begin(2, call(9, Action::Snapshot { dataset: 1, name: "s".into() }));
        linear.end(2, &Outcome::Done).unwrap();
        linear.begin(3, call(9, Action::Rollback { dataset: 1, name: "s".into() }));
        linear.begin(4, call(0, dir()));
        linear.end(4, &Outcome::Done).unwrap();
        linear.end(3, &Outcome::Done).unwrap();
        assert_eq!(linear.states().count(), 2);
        linear.begin(5, call(0, list()));
        linear.end(5, &names(&[])).unwrap();
        assert_eq!(linear.states().count(), 1);
        linear.begin(6, call(0, list()));
        assert!(linear.end(6, &names(&["common"])).is_err());
    }
}
