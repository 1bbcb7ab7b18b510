//! Small worlds: all programs of a few steps, cut off at each write of the disk.
//!
//! ```text
//!   once         a pool, with files, a volume, a snapshot of each, and a clone
//!   a program    from there: its steps, one after the other or several at once, and a rest until all is
//!                written
//!     no cut     counts the writes of the disks: W
//!     k < W      from there again; the power fails at write k; the pool is opened, and the oracle asked;
//!                sometimes it fails again before that, while the pool is opened
//!   on a mirror  then both disks get well; each alone must have everything
//! ```
//!
//! Idea: a fault that few steps can show is in a small world, and all of these can be run. Random worlds meet
//! a given short program at a given write by chance only. Longer programs are drawn: of a few kinds of steps
//! each, so that these meet often.
//!
//! Source: Mohan and others, "Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing" (2018).

pub mod step;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use cenote_runtime::{Rng, Runtime, SimConfig};

use crate::client::perform::Performer;
use crate::client::{SMALL_TXGS, Stage, Swarm, admin, devices, pick, program};
use crate::layout::new_pool;
use crate::less::Clients;
use crate::life::{End, Life};
use crate::machine::{Machine, POOL, Past};
use crate::model::call::DeviceVerb;
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
/// Of programs that are drawn.
const MOST_KINDS: usize = 4;
const MOST_STEPS: u64 = 7;
/// Disks of the machine.
const DISKS: usize = 3;
/// The size of a file that clones share: a clone with less in common keeps no livelist.
const SHARED_BYTES: usize = 256 << 10;

/// A program.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// In their order.
    pub steps: Vec<Step>,
    /// The beginning of each, if they run at once: after so much time.
    pub begins: Option<Vec<Duration>>,
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
    /// The command that runs it again.
    pub command: String,
}

/// The disks of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)] // as their names say
pub enum On {
    #[default]
    Disk,
    Two,
    Mirror,
}

impl On {
    fn words(self) -> &'static str {
        match self {
            On::Disk => "0",
            On::Two => "0 1",
            On::Mirror => "mirror 0 1",
        }
    }

    /// The steps that it takes.
    pub fn steps(self) -> &'static [Step] {
        match self {
            On::Disk => Step::ALL,
            On::Two => Step::OF_TWO,
            On::Mirror => Step::OF_MIRRORS,
        }
    }
}

/// The pool with which all programs begin.
pub struct Base {
    on: On,
    machine: Machine,
    past: Past,
    scene: Scene,
    swarm: Arc<Swarm>,
    /// Its txgs close early, also in the middle of a replay.
    hasty: Arc<Swarm>,
}

impl Program {
    /// The command that runs it.
    fn command(&self, on: On, seed: u64, cuts: &[u64]) -> String {
        let steps: Vec<String> = self.steps.iter().map(|step| format!("{step:?}")).collect();
        let begins = self.begins.iter().flatten().map(|begin| begin.as_nanos().to_string());
        let begins: Vec<String> = begins.collect();
        let begins =
            if begins.is_empty() { String::new() } else { format!(" --begins {}", begins.join(",")) };
        let cuts: Vec<String> = cuts.iter().map(u64::to_string).collect();
        let cuts = if cuts.is_empty() { String::new() } else { format!(" --cut-at {}", cuts.join(",")) };
        let on = match on {
            On::Disk => "",
            On::Two => " --on two",
            On::Mirror => " --on mirror",
        };
        format!("cenote-world --seed {seed} --program {}{begins}{on}{cuts}", steps.join(","))
    }

