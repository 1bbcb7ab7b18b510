//! Small worlds: all programs of a few steps, cut off at each write of the disk.
//!
//! ```text
//!   once         a pool on one disk, with a file, a volume, a snapshot of each, and a clone
//!   a program    from there: its steps, one after the other or two at once, and a rest until all is written
//!     no cut     counts the writes of the disk: W
//!     k < W      from there again; the power fails at write k; the pool is opened, and the oracle asked;
//!                sometimes it fails again before that, while the pool is opened
//! ```
//!
//! Idea: a fault that few steps can show is in a small world, and all of these can be run. Random worlds meet
//! a given short program at a given write by chance only.
//!
//! Source: Mohan and others, "Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing" (2018).

pub mod step;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use cenote_runtime::{Rng, Runtime, SimConfig};
use cenote_testkit::image::Image;

use crate::client::perform::Performer;
use crate::client::{Stage, Swarm, admin};
use crate::layout::new_pool;
use crate::less::Clients;
use crate::life::{End, Life};
use crate::machine::{Machine, POOL};
use crate::model::{Action, Call, ClientId};
use crate::oracle::Violation;
use crate::record::Record;
use crate::scene::Scene;
use crate::world::{START_NS, message};
use step::Step;

const DISK_BYTES: u64 = 64 << 20;
/// Longer than a txg stays open.
const REST: Duration = Duration::from_secs(6);
const STEP_LIMIT: u64 = 2_000_000;

/// A program.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// In their order.
    pub steps: Vec<Step>,
    /// All begin at once, but for a pause before each but the first: of so much.
    pub at_once: Option<Duration>,
}

/// A program that ran to its end.
pub struct Ran {
    /// Writes of the disk.
    pub writes: u64,
    /// Its history.
    pub record: Record,
    /// The log, and the first fault.
    pub lines: Vec<String>,
    /// The fault.
    pub violation: Option<Violation>,
    /// From the first step's beginning to the last one's end.
    pub took: Duration,
}

/// The pool with which all programs begin.
pub struct Base {
    machine: Machine,
    images: Vec<Image>,
    scene: Scene,
    swarm: Arc<Swarm>,
}

impl Program {
    /// The command that runs it.
    pub fn command(&self, seed: u64, cuts: &[u64]) -> String {
        let steps: Vec<String> = self.steps.iter().map(|step| format!("{step:?}")).collect();
        let at_once = self.at_once.map(|pause| format!(" --pause {}", pause.as_nanos()));
        let at_once = at_once.unwrap_or_default();
        let cuts: Vec<String> = cuts.iter().map(u64::to_string).collect();
        let cuts = if cuts.is_empty() { String::new() } else { format!(" --cut-at {}", cuts.join(",")) };
        format!("cenote-world --seed {seed} --program {}{at_once}{cuts}", steps.join(","))
    }

    /// All programs of up to so many steps, one after the other; the shorter ones first.
    pub fn all(most_steps: usize) -> impl Iterator<Item = Program> {
        (1..=most_steps).flat_map(|count| {
            let all = Step::ALL;
            (0..all.len().pow(count as u32)).map(move |number| {
                let steps = (0..count as u32).map(|at| all[number / all.len().pow(at) % all.len()]);
                Program { steps: steps.collect(), at_once: None }
            })
        })
    }

    /// All pairs of steps, neighbours far apart, so that some of them are a fair sample.
    pub fn pairs() -> impl Iterator<Item = [Step; 2]> {
        let (all, count) = (Step::ALL, Step::ALL.len().pow(2));
        // Coprime to the count.
        let pair = |at: usize| [all[at / all.len()], all[at % all.len()]];
        (0..count).map(move |number| pair(number * 577 % count))
    }

    async fn run(&self, stage: &Stage) {
        let mut open = Vec::new();
        match self.at_once {
            None => {
                for (client, step) in self.steps.iter().enumerate() {
                    open.push(perform(stage, client, *step).await);
                }
            }
            Some(pause) => {
                let later = async |client: usize| {
                    stage.runtime.sleep(pause * client as u32).await;
                    perform(stage, client, self.steps[client]).await
                };
                let all = futures::future::join_all((0..self.steps.len()).map(later));
                open.extend(all.await);
            }
        }
        stage.scene.note(&stage.runtime, "the steps have ended");
        stage.runtime.sleep(REST).await;
        drop(open);
    }
}

/// Performs a step. Returns its open files.
async fn perform(stage: &Stage, client: ClientId, step: Step) -> Performer {
    let mut performer = Performer::new(stage.clone(), client);
    perform_all(stage, &mut performer, client, step.actions(&stage.scene)).await;
    performer
}

async fn perform_all(stage: &Stage, performer: &mut Performer, client: ClientId, actions: Vec<Action>) {
    for action in actions {
        let is_verb = Call { client, action: action.clone() }.is_verb();
        match is_verb {
            true => admin::perform(stage, None, client, &stage.scene.state(), action).await,
            false => _ = performer.perform(None, action).await,
        }
    }
}

