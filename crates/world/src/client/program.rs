//! A channel program: several verbs in one txg.
//!
//! Idea: the task of `zfs program` without its interpreter, which needs a thread. Volumes only: the kernel
//! must hear of nothing.

use cenote_control::ControlError;
use cenote_engine::SpaceCheck;
use cenote_object::DatasetError;
use cenote_tasks::{InUse, Step};

use super::Stage;
use crate::machine::POOL;
use crate::model::{Action, ClientId, Outcome, Pool};

/// Runs verbs in one txg, one after the other.
pub async fn perform(stage: &Stage, client: ClientId, actions: Vec<Action>) {
    let (scene, runtime, state) = (&stage.scene, &stage.runtime, stage.scene.state());
    let Some(pool) = stage.daemon.pools.get(POOL) else { return };
    let known = actions.into_iter().filter_map(|action| Some((step_of(&state, &action)?, action)));
    let (steps, actions): (Vec<Step>, Vec<Action>) = known.unzip();
    let begin = |action| scene.begin(runtime, None, client, action);
    let calls: Vec<_> = actions.into_iter().map(begin).collect();
    let done = pool.engine.run_when_quiet(SpaceCheck::ExtraReserved, || {
        let steps = steps.clone();
        move |context| {
            Box::pin(async move {
                let mut outcomes = Vec::new();
                for step in steps {
                    let before = context.changes();
                    outcomes.push(match step.make(context).await {
                        Ok(()) => Outcome::Done,
                        Err(error @ DatasetError::NextTxg { .. }) if outcomes.is_empty() => {
                            return Err(error);
                        }
                        // Half a step: the txg must not be written.
                        Err(error) if context.changes() != before => return Err(error),
                        Err(error) => Outcome::Refused(error.to_string()),
                    });
                }
                Ok(outcomes)
            })
        }
    });
    match done.await.map_err(ControlError::from) {
        Ok(outcomes) => {
            calls.iter().zip(&outcomes).for_each(|(id, outcome)| scene.end(runtime, *id, outcome))
        }
        Err(error) if error.is_suspended() => {
            calls.iter().for_each(|id| scene.abandon(runtime, *id, &error.to_string()));
        }
        Err(error) => {
            let outcome = Outcome::Refused(error.to_string());
            calls.iter().for_each(|id| scene.end(runtime, *id, &outcome));
        }
    }
    stage.note_txgs();
}

/// `None`: there is no such step, or no such dataset.
fn step_of(state: &Pool, action: &Action) -> Option<Step> {
    let at = |dataset, snapshot: &str| Some(format!("{}@{snapshot}", state.datasets.get(dataset)?.name));
    Some(match action {
        Action::Snapshot { dataset, name } => Step::Snapshot(at(dataset, name)?),
        Action::Rollback { dataset, name } => Step::Rollback(at(dataset, name)?),
        Action::DestroySnapshot { dataset, name } => Step::DestroySnapshot(at(dataset, name)?, InUse::Refuse),
        Action::Clone { dataset, snapshot, name } => Step::Clone(at(dataset, snapshot)?, name.clone()),
        _ => return None,
    })
}
