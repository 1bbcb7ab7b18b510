//! A life of the machine: from power-on to a cut, a kill, or the rest at the end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cenote_control::zpool::whole::import::{Import, Purpose};
use cenote_control::{Outcome, zpool};
use cenote_runtime::{Rng, Runtime};
use futures::future::{Either, join_all, select};

use crate::client::trouble::{self, Pace};
use crate::client::{self, Of, Stage, Swarm, admin, agent, intruder};
use crate::layout::{Layout, new_pool};
use crate::less::Clients;
use crate::look::look;
use crate::machine::daemon::Daemon;
use crate::machine::faults::{Bay, Trouble};
use crate::machine::kernel::Kernel;
use crate::machine::{KEY, Machine, POOL};
use crate::model::ClientId;
use crate::oracle::crash::Found;
use crate::oracle::{Violation, accounts, accused, links, space};
use crate::scene::Scene;

/// Longest time between the last counted call and the end of a life, in pauses of a client.
const REST_PAUSES: u32 = 16;

/// Time between the end of the last connection and an export.
const PARTING: Duration = Duration::from_secs(1);

/// A cut soon after the last counted call: about the time in which a txg is written.
const SOON: Duration = Duration::from_millis(4);
/// Most calls in the longer time.
const OVERTIME: u64 = 40;

/// Most of a start takes less, if no disk hangs.
const LONGEST_START: Duration = Duration::from_millis(15);

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The power fails.
    Cut,
    /// The daemon is killed.
    Kill,
    /// Clients stop, and the pool is exported; the next life imports it.
    Export,
    /// Clients stop, and everything is looked at.
    Rest,
}

/// How a life begins.
pub enum Start<'a> {
    /// With a new pool.
    Create(&'a Layout),
    /// The daemon opens the pool that it had open.
    Reopen,
    /// The pool is imported; it has this content.
    Import(Option<Found>),
    /// Another host had it, and has died.
    TakeOver,
}

/// The pool while its clients rest.
pub struct AtRest {
    /// Its content; `None` if abandoned calls may still have changed it.
    pub found: Option<Found>,
    /// At the end: disks that it can do without, if possible such that were never guilty.
    pub can_go: BTreeSet<usize>,
}

/// A life of the machine.
#[allow(missing_docs)] // as their types say
pub struct Life<'a> {
    pub runtime: Runtime,
    pub machine: &'a Machine,
    pub scene: Arc<Scene>,
    pub swarm: Arc<Swarm>,
    /// Its number, and whether another shares the disks.
    pub host: u64,
    pub is_shared: bool,
    pub clients: Clients,
    pub end: End,
    /// The count of calls at which it ends.
    pub calls: u64,
    /// The kernel loses notices.
    pub is_deaf: bool,
    /// Disks lie about flushes.
    pub flushes_lie: bool,
    /// The first disk is slow.
    pub is_slow: bool,
}