/// The calls before the base.
fn prelude() -> Vec<Action> {
    use Action::*;
    let (dataset, slot) = (step::FILES, 0);
    let path = |name: &str| vec!["common".to_owned(), name.to_owned()];
    let write = |text: &str, len: usize| {
        let data = text.as_bytes().repeat(len / text.len()).into();
        Write { dataset, slot, offset: 0, data }
    };
    let volume_blocks = Some(admin::VOLUME_BLOCKS);
    vec![
        Create { name: format!("{POOL}/f"), volume_blocks: None },
        Create { name: format!("{POOL}/v"), volume_blocks },
        Make { dataset, path: path("")[..1].to_vec(), link_to: None },
        Open { dataset, path: path("a"), slot, creates: true, excludes: true },
        write("first ", 4096),
        WriteBlocks { dataset: step::VOLUME, block: 0, data: vec![b'v'; 4 << 12].into(), is_durable: false },
        Snapshot { dataset, name: "s".into() },
        Snapshot { dataset: step::VOLUME, name: "s".into() },
        Clone { dataset, snapshot: "s".into(), name: format!("{POOL}/k") },
        write("second ", 2048),
        Close { dataset, slot },
        WriteBlocks { dataset: step::VOLUME, block: 2, data: vec![b'w'; 1 << 12].into(), is_durable: false },
        Pool { verb: "sync".into() },
    ]
}

impl Base {
    /// Makes it.
    ///
    /// # Errors
    /// The host's file system, or a pool that is wrong already.
    pub fn new() -> Result<Base, String> {
        let machine = Machine::new(DISK_BYTES, &[512]).map_err(|error| error.to_string())?;
        let swarm = Arc::new(Swarm::draw(&mut Rng::new(1)).without_faults());
        let mut base = Base { machine, images: Vec::new(), scene: Scene::default(), swarm };
        let scene = Arc::new(Scene::default());
        base.a_life(&scene, (1, 0), End::Kill, async |life| {
            life.follow(async |stage| {
                let pool = new_pool("0", Vec::new()).expect("a valid layout");
                let (created, _) = stage.daemon.run(pool).await;
                if created.is_err() {
                    return;
                }
                perform_all(stage, &mut Performer::new(stage.clone(), 0), 0, prelude()).await;
            })
            .await
        });
        base.a_life(&scene, (2, 1), End::Kill, async |life| life.look_after_cut().await);
        if let Some(violation) = scene.violation() {
            return Err(violation.0);
        }
        let state = scene.state();
        if state.datasets.len() != 3 {
            return Err("the first datasets were not made".into());
        }
        (base.images, base.scene) = (base.machine.images(), scene.fork());
        Ok(base)
    }

    /// Runs a program. Power fails at the first of `cuts`, and at the others while the pool is opened again:
    /// writes, each counted from 0.
    pub fn run(&self, program: &Program, seed: u64, cuts: &[u64]) -> Ran {
        self.machine.restore(&self.images);
        let scene = Arc::new(self.scene.fork());
        let (power, mut number) = (&self.machine.power, 2);
        power.switch_on(cuts.first().copied());
        let end = if cuts.is_empty() { End::Kill } else { End::Cut };
        self.a_life(&scene, (seed, number), end, async |life| {
            life.follow(async |stage| program.run(stage).await).await
        });
        let writes = power.writes();
        for cut in cuts.iter().skip(1).filter(|_| !scene.is_wrong()) {
            number += 1;
            power.switch_on(Some(*cut));
            self.a_life(&scene, (seed, number), End::Cut, async |life| life.open_until_cut().await);
        }
        power.switch_on(None);
        if !scene.is_wrong() {
            self.a_life(&scene, (seed, number + 1), End::Kill, async |life| life.look_after_cut().await);
        }
        let record = scene.record();
        let lines = scene.with_log(|log| log.lines().to_vec());
        let calls = record.lives.iter().flat_map(|life| life.calls.values());
        let ends = calls.clone().filter_map(|made| made.end.as_ref().map(|(at, _)| *at));
        let begin = calls.map(|made| made.begin_ns).min().unwrap_or(0);
        let took = Duration::from_nanos(ends.max().unwrap_or(begin).saturating_sub(begin));
        Ran { writes, violation: scene.violation(), record, lines, took }
    }

    fn a_life(
        &self,
        scene: &Arc<Scene>,
        (seed, number): (u64, u64),
        end: End,
        live: impl AsyncFnOnce(Life<'_>) -> Result<(), Violation>,
    ) {
        let unix_start_ns = START_NS + number * 3_600_000_000_000;
        let config = SimConfig { seed, unix_start_ns, step_limit: STEP_LIMIT, ..SimConfig::default() };
        let (machine, swarm) = (&self.machine, self.swarm.clone());
        // Not of the seed alone: cuts of one program at neighbouring writes differ in what they lose.
        let mut lost = Rng::stream(seed ^ machine.power.fails_at().unwrap_or(0) << 8, number);
        let whole = |runtime: Runtime| async move {
            let life = Life {
                runtime,
                machine,
                scene: scene.clone(),
                swarm,
                clients: Clients { posix: 0, volumes: 0, admins: 0 },
                end,
                calls: 0,
                is_deaf: false,
                flushes_lie: false,
            };
            let lived = live(life).await;
            match end {
                End::Cut => machine.cut(&mut lost),
                _ => machine.kill(),
            }
            lived
        };
        let lived = match catch_unwind(AssertUnwindSafe(|| Runtime::simulate(config, whole))) {
            Ok((lived, _)) => lived,
            Err(panic) => Err(Violation(format!("a panic: {}", message(&*panic)))),
        };
        scene.next_life();
        scene.judge(|_| lived);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_all_there_once() {
        let count = Step::ALL.len();
        let pairs: Vec<[Step; 2]> = Program::pairs().collect();
        assert!(Step::ALL.iter().all(|one| Step::ALL.iter().all(|other| pairs.contains(&[*one, *other]))));
        assert_eq!(pairs.len(), count * count);
        assert_eq!(Program::all(2).count(), count + count * count);
        assert!(Program::all(2).any(|program| program.steps == [Step::Snapshot, Step::Rollback]));
    }
}
