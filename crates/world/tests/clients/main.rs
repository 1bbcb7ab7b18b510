//! Single calls of each kind of client, judged by the oracle, and the checks that look at their traces.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod agents;
mod copies;
mod links;
mod receives;
mod torn;
mod volumes;

use std::sync::Arc;

use cenote_control::Outcome as Ended;
use cenote_runtime::{Rng, Runtime, SimConfig};
use cenote_world::client::perform::Performer;
use cenote_world::client::{Stage, Swarm, admin};
use cenote_world::layout::new_pool;
use cenote_world::machine::Machine;
use cenote_world::machine::daemon::Daemon;
use cenote_world::machine::kernel::Kernel;
use cenote_world::model::{Action, CallId, Outcome};
use cenote_world::scene::Scene;

const DISK_BYTES: u64 = 64 << 20;
/// Numbers of clients.
const USER: usize = 0;
const ADMINISTRATOR: usize = 1;

/// A stage for one life of a machine, with a new pool if it is the first.
async fn stage(runtime: &Runtime, machine: &Machine, is_first: bool) -> Stage {
    let bay = Arc::new(machine.power_on(runtime));
    let kernel = Kernel::new(runtime, false);
    let daemon = Arc::new(Daemon::start(runtime, machine, 0, kernel, &[]).await.unwrap());
    if is_first {
        let pool = new_pool("0", false, Vec::new()).unwrap();
        assert_eq!(daemon.run(pool).await.0.unwrap().outcome, Ended::Done);
    }
    let swarm = Arc::new(Swarm::draw(&mut Rng::new(1)));
    Stage { runtime: runtime.clone(), daemon, bay, scene: Arc::new(Scene::default()), swarm }
}

/// Runs `work` on a new pool.
fn on_a_stage(seed: u64, work: impl AsyncFn(&Stage)) {
    let machine = Machine::new(DISK_BYTES, &[512]).unwrap();
    let (work, machine) = (&work, &machine);
    let life = |runtime: Runtime| async move {
        let stage = stage(&runtime, machine, true).await;
        work(&stage).await;
        machine.kill();
    };
    Runtime::simulate(SimConfig::seed(seed), life);
}

/// Carries out a verb, which must be done as the oracle expects. Returns its number.
async fn verb(stage: &Stage, action: Action) -> CallId {
    let (id, state) = (stage.scene.next(), stage.scene.state());
    admin::perform(stage, None, ADMINISTRATOR, &state, action).await;
    assert_eq!(stage.scene.violation(), None);
    id
}

/// Carries out a call of a user, which must end as the oracle expects.
async fn call(stage: &Stage, user: &mut Performer, action: Action) -> Outcome {
    let outcome = user.perform(None, action).await.expect("the call is possible");
    assert_eq!(stage.scene.violation(), None);
    outcome
}

fn user(stage: &Stage) -> Performer {
    Performer::new(stage.clone(), USER)
}
