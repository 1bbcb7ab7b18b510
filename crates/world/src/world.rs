//! A world: one seed, one history over several lives of one machine.
//!
//! ```text
//!   life 1: power on, create the pool, clients ... power cut
//!   (power on, a cut while the daemon opens the pool)
//!   life 2: power on, the daemon opens the pool; look, ask the oracle; verify; clients ... kill
//!   ...
//!   last life: look, verify, clients, and a look at the end while all is quiet
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cenote_runtime::{Rng, Runtime, SimConfig};
use cenote_testkit::image::Image;

use crate::client::Swarm;
use crate::hosts::Hosts;
use crate::layout::Layout;
use crate::less::{Clients, Kind, Less};
use crate::life::{AtRest, End, Life, Start};
use crate::machine::Machine;
use crate::model::ClientId;
use crate::oracle::Violation;
use crate::pairs::Aim;
use crate::record::Record;
use crate::scene::Scene;

/// A small disk, but large enough for a cache.
const DISK_BYTES: u64 = 72 << 20;
/// Time that a clock loses or wins between two lives, at most.
const CLOCK_JUMP_NS: u64 = 3_600_000_000_000;
/// Start of the first life, in nanoseconds since 1970.
pub(crate) const START_NS: u64 = 1_767_225_600_000_000_000;

/// A world to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Determines everything.
    pub seed: u64,
    /// Calls of clients, in all.
    pub calls: u64,
    /// Ends of lives before the last one: power cuts and kills.
    pub cuts: u64,
    /// A fault that makes the history wrong.
    pub sabotage: Option<Sabotage>,
    /// Whether it aims at a pair of verbs that its seed chooses.
    pub aims: bool,
    /// Parts left out.
    pub less: Less,
}

impl Params {
    /// The command that runs it.
    pub fn command(&self) -> String {
        let Params { seed, calls, cuts, aims, .. } = self;
        let aims = if *aims { " --pairs" } else { "" };
        format!("cenote-world --seed {seed} --ops {calls} --cuts {cuts}{aims}{}", self.less.options())
    }
}

/// A fault that the oracle must find, to show that it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Flushes of disks do nothing.
    FlushesLie,
    /// The kernel loses notices, as if the daemon had not sent them.
    NoticesAreLost,
}

/// A finished world.
pub struct Report {
    /// The first fault found.
    pub violation: Option<Violation>,
    /// Calls that ended.
    pub calls: u64,
    /// Hash of all that happened.
    pub hash: u64,
    /// The log.
    pub lines: Vec<String>,
    /// The same as values.
    pub record: Record,
    /// Kinds of calls that clients may have made.
    pub kinds: Vec<Kind>,
    /// Choices of each client.
    pub choices: BTreeMap<ClientId, u64>,
    /// The disks in the end, if a fault was found.
    pub disks: Vec<Image>,
}

/// A world that goes on.
struct World {
    params: Params,
    rng: Rng,
    machine: Machine,
    scene: Arc<Scene>,
    swarm: Arc<Swarm>,
    clients: Clients,
    clock_ns: u64,
    hosts: Hosts,
    /// The host of the present life.
    host: u64,
}

/// Runs a world.
///
/// # Errors
/// The host's file system.
pub fn run(params: Params) -> std::io::Result<Report> {
    let mut rng = Rng::stream(params.seed, 7);
    let aim = params.aims.then(|| Aim::of(params.seed));
    let layout = Layout::draw(&mut rng);
    let mut layout = aim.map_or(layout.clone(), |aim| aim.layout(layout));
    let machine = Machine::new(DISK_BYTES, &layout.sectors_bytes)?;
    let mut swarm = Swarm::draw(&mut rng);
    aim.into_iter().for_each(|aim| swarm.aim(aim));
    let hosts = Hosts::draw(params.seed);
    layout.is_shared = hosts.is_shared();
    if hosts.is_shared() {
        // A claim must reach all disks.
        swarm = swarm.without_faults();
    }
    swarm.thin(&params.less);
    let kinds = swarm.kinds();
    let (scene, swarm) = (Arc::new(Scene::new(params.less.choices.clone())), Arc::new(swarm));
    let mut count = |least: u64, most: u64| (least + rng.below(most - least + 1)) as usize;
    let clients = Clients { posix: count(1, 4), volumes: count(0, 2), admins: count(1, 3) };
    let clients = params.less.clients(aim.map_or(clients, |aim| clients.with(&aim)));
    let mut world = World { params, rng, machine, scene, swarm, clients, clock_ns: START_NS, hosts, host: 0 };
    world.live(&layout);
    let scene = &world.scene;
    let (hash, lines) = scene.with_log(|log| (log.hash(), log.lines().to_vec()));
    let (violation, calls, choices) = (scene.violation(), scene.ended(), scene.choices());
    let record = scene.record();
    let disks = if violation.is_some() { world.machine.images() } else { Vec::new() };
    Ok(Report { violation, calls, hash, lines, record, kinds, choices, disks })
}