    /// All programs of up to so many steps, one after the other; the shorter ones first.
    pub fn all(most_steps: usize) -> impl Iterator<Item = Program> {
        (1..=most_steps).flat_map(|count| {
            let all = Step::ALL;
            (0..all.len().pow(count as u32)).map(move |number| {
                let steps = (0..count as u32).map(|at| all[number / all.len().pow(at) % all.len()]);
                Program { steps: steps.collect(), begins: None }
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

    /// Several of a few kinds of steps; most often at once, within this time.
    pub fn draw(rng: &mut Rng, on: On, within: Duration) -> Program {
        let (all, story) = (on.steps(), pick(rng, Step::stories(on)));
        let theme = pick(rng, step::THEMES).filter(|_| on == On::Disk);
        let some = |rng: &mut Rng, from: &[Step]| {
            (0..MOST_KINDS).filter_map(|_| pick(rng, from)).copied().collect::<Vec<Step>>()
        };
        let kinds = match (rng.below(5), story, theme) {
            (0 | 1, Some(story), _) => story.to_vec(),
            (2 | 3, _, Some(theme)) => some(rng, theme),
            _ => some(rng, all),
        };
        let count = 2 + rng.below(MOST_STEPS - 1);
        let mut steps: Vec<Step> = (0..count).filter_map(|_| pick(rng, &kinds)).copied().collect();
        // Each doubles the orders that the oracle keeps.
        let mut programs = 0;
        steps.retain(|step| {
            programs += usize::from(step.is_program());
            !step.is_program() || programs <= 2
        });
        let within_ns = within.as_nanos() as u64;
        // Close to each other, or several txgs apart.
        let within_ns = (within_ns >> rng.below(12)).max(1);
        let begins = steps.iter().map(|_| Duration::from_nanos(rng.below(within_ns))).collect();
        Program { begins: rng.chance(0.75).then_some(begins), steps }
    }

    async fn run(&self, stage: &Stage) {
        // Those with open files.
        let mut open = Vec::new();
        match &self.begins {
            None => {
                for (client, step) in self.steps.iter().enumerate() {
                    open.push(perform(stage, client, *step).await);
                }
            }
            Some(begins) => {
                let later = async |(client, (step, begin)): (usize, (&Step, &Duration))| {
                    stage.runtime.sleep(*begin).await;
                    perform(stage, client, *step).await
                };
                let all = futures::future::join_all(self.steps.iter().zip(begins).enumerate().map(later));
                open.extend(all.await);
            }
        }
        stage.scene.note(&stage.runtime, "the steps have ended");
        stage.runtime.sleep(REST).await;
        drop(open);
    }
}

/// Performs a step. Returns its open files, if it leaves some.
async fn perform(stage: &Stage, client: ClientId, step: Step) -> Option<Performer> {
    let mut performer = Performer::new(stage.clone(), client);
    match step.trouble() {
        Some(Some(trouble)) => {
            stage.scene.note(&stage.runtime, &format!("the weak disk: {trouble:?}"));
            stage.bay.strike(step::WEAK, trouble, &mut stage.runtime.rng());
        }
        Some(None) => {
            stage.scene.note(&stage.runtime, "the weak disk is well");
            stage.bay.heal(step::WEAK);
        }
        None => {}
    }
    let actions = step.actions(&stage.scene);
    match step.is_program() {
        true => program::perform(stage, client, actions).await,
        false => perform_all(stage, &mut performer, client, actions).await,
    }
    // Others end their connections: a volume without clients may be rolled back.
    let has_files = performer.slots().next().is_some();
    has_files.then_some(performer)
}

async fn perform_all(stage: &Stage, performer: &mut Performer, client: ClientId, actions: Vec<Action>) {
    for action in actions {
        let is_verb = Call { client, action: action.clone() }.is_verb();
        match is_verb {
            true => {
                let takes = |verb: &DeviceVerb| devices::takes(stage, verb);
                if !matches!(&action, Action::Device { verb } if !takes(verb)) {
                    admin::perform(stage, None, client, &stage.scene.state(), action).await;
                }
            }
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
    let mut shared = vec![0; SHARED_BYTES];
    Rng::new(1).fill(&mut shared);
    vec![
        Create { name: format!("{POOL}/f"), volume_blocks: None },
        Create { name: format!("{POOL}/v"), volume_blocks },
        Make { dataset, path: path("")[..1].to_vec(), link_to: None },
        Open { dataset, path: path("a"), slot, creates: true, excludes: true },
        write("first ", 4096),
        Open { dataset, path: path("shared"), slot: 1, creates: true, excludes: true },
        Write { dataset, slot: 1, offset: 0, data: shared.into() },
        Close { dataset, slot: 1 },
        WriteBlocks { dataset: step::VOLUME, block: 0, data: vec![b'v'; 4 << 12].into(), is_durable: false },
        Snapshot { dataset, name: "s".into() },
        Snapshot { dataset: step::VOLUME, name: "sv".into() },
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
    pub fn new(on: On) -> Result<Base, String> {
        let machine = Machine::new(DISK_BYTES, &[512; DISKS]).map_err(|error| error.to_string())?;
        let swarm = Swarm::draw(&mut Rng::new(1)).without_faults();
        let hasty = Arc::new(Swarm { tunables: SMALL_TXGS, ..swarm.clone() });
        let swarm = Arc::new(Swarm { tunables: &[], ..swarm });
        let mut base = Base { on, machine, past: Past::default(), scene: Scene::default(), swarm, hasty };
        let scene = Arc::new(Scene::default());
        base.a_life(&scene, (1, 0), End::Kill, async |life| {
            life.follow(async |stage| {
                let pool = new_pool(on.words(), false, Vec::new()).expect("a valid layout");
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
        (base.past, base.scene) = (base.machine.past(), scene.fork());
        Ok(base)
    }

    /// Runs a program. Power fails at the first of `cuts`, and at the others while the pool is opened again:
    /// writes, each counted from 0.
    pub fn run(&self, program: &Program, seed: u64, cuts: &[u64]) -> Ran {
        let guilty = (self.on == On::Mirror).then_some(step::WEAK);
        self.machine.restore(&self.past, guilty).expect("the machine's own folder can be written");
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
            // So slow that txgs close in the middle of a replay.
            let is_slow = Rng::stream(seed, *cut).chance(0.5);
            self.a_life(&scene, (seed, number), End::Cut, async |life| {
                Life { is_slow, ..life }.open_until_cut().await
            });
        }
        power.switch_on(None);
        if !scene.is_wrong() {
            self.look(&scene, seed, number + 1);
        }
        let record = scene.record();
        let lines = scene.with_log(|log| log.lines().to_vec());
        let calls = record.lives.iter().flat_map(|life| life.calls.values());
        let ends = calls.clone().filter_map(|made| made.end.as_ref().map(|(at, _)| *at));
        let begin = calls.map(|made| made.begin_ns).min().unwrap_or(0);
        let took = Duration::from_nanos(ends.max().unwrap_or(begin).saturating_sub(begin));
        let command = program.command(self.on, seed, cuts);
        Ran { writes, violation: scene.violation(), record, lines, took, command }
    }

    /// The pool must be as the steps left it; on a mirror, also when a disk that had no trouble is gone.
    fn look(&self, scene: &Arc<Scene>, seed: u64, number: u64) {
        match self.on {
            On::Disk | On::Two => {
                self.a_life(scene, (seed, number), End::Kill, async |life| life.look_after_cut().await);
            }
            On::Mirror => {
                let rest = self.a_life(scene, (seed, number), End::Kill, async |life| life.recover().await);
                if let Some(rest) = rest.filter(|rest| !rest.can_go.is_empty()) {
                    let again = async |life: Life<'_>| life.look_again(&rest).await;
                    self.a_life(scene, (seed, number + 1), End::Kill, again);
                }
            }
        }
    }

    /// Runs a life to its end; `None` if it was wrong.
    fn a_life<T>(
        &self,
        scene: &Arc<Scene>,
        (seed, number): (u64, u64),
        end: End,
        live: impl AsyncFnOnce(Life<'_>) -> Result<T, Violation>,
    ) -> Option<T> {
        let unix_start_ns = START_NS + number * 3_600_000_000_000;
        let config = SimConfig { seed, unix_start_ns, step_limit: STEP_LIMIT, ..SimConfig::default() };
        let swarm = if seed.is_multiple_of(2) { &self.swarm } else { &self.hasty };
        let (machine, swarm) = (&self.machine, swarm.clone());
        // Not of the seed alone: cuts of one program at neighbouring writes differ in what they lose.
        let mut lost = Rng::stream(seed ^ machine.power.fails_at().unwrap_or(0) << 8, number);
        let whole = |runtime: Runtime| async move {
            let life = Life {
                runtime,
                machine,
                scene: scene.clone(),
                swarm,
                host: 0,
                is_shared: false,
                clients: Clients { posix: 0, volumes: 0, admins: 0 },
                end,
                calls: 0,
                is_deaf: false,
                flushes_lie: false,
                is_slow: false,
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
        let (lived, wrong) = match lived {
            Ok(lived) => (Some(lived), Ok(())),
            Err(violation) => (None, Err(violation)),
        };
        scene.judge(|_| wrong);
        lived
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