impl Life<'_> {
    /// Powers on, creates the pool or opens it, lets clients work, and looks.
    ///
    /// # Errors
    /// The history is wrong.
    pub async fn live(&self, start: Start<'_>) -> Result<Option<AtRest>, Violation> {
        let (scene, runtime) = (&self.scene, &self.runtime);
        let stage = self.power_on(!matches!(start, Start::Create(_))).await?;
        match start {
            Start::Create(layout) => {
                scene.note(runtime, &format!("{layout:?}; {:?}; {:?}", self.clients, self.swarm));
                self.create_pool(&stage.daemon, layout).await.map_err(Violation)?;
            }
            Start::Reopen => self.look_at_reopened(&stage, None).await?,
            Start::TakeOver => {
                import(&stage.daemon, true).await?;
                self.look_at_reopened(&stage, None).await?;
            }
            Start::Import(before) => {
                import(&stage.daemon, false).await?;
                self.look_at_reopened(&stage, before.as_ref()).await?;
            }
        }
        self.work(&stage).await;
        stage.note_txgs();
        scene.note(runtime, &format!("{:?}", self.end));
        if scene.is_wrong() {
            return Ok(None);
        }
        match self.end {
            End::Cut | End::Kill => {
                scene.judge(|oracle| {
                    oracle.cut();
                    Ok(())
                });
                Ok(None)
            }
            End::Export => self.export(&stage).await.map(Some),
            End::Rest => self.rest(&stage).await.map(Some),
        }
    }

    /// The power fails while the daemon opens the pool, perhaps in the middle of a replay.
    ///
    /// # Errors
    /// The pool does not open.
    pub async fn fail_at_start(&self) -> Result<(), Violation> {
        let time_ns = self.runtime.random_u64() % LONGEST_START.as_nanos() as u64;
        self.scene.note(&self.runtime, "power on");
        let cut = self.runtime.sleep(Duration::from_nanos(time_ns));
        let opened = until_cut(async { self.power_on(true).await.map(drop) }, cut).await;
        self.scene.note(&self.runtime, "Cut");
        opened
    }

    /// The pool must be as a cut may have left it, or as before.
    async fn look_at_reopened(&self, stage: &Stage, before: Option<&Found>) -> Result<(), Violation> {
        self.scene.note(&self.runtime, "reopened");
        let found = look(&stage.daemon).await.map_err(Violation)?;
        if before.is_some_and(|before| *before != found) {
            return Err(Violation("the pool is not as it was when it was exported".into()));
        }
        self.scene.judge(|oracle| oracle.reopened(&found));
        self.check(stage).await
    }

    async fn check(&self, stage: &Stage) -> Result<(), Violation> {
        space::check(&stage.daemon, POOL, || stage.bay.ledger()).await?;
        accounts::check(&stage.daemon, POOL).await?;
        accused::check(&stage.daemon, POOL, &stage.bay)
    }

    async fn export(&self, stage: &Stage) -> Result<AtRest, Violation> {
        let found = self.look_at_rest(stage).await?;
        // The daemon must learn first that its last client has gone.
        self.runtime.sleep(PARTING).await;
        let export = zpool::whole::export::Export { pools: vec![POOL.into()], force: false };
        let (done, said) = stage.daemon.run(export).await;
        match done {
            Ok(answered) if answered.outcome == Outcome::Done => {}
            Ok(_) => return Err(Violation(format!("the pool is not exported: {said}"))),
            Err(error) => return Err(Violation(format!("the pool is not exported: {error} {said}"))),
        }
        self.scene.judge(|oracle| {
            oracle.cut();
            Ok(())
        });
        Ok(AtRest { found, can_go: BTreeSet::new() })
    }

    async fn rest(&self, stage: &Stage) -> Result<AtRest, Violation> {
        trouble::repair(stage, Pace::ToTheEnd).await?;
        let found = self.look_at_rest(stage).await?;
        self.check(stage).await?;
        let pool = stage.daemon.pools.get(POOL).ok_or_else(|| Violation("the pool is not open".into()))?;
        let can_go = trouble::draw_from(&pool.engine, &stage.bay.ledger().ever, &mut self.runtime.rng());
        Ok(AtRest { found, can_go })
    }

    async fn look_at_rest(&self, stage: &Stage) -> Result<Option<Found>, Violation> {
        trouble::mount_all(stage).await;
        links::check(&stage.daemon, POOL).await?;
        let found = look(&stage.daemon).await.map_err(Violation)?;
        let mut is_final = true;
        self.scene.judge(|oracle| {
            is_final = !oracle.has_calls_under_way();
            oracle.rests(&found)
        });
        Ok(Some(found).filter(|_| is_final))
    }

    /// Powers on without some disks: all must be there.
    ///
    /// # Errors
    /// It is not.
    pub async fn look_again(&self, rest: &AtRest) -> Result<(), Violation> {
        self.machine.take_away(rest.can_go.clone());
        self.scene.note(&self.runtime, &format!("without {:?}", rest.can_go));
        let stage = self.power_on(false).await?;
        let found = look(&stage.daemon).await.map_err(Violation)?;
        if rest.found.as_ref().is_some_and(|before| *before != found) {
            return Err(Violation(format!("without {:?}, the pool has other content", rest.can_go)));
        }
        self.check(&stage).await
    }

    /// Powers on, and runs a script until it ends or the power fails.
    ///
    /// # Errors
    /// The pool does not open, or the history is wrong.
    pub async fn follow(&self, script: impl AsyncFnOnce(&Stage)) -> Result<(), Violation> {
        let life = async {
            let stage = self.power_on(false).await?;
            script(&stage).await;
            stage.note_txgs();
            Ok(())
        };
        let lived = until_cut(life, self.machine.power.failed()).await;
        self.scene.judge(|oracle| {
            oracle.cut();
            Ok(())
        });
        lived
    }

    /// The daemon opens the pool, until it has done so or the power fails.
    ///
    /// # Errors
    /// The pool does not open.
    pub async fn open_until_cut(&self) -> Result<(), Violation> {
        until_cut(async { self.power_on(false).await.map(drop) }, self.machine.power.failed()).await
    }

    /// Powers on after a cut, and looks.
    ///
    /// # Errors
    /// The pool is not as a cut may have left it.
    pub async fn look_after_cut(&self) -> Result<(), Violation> {
        let stage = self.power_on(false).await?;
        self.look_at_reopened(&stage, None).await
    }

    /// The same; then makes all disks well.
    ///
    /// # Errors
    /// As [`Life::look_after_cut`], or the pool does not get well.
    pub async fn recover(&self) -> Result<AtRest, Violation> {
        let stage = self.power_on(false).await?;
        self.look_at_reopened(&stage, None).await?;
        self.rest(&stage).await
    }

    async fn power_on(&self, with_trouble: bool) -> Result<Stage, Violation> {
        let runtime = &self.runtime;
        let bay = Arc::new(self.machine.power_on(runtime));
        if self.flushes_lie {
            self.machine.lie_about_flushes();
        }
        if self.is_slow {
            bay.strike(0, Trouble::IsSlow, &mut runtime.rng());
        }
        if with_trouble && self.swarm.has_faults() {
            self.trouble_before_start(&bay);
        }
        let kernel = Kernel::new(runtime, self.is_deaf);
        let daemon = Daemon::start(runtime, self.machine, self.host, kernel, self.swarm.tunables)
            .await
            .map_err(Violation)?;
        for said in daemon.said() {
            self.scene.note(runtime, said);
            // After a crash with multihost=on.
            let is_watch = said.contains("watching up to");
            if bay.ledger().guilty.is_empty() && !is_watch {
                return Err(Violation(format!("the pool opened with: {said}")));
            }
        }
        let (runtime, daemon) = (runtime.clone(), Arc::new(daemon));
        Ok(Stage { runtime, daemon, bay, scene: self.scene.clone(), swarm: self.swarm.clone() })
    }

    fn trouble_before_start(&self, bay: &Bay) {
        let mut rng: Rng = self.runtime.rng();
        for disk in bay.ledger().guilty {
            if let Some(what) = trouble::at_start(bay, disk, &self.swarm, &mut rng) {
                self.scene.note(&self.runtime, &format!("disk {disk}: {what:?}"));
            }
        }
    }

    /// Clients work until enough calls have ended. For a rest, they end theirs.
    async fn work(&self, stage: &Stage) {
        let Clients { posix, volumes, admins } = self.clients;
        let rests = matches!(self.end, End::Rest | End::Export);
        stage.scene.rest(false);
        let spawn = |client: ClientId| {
            let of = if client < posix { Of::Files } else { Of::Volumes };
            self.runtime.spawn(client::run(stage.clone(), client, of))
        };
        let tasks: Vec<_> = (0..posix + volumes).map(spawn).collect();
        let admins =
            (0..admins).map(|admin| admin::Program::new(stage.clone(), posix + volumes + admin).run());
        let enough = async {
            stage.scene.until(self.calls).await;
            if rests {
                stage.scene.rest(true);
            }
            let most = stage.swarm.pause * REST_PAUSES;
            let rest_ns = self.runtime.random_u64() % most.as_nanos() as u64;
            // Half of the time soon after the last call: a txg may be on its way to the disks.
            let rest_ns = if self.is_cut_soon() { rest_ns % SOON.as_nanos() as u64 } else { rest_ns };
            let rest = std::pin::pin!(self.runtime.sleep(Duration::from_nanos(rest_ns)));
            // Administrators may make thousands of calls in a long pause of the others.
            let overtime = std::pin::pin!(stage.scene.until(self.calls + OVERTIME));
            select(rest, overtime).await;
            if rests {
                for task in tasks {
                    task.await.ok();
                }
            }
        };
        let trouble = async {
            let done = trouble::run(stage).await;
            stage.scene.judge(|_| done);
        };
        let looks_after = async {
            if let Some(look) = stage.swarm.agent {
                agent::run(stage, look).await;
            }
        };
        let intruder = async {
            if self.is_shared {
                let done = intruder::run(stage, self.machine, self.host).await;
                stage.scene.judge(|_| done);
            }
        };
        let others = futures::future::join4(join_all(admins), trouble, looks_after, intruder);
        match rests {
            true => _ = futures::future::join(others, enough).await,
            false => _ = select(Box::pin(others), Box::pin(enough)).await,
        }
    }

    fn is_cut_soon(&self) -> bool {
        matches!(self.end, End::Cut | End::Kill) && self.runtime.random_u64().is_multiple_of(2)
    }

    async fn create_pool(&self, daemon: &Daemon, layout: &Layout) -> Result<(), String> {
        let create = new_pool(&layout.words, layout.is_shared, layout.settings(KEY))?;
        let (created, said) = daemon.run(create).await;
        created.map(drop).map_err(|error| format!("the pool can't be created: {error} {said}"))
    }
}

/// Works until all is done, or cut off.
async fn until_cut(
    work: impl Future<Output = Result<(), Violation>>,
    cut: impl Future<Output = ()>,
) -> Result<(), Violation> {
    match select(std::pin::pin!(work), std::pin::pin!(cut)).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => Ok(()),
    }
}

async fn import(daemon: &Daemon, force: bool) -> Result<(), Violation> {
    if daemon.pools.get(POOL).is_some() {
        // It is in the host's record, and no other host has it.
        return Ok(());
    }
    let (pool, purpose) = (Some(POOL.to_owned()), Purpose::Open);
    let import = Import { pool, purpose, force, load_keys: true, ..Import::default() };
    let (done, said) = daemon.run(import).await;
    match done {
        Ok(answered) if answered.outcome == Outcome::Done => Ok(()),
        Ok(_) => Err(Violation(format!("the pool is not imported: {said}"))),
        Err(error) => Err(Violation(format!("the pool is not imported: {error} {said}"))),
    }
}