impl World {
    fn live(&mut self, layout: &Layout) {
        let Params { calls, cuts, .. } = self.params;
        let mut before: Option<AtRest> = None;
        let mut is_exported = false;
        for life in 0..=cuts {
            let end = match () {
                () if life == cuts => End::Rest,
                () if self.rng.chance(0.15) => End::Export,
                () if self.rng.chance(0.75) => End::Cut,
                () => End::Kill,
            };
            let share = calls / (cuts + 1);
            let most = if end == End::Rest { share } else { share / 2 + self.rng.below(share.max(1)) };
            let most = self.scene.ended() + most;
            let last_host = std::mem::replace(&mut self.host, self.hosts.of_next_life());
            let start = match before.take().filter(|_| is_exported) {
                _ if life == 0 => Start::Create(layout),
                Some(rest) => Start::Import(rest.found),
                None if self.host == last_host => Start::Reopen,
                None => Start::TakeOver,
            };
            if matches!(start, Start::Reopen) && self.rng.chance(0.2) {
                self.a_life(End::Cut, 0, async |life| life.fail_at_start().await);
                if self.scene.is_wrong() {
                    return;
                }
            }
            before = self.a_life(end, most, async |life| life.live(start).await).flatten();
            is_exported = end == End::Export;
            if self.scene.is_wrong() {
                return;
            }
        }
        if let Some(rest) = before.filter(|rest| !rest.can_go.is_empty() && !layout.is_shared) {
            self.a_life(End::Rest, 0, async |life| life.look_again(&rest).await);
        }
    }

    /// Runs a life to its end.
    fn a_life<T>(
        &mut self,
        end: End,
        calls: u64,
        live: impl AsyncFnOnce(Life<'_>) -> Result<T, Violation>,
    ) -> Option<T> {
        let config = SimConfig {
            seed: self.rng.next_u64(),
            unix_start_ns: self.clock_ns,
            step_limit: 2_000_000 + 8_000 * self.params.calls,
            ..SimConfig::default()
        };
        let mut cut_rng = Rng::new(self.rng.next_u64());
        let (machine, scene, swarm) = (&self.machine, self.scene.clone(), self.swarm.clone());
        let (clients, sabotage) = (self.clients, self.params.sabotage);
        let (host, is_shared) = (self.host, self.hosts.is_shared());
        let (is_deaf, flushes_lie) =
            [Sabotage::NoticesAreLost, Sabotage::FlushesLie].map(|one| sabotage == Some(one)).into();
        let whole = |runtime: Runtime| async move {
            let life = Life {
                runtime,
                machine,
                scene,
                swarm,
                host,
                is_shared,
                clients,
                end,
                calls,
                is_deaf,
                flushes_lie,
                is_slow: false,
            };
            let lived = live(life).await;
            match end {
                End::Cut => machine.cut(&mut cut_rng),
                End::Kill | End::Export | End::Rest => machine.kill(),
            }
            lived
        };
        let simulated = catch_unwind(AssertUnwindSafe(|| Runtime::simulate(config, whole)));
        let (lived, virtual_ns) = match simulated {
            Ok((lived, report)) => {
                self.scene.mix(report.history);
                (lived, report.virtual_ns)
            }
            Err(panic) => (Err(Violation(format!("a panic: {}", message(&*panic)))), 0),
        };
        self.scene.next_life();
        let jump_ns = self.rng.below(CLOCK_JUMP_NS);
        self.clock_ns = self.clock_ns.saturating_add(virtual_ns) + jump_ns - CLOCK_JUMP_NS / 4;
        match lived {
            Ok(lived) => Some(lived),
            Err(violation) => {
                self.scene.judge(|_| Err(violation));
                None
            }
        }
    }
}

pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
