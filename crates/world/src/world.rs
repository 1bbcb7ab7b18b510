//! A world: one seed, one history over several lives of one machine.
//!
//! ```text
//!   life 1: power on, create the pool, clients ... power cut
//!   life 2: power on, the daemon opens the pool; look, ask the oracle; verify; clients ... kill
//!   ...
//!   last life: look, verify, clients, and a look at the end while all is quiet
//! ```

use std::sync::Arc;
use std::time::Duration;

use cenote_control::zfs::properties::settings::Setting;
use cenote_control::zpool;
use cenote_runtime::{Rng, Runtime, SimConfig};
use futures::future::{join_all, select};

use crate::client::{self, Of, Stage, Swarm, admin};
use crate::look::look;
use crate::machine::daemon::Daemon;
use crate::machine::kernel::Kernel;
use crate::machine::{Machine, path_of};
use crate::model::ClientId;
use crate::oracle::{Violation, space};
use crate::scene::Scene;

/// The only pool.
pub const POOL: &str = "tank";

/// The smallest disk that OpenZFS takes.
const DISK_BYTES: u64 = 64 << 20;
/// Most disks of a layout.
const DISKS: usize = 6;
/// Longest time between the last counted call and the end of a life, in pauses of a client.
const REST_PAUSES: u32 = 16;
/// How often calls are counted.
const TICK: Duration = Duration::from_micros(100);
/// Time that a clock loses or wins between two lives, at most.
const CLOCK_JUMP_NS: u64 = 3_600_000_000_000;
/// Start of the first life, in nanoseconds since 1970.
const START_NS: u64 = 1_767_225_600_000_000_000;

/// A world to run.
#[derive(Debug, Clone, Copy)]
pub struct Params {
    /// Determines everything.
    pub seed: u64,
    /// Calls of clients, in all.
    pub calls: u64,
    /// Ends of lives before the last one: power cuts and kills.
    pub cuts: u64,
    /// A fault that makes the history wrong.
    pub sabotage: Option<Sabotage>,
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
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The power fails.
    Cut,
    /// The daemon is killed.
    Kill,
    /// Clients stop, and everything is looked at.
    Rest,
}

/// Layouts, in the words of `zpool create`, with numbers for disks.
const LAYOUTS: [&str; 7] = [
    "0",
    "0 1",
    "mirror 0 1",
    "mirror 0 1 mirror 2 3",
    "raidz1 0 1 2",
    "mirror 0 1 log 2",
    "raidz2 0 1 2 3 special mirror 4 5",
];

/// Runs a world.
///
/// # Errors
/// The host's file system.
pub fn run(params: Params) -> std::io::Result<Report> {
    let mut rng = Rng::stream(params.seed, 7);
    let layout = LAYOUTS[rng.below(LAYOUTS.len() as u64) as usize];
    let sector_bytes = if rng.chance(0.5) { 512 } else { 4096 };
    let lies = params.sabotage == Some(Sabotage::FlushesLie);
    let machine = Machine::new(DISKS, DISK_BYTES, sector_bytes, lies)?;
    let scene = Arc::new(Scene::default());
    let swarm = Arc::new(Swarm::draw(&mut rng));
    let mut count = |least: u64, most: u64| (least + rng.below(most - least + 1)) as usize;
    let clients = Clients { posix: count(1, 4), volumes: count(0, 2), admins: count(1, 2) };
    let mut clock_ns = START_NS;
    for life in 0..=params.cuts {
        let end = match () {
            () if life == params.cuts => End::Rest,
            () if rng.chance(0.75) => End::Cut,
            () => End::Kill,
        };
        let config = SimConfig {
            seed: rng.next_u64(),
            unix_start_ns: clock_ns,
            step_limit: 400_000 + 4_000 * params.calls,
            ..SimConfig::default()
        };
        let mut cut_rng = Rng::new(rng.next_u64());
        let share = params.calls / (params.cuts + 1);
        let calls =
            scene.ended() + if end == End::Rest { share } else { share / 2 + rng.below(share.max(1)) };
        let ((), report) = Runtime::simulate(config, |runtime| {
            let stage = (scene.clone(), swarm.clone());
            let (machine, cut_rng, scene) = (&machine, &mut cut_rng, scene.clone());
            async move {
                let is_deaf = params.sabotage == Some(Sabotage::NoticesAreLost);
                let life = Life { runtime, machine, clients, end, calls, is_deaf };
                let first = scene.ended() == 0;
                let lived = life.live(stage, if first { Some(layout) } else { None }).await;
                if let Err(violation) = lived {
                    scene.judge(|_| Err(violation));
                }
                match end {
                    End::Cut => machine.cut(cut_rng),
                    End::Kill | End::Rest => machine.kill(),
                }
            }
        });
        scene.mix(report.history);
        if scene.is_wrong() {
            break;
        }
        clock_ns = clock_ns.saturating_add(report.virtual_ns) + rng.below(CLOCK_JUMP_NS) - CLOCK_JUMP_NS / 4;
    }
    let (hash, lines) = scene.with_log(|log| (log.hash(), log.lines().to_vec()));
    Ok(Report { violation: scene.violation(), calls: scene.ended(), hash, lines })
}

#[derive(Debug, Clone, Copy)]
struct Clients {
    posix: usize,
    volumes: usize,
    admins: usize,
}

struct Life<'a> {
    runtime: Runtime,
    machine: &'a Machine,
    clients: Clients,
    end: End,
    /// The count of calls at which it ends.
    calls: u64,
    /// The kernel loses notices.
    is_deaf: bool,
}

impl Life<'_> {
    async fn live(
        &self,
        (scene, swarm): (Arc<Scene>, Arc<Swarm>),
        create: Option<&str>,
    ) -> Result<(), Violation> {
        let runtime = &self.runtime;
        self.machine.power_on(runtime);
        let kernel = Kernel::new(runtime, self.is_deaf);
        let daemon = Daemon::start(runtime, self.machine, kernel).await.map_err(Violation)?;
        let daemon = Arc::new(daemon);
        match create {
            Some(layout) => {
                scene.note(runtime, &format!("layout: {layout}; {:?}; {swarm:?}", self.clients));
                create_pool(&daemon, layout).await.map_err(Violation)?;
            }
            None => {
                scene.note(runtime, "reopened");
                let found = look(&daemon).await.map_err(Violation)?;
                scene.judge(|oracle| oracle.reopened(&found));
                space::check(&daemon, POOL).await?;
            }
        }
        let stage = Stage { runtime: runtime.clone(), daemon: daemon.clone(), scene: scene.clone(), swarm };
        self.work(&stage).await;
        scene.note(runtime, &format!("{:?}", self.end));
        if self.end != End::Rest || scene.is_wrong() {
            scene.judge(|oracle| {
                oracle.cut();
                Ok(())
            });
            return Ok(());
        }
        let found = look(&daemon).await.map_err(Violation)?;
        scene.judge(|oracle| oracle.rests(&found));
        space::check(&daemon, POOL).await
    }

    /// Clients work until enough calls have ended. For a rest, they end theirs.
    async fn work(&self, stage: &Stage) {
        let Clients { posix, volumes, admins } = self.clients;
        let spawn = |client: ClientId| {
            let of = if client < posix { Of::Files } else { Of::Volumes };
            self.runtime.spawn(client::run(stage.clone(), client, of))
        };
        let tasks: Vec<_> = (0..posix + volumes).map(spawn).collect();
        let admins =
            (0..admins).map(|admin| admin::Program::new(stage.clone(), posix + volumes + admin).run());
        let enough = async {
            while stage.scene.ended() < self.calls && !stage.scene.is_wrong() {
                self.runtime.sleep(TICK).await;
            }
            if self.end == End::Rest {
                stage.scene.rest();
            }
            let most = stage.swarm.pause * REST_PAUSES;
            let rest_ns = self.runtime.random_u64() % most.as_nanos() as u64;
            self.runtime.sleep(Duration::from_nanos(rest_ns)).await;
            if self.end == End::Rest {
                for task in tasks {
                    task.await.ok();
                }
            }
        };
        let admins = join_all(admins);
        match self.end {
            End::Rest => _ = futures::future::join(admins, enough).await,
            _ => _ = select(Box::pin(admins), Box::pin(enough)).await,
        }
    }
}

async fn create_pool(daemon: &Daemon, layout: &str) -> Result<(), String> {
    let word = |word: &str| match word.parse() {
        Ok(disk) => path_of(disk).to_string_lossy().into_owned(),
        Err(_) => word.to_owned(),
    };
    let words: Vec<String> = layout.split(' ').map(word).collect();
    let setting = |property: &str, value: &str| Setting { property: property.into(), value: value.into() };
    let create = zpool::whole::create::Create {
        pool: POOL.into(),
        layout: zpool::layout::parse(&words)?,
        properties: Vec::new(),
        no_features: false,
        root_properties: vec![setting("canmount", "off"), setting("atime", "off")],
        altroot: None,
        force: true,
        dry_run: false,
    };
    let (created, said) = daemon.run(create).await;
    created.map(drop).map_err(|error| format!("the pool can't be created: {error} {said}"))
}
