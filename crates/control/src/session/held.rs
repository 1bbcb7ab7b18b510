//! Commands on pools that the daemon holds open.
//!
//! In the daemon the pool is already open: a command reads the newest txg on disk, or changes the pool
//! through its engine, and the mounted file systems follow.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cenote_dataset::name::is_at_or_below;
use cenote_dataset::{Dataset, KeySource, Mos};
use cenote_device::Place;
use cenote_engine::{Engine, Names};
use cenote_format::units::{DatasetId, Guid};
use cenote_host::devices::returning;
use cenote_host::places::{Reach, within};
use cenote_host::pools::{ExportError, InUse, OpenPool, Pools};
use cenote_object::DatasetError;
use cenote_pool::multihost::Watched;
use cenote_pool::{Cause, FoundPool, LeafIoTable, PoolState, VdevConfig};
use cenote_tasks::{destroy_remains, obey_failmode, resume_with};

use super::Session;
use super::domains::key_domains;
use super::writing::{check_kernel, this_host};
use crate::error::{ControlError, Outcome};

/// How long mounts wait to follow a change if the pool is suspended meanwhile.
const FOLLOWING_PATIENCE: Duration = Duration::from_secs(2);
const RESUMING_PATIENCE: Duration = Duration::from_secs(8);
/// How long a resumed pool must run without failure.
const SETTLING: Duration = Duration::from_millis(100);

/// Treatment of file systems that a command makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewDatasets<'a> {
    /// Mount them at their mount points.
    AreMounted,
    /// Leave them unmounted.
    Stay,
    /// Leave this one and those below it unmounted; mount others, such as missing parents.
    StayBelow(&'a str),
}

/// Owned, so that a cancelled verb's work is dropped before its txg is awaited: it may keep that open.
type Work<'a> = Pin<Box<dyn Future<Output = Result<Outcome, ControlError>> + 'a>>;

impl Session {
    /// The daemon's pools; `None`: no daemon runs this command.
    pub fn pools(&self) -> Option<&Arc<Pools>> {
        self.pools.as_ref()
    }

    /// Whether a daemon runs the verb or holds its pools.
    pub fn is_with_daemon(&self) -> bool {
        self.pools.is_some() || self.daemon.is_some()
    }

    /// The pool, if this daemon has it open.
    pub fn held(&self, found: &FoundPool) -> Option<Arc<OpenPool>> {
        self.pools.as_ref()?.by_guid(found.guid())
    }

    /// The same by name.
    pub fn held_by_name(&self, name: &str) -> Option<Arc<OpenPool>> {
        self.pools.as_ref()?.get(name)
    }

    /// # Errors
    /// The daemon has this pool, or another of that name.
    pub fn refuse_if_held(&self, found: &FoundPool) -> Result<(), ControlError> {
        let name = found.name();
        match self.held(found).or_else(|| self.held_by_name(name)) {
            None => Ok(()),
            Some(_) => Err(ControlError::Refused(format!(
                "cannot import '{name}': a pool with that name already exists\nuse the form 'zpool import \
                 <pool | id> <newpool>' to give it a new name"
            ))),
        }
    }

    /// For imports: only its keeper takes a pool that moves among machines.
    ///
    /// # Errors
    /// It is one.
    pub(crate) async fn refuse_if_moving(&self, name: &str) -> Result<(), ControlError> {
        let Some(pools) = self.pools.as_ref().filter(|pools| pools.ha.get().is_some()) else { return Ok(()) };
        let found = self.find_on_disks(name).await?;
        self.refuse_if_held(&found)?;
        let name = found.name();
        match pools.moves(name) {
            false => Ok(()),
            true => Err(ControlError::Refused(format!(
                "cannot import '{name}': it moves among machines; `cenote ha switch {name}` opens it here"
            ))),
        }
    }

    /// An open pool as of its last txg. Does not read its disks: one may hang.
    pub(super) async fn as_found(&self, pool: &OpenPool) -> Result<FoundPool, ControlError> {
        // The queries below read the txg on disk.
        if self.options().sees_all {
            pool.engine.suspension().refuse()?;
            let engine = pool.engine.acting_for(self.caller().who.uid);
            engine.sync_all().await?;
        }
        let view = pool.engine.pool();
        Ok(view.tree().as_found(view.uberblock()))
    }

    /// All open pools, or those of these names.
    pub(super) async fn find_held(
        &self,
        pools: &Pools,
        names: &[String],
    ) -> Result<Vec<FoundPool>, ControlError> {
        if names.is_empty() {
            let mut all = Vec::new();
            for pool in pools.all() {
                all.push(self.as_found(&pool).await?);
            }
            return Ok(all);
        }
        let mut named = Vec::new();
        for name in super::each_once(names) {
            named.push(self.find_held_by_name(pools, name).await?);
        }
        Ok(named)
    }

    pub(super) async fn find_held_by_name(
        &self,
        pools: &Pools,
        name: &str,
    ) -> Result<FoundPool, ControlError> {
        let by_guid = || pools.all().into_iter().find(|pool| pool.guid().to_string() == name);
        match pools.get(name).or_else(by_guid) {
            Some(pool) => self.as_found(&pool).await,
            None if !pools.waiting.named(name).is_empty() => Err(waits(pools, name)),
            None => {
                let all: Vec<String> = pools.all().iter().map(|pool| pool.name.clone()).collect();
                let imported = if all.is_empty() { "none".into() } else { all.join(", ") };
                Err(ControlError::NoPool { pool: name.to_owned(), imported })
            }
        }
    }

    /// Changes an open pool. Mounts follow.
    pub(super) async fn change_held<T: Into<Outcome>>(
        &self,
        pool: &OpenPool,
        new: NewDatasets<'_>,
        work: impl AsyncFnOnce(&Engine) -> Result<T, ControlError>,
    ) -> Result<Outcome, ControlError> {
        pool.engine.suspension().refuse()?;
        let engine = match self.caller().delegated() {
            Some(who) => pool.engine.acting_for_delegated(who.clone(), self.note_names(pool)),
            None => pool.engine.acting_for(self.caller().who.uid),
        };
        let engine = engine.asking(self.keys_of(!pool.others_may_write()));
        let work = Box::pin(async { work(&engine).await.map(T::into) });
        self.followed(pool, &engine, new, work).await
    }

    /// The names with which this verb checks its caller's rights: those on disk at the first call.
    pub(crate) fn note_names(&self, pool: &OpenPool) -> Names {
        let mut all = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(pool.guid()).or_insert_with(|| pool.engine.names()).clone()
    }

    /// For verbs that look names up again after the check.
    ///
    /// # Errors
    /// Another has renamed a dataset since.
    pub(super) fn check_names(&self, pool: &OpenPool) -> Result<(), ControlError> {
        match self.caller().delegated() {
            None => Ok(()),
            Some(_) => Ok(pool.engine.check_names(&self.note_names(pool))?),
        }
    }

    /// The datasets of a pool, of which names mean what they meant when the caller's rights were checked.
    pub(crate) async fn mos_as_checked(&self, pool: &OpenPool) -> Result<Mos, ControlError> {
        let mos = pool.engine.mos().await?;
        self.check_names(pool).map(|()| mos)
    }

    /// Runs work on an engine; then mounts follow the changes.
    async fn followed(
        &self,
        pool: &OpenPool,
        engine: &Engine,
        new: NewDatasets<'_>,
        work: Work<'_>,
    ) -> Result<Outcome, ControlError> {
        self.caller()
            .whole(async {
                let done = self.caller().until_cancelled(work).await;
                if matches!(done, Ok(Outcome::Done) | Err(ControlError::Stopped(_))) {
                    // Included in the next txg.
                    self.note_command(&pool.engine);
                }
                if done.as_ref().is_err_and(ControlError::is_suspended) {
                    // The work completes when the pool resumes; the next command updates the mounts.
                    pool.mounts.owe_all();
                    return done;
                }
                engine.sync_own().await.inspect_err(|_| pool.mounts.owe_all())?;
                self.note_pools(|| "the next start of the daemon finds pools as they were before".into())
                    .await;
                let stays = |name: &str| match new {
                    NewDatasets::AreMounted => false,
                    NewDatasets::Stay => true,
                    NewDatasets::StayBelow(top) => is_at_or_below(name, top),
                };
                let (touched, may_mount) = (engine.touched(), self.caller().may_do_all());
                let follow = async {
                    let followed = pool.mounts.follow(touched, &stays, may_mount).await;
                    // Even after a failure, later readers must see the current state.
                    pool.mounts.settled().await;
                    followed
                };
                let followed = pool.engine.suspension().unless(FOLLOWING_PATIENCE, follow).await;
                let followed = followed.inspect_err(|_| pool.mounts.owe_all())?;
                let failures = followed.map_err(refused)?;
                for failure in &failures {
                    match &done {
                        // Tells the user that the work itself succeeded.
                        Ok(Outcome::Done) => {
                            self.caller().note_bare(format!("the change was made, but: {failure}"))
                        }
                        _ => self.caller().note_bare(failure.to_string()),
                    }
                }
                done.map(|outcome| if failures.is_empty() { outcome } else { outcome.and(Outcome::Failed) })
            })
            .await
    }

    /// Unmounts a dataset and its descendants, runs `work`, and mounts them again.
    pub async fn with_unmounted<T>(
        &self,
        name: &str,
        work: impl AsyncFnOnce() -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let name = name.split('@').next().unwrap_or(name);
        let Some(pool) = self.held_by_name(super::pool_of(name)) else { return work().await };
        self.check_names(&pool)?;
        self.caller()
            .whole(async {
                let aside = pool.mounts.set_aside(name).await.map_err(refused)?;
                let done = work().await;
                let engine = pool.engine.acting_for(self.caller().who.uid);
                let synced = engine.sync_all().await;
                if !self.caller().may_do_all() {
                    // The mount point may have been changed by other users.
                    synced?;
                    return done;
                }
                for failure in pool.mounts.mount_again(aside).await.map_err(refused)? {
                    self.caller().note_bare(failure.to_string());
                }
                synced?;
                done
            })
            .await
    }

    /// Destroys snapshots, all or none. Fails if a file of one is open in `.zfs`.
    pub async fn destroy_snapshots(
        &self,
        engine: &Engine,
        snapshots: &[Dataset],
        in_use: cenote_tasks::InUse,
    ) -> cenote_object::Result<()> {
        if let Some(first) = snapshots.first()
            && let Some(pool) = self.held_by_name(super::pool_of(first.name()))
        {
            pool.mounts.let_go_of_snapshots(snapshots).await;
        }
        let names: Vec<String> = snapshots.iter().map(|snapshot| snapshot.name().to_owned()).collect();
        cenote_tasks::destroy_snapshots(engine, &names, in_use).await
    }

    /// Opens a pool; this daemon holds it until exported.
    pub async fn hold(
        &self,
        found: &FoundPool,
        root: Option<PathBuf>,
    ) -> Result<Arc<OpenPool>, ControlError> {
        let pools =
            self.pools.as_ref().ok_or_else(|| ControlError::Refused("no daemon runs this command".into()))?;
        self.refuse_if_held(found)?;
        // Takes long; meanwhile other pools open and close.
        let watched = self.watch_to_take(found).await?;
        let _turn = pools.turn.lock().await;
        self.refuse_if_held(found)?;
        let engine = self.take_for_good(found, watched).await?;
        // Before any command sees the pool, and can begin another receive.
        self.destroy_remains(found.name(), &engine).await;
        let pool = OpenPool::new(found.name(), engine, found.places(), root, pools);
        let pool = pools.insert(pool);
        self.use_cache_devices(&pool.engine).await?;
        pool.post(&pools.events, "sysevent.fs.zfs.pool_import");
        pool.post(&pools.events, "sysevent.fs.zfs.config_sync");
        let follows = || format!("the next start of the daemon does not import '{}'", found.name());
        self.note_pools(follows).await;
        if pool.others_may_write() {
            self.caller().note(format!(
                "pool '{}': users other than root can write its devices: it is mounted nosuid,nodev, and no \
                 key is taken from a file that it names",
                found.name()
            ));
        }
        Ok(pool)
    }

    /// Destroys the remains of receives that the pool's last end interrupted.
    async fn destroy_remains(&self, pool: &str, engine: &Engine) {
        let left = destroy_remains(engine).await;
        let left = left.unwrap_or_else(|error| vec![(pool.to_owned(), error)]);
        for (target, error) in left {
            self.caller().note(format!("'{target}': the remains of a receive stay: {error}"));
        }
    }

    /// Mounts a pool's file systems according to their properties; reports failures.
    pub async fn mount_all(&self, pool: &OpenPool) -> Result<Outcome, ControlError> {
        self.mount_below(pool, None).await
    }

    /// The same at and below a dataset. Does nothing for a delegated caller: mounting is for administrators,
    /// also where a command implies it.
    pub async fn mount_below(&self, pool: &OpenPool, name: Option<&str>) -> Result<Outcome, ControlError> {
        let mut outcome = Outcome::Done;
        if !self.caller().may_do_all() {
            return Ok(outcome);
        }
        for failure in pool.mounts.mount_below(name).await.map_err(refused)? {
            self.caller().note_bare(failure.to_string());
            outcome = Outcome::Failed;
        }
        Ok(outcome)
    }

    /// Mounts datasets whose mount point was set: setting it implies mounting.
    pub async fn mount_where_set(&self, names: &[String]) -> Result<Outcome, ControlError> {
        let mut outcome = Outcome::Done;
        for name in names {
            if let Some(pool) = self.held_by_name(super::pool_of(name)) {
                outcome = outcome.and(self.mount_below(&pool, Some(name)).await?);
            }
        }
        Ok(outcome)
    }

    /// Loads the keys of encryption roots at and below a dataset, or of all roots, from their key locations.
    /// Unavailable keys are reported.
    pub async fn load_keys(&self, pool: &OpenPool, name: Option<&str>) -> Result<Outcome, ControlError> {
        let (mos, source) = (self.mos_as_checked(pool).await?, self.keys_to_load(None));
        let mut outcome = Outcome::Done;
        for domain in key_domains(&mos, name).await? {
            if pool.engine.keys().has(domain.info.root_dir).await {
                continue;
            }
            if let Err(error) = domain.load(&pool.engine, &source).await {
                outcome = outcome.and(self.caller().tell(&domain.info.root, &error));
            }
        }
        Ok(outcome)
    }

    /// The same for one root, unless its key is loaded. The key must be available.
    pub async fn load_key_of(&self, pool: &OpenPool, root: &str) -> Result<(), ControlError> {
        let domains = key_domains(&self.mos_as_checked(pool).await?, Some(root)).await?;
        for domain in domains.iter().filter(|domain| domain.info.root == root) {
            if !pool.engine.keys().has(domain.info.root_dir).await {
                domain.load(&pool.engine, &self.keys_to_load(None)).await?;
            }
        }
        Ok(())
    }

    /// Unloads the keys of encryption roots at and below a dataset, except those needed by mounts.
    pub async fn unload_keys(&self, pool: &OpenPool, name: Option<&str>) -> Result<(), ControlError> {
        for domain in key_domains(&self.mos_as_checked(pool).await?, name).await? {
            if pool.engine.keys().has(domain.info.root_dir).await {
                domain.unload(&pool.engine, &pool.mounts).await.ok();
            }
        }
        Ok(())
    }

    /// Places to search for missing devices of an open pool.
    pub(super) async fn places_to_look(&self, pool: &OpenPool) -> Vec<Place> {
        let search = self.pools.as_ref().map_or(&[][..], |pools| &pools.search);
        within(self.runtime(), pool.places(), search, Reach::Everywhere).await
    }

    /// Retries the I/O of a suspended pool with its returned devices, and waits for it. `what`: the operation
    /// that needs it.
    ///
    /// # Errors
    /// Its devices still fail.
    pub async fn resume(&self, name: &str, what: &str) -> Result<(), ControlError> {
        let Some(pool) = self.held_by_name(name) else { return Ok(()) };
        let view = pool.engine.pool();
        let Some(suspended) = view.suspension().suspended() else { return Ok(()) };
        if suspended.cause == Cause::Multihost {
            return Err(ControlError::Refused(format!(
                "cannot {what}: {}, so another machine may have imported the pool; `zpool export -f {name}` \
                 lets it go, and `zpool import {name}` opens it again if no other machine has it",
                suspended.why
            )));
        }
        let config = view.tree().config();
        let leaves: Vec<Guid> =
            config.vdevs.iter().flat_map(VdevConfig::leaves).map(|leaf| leaf.guid).collect();
        let goes_on = async {
            // A device present but unopenable counts as missing.
            let places = self.places_to_look(&pool).await;
            let back = returning(&pool.engine, &places, &leaves).await.unwrap_or_default();
            resume_with(&pool.engine, back);
            loop {
                view.suspension().suspended_or_not(false).await;
                // An earlier operation may still fail.
                self.runtime().sleep(SETTLING).await;
                if view.suspension().suspended().is_none() {
                    break;
                }
                view.suspension().resume();
            }
        };
        let done = self.runtime().timeout(RESUMING_PATIENCE, goes_on).await;
        done.map_err(|_| ControlError::Refused(format!("cannot {what}: I/O error")))
    }

    /// Closes an open pool. Unless its users stay, a suspended pool loses changes not yet on disk.
    pub async fn let_go(&self, pool: &OpenPool, state: PoolState, in_use: InUse) -> Result<(), ControlError> {
        let Some(pools) = self.pools.as_ref() else { return Ok(()) };
        let (name, destroyed) = (&pool.name, state == PoolState::Destroyed);
        let force = in_use != InUse::Stays;
        let is_at_any_cost = force && !destroyed;
        self.caller().whole(async {
            // Before unmounting, and before blocking other opens and closes.
            if let Err(error) = pool.engine.suspension().refuse_at_standstill()
                && !is_at_any_cost
            {
                return Err(refused(format!(
                    "cannot export '{name}': {error}; `zpool export -f {name}` lets it go without changes \
                     that are not on disk"
                )));
            }
            let _turn = pools.turn.lock().await;
            // Another command may have exported it meanwhile, and yet another imported it again.
            if !pools.get(name).is_some_and(|open| std::ptr::eq(&raw const *open, pool)) {
                return Err(ControlError::NotFound(format!("cannot open '{name}': no such pool")));
            }
            let _leaving = pools.leaving(pool.guid());
            // The next start opens the recorded pools.
            if let Err(error) = pools.note(self.runtime()).await
                && !force
                && !destroyed
            {
                return Err(refused(format!(
                    "cannot export '{name}': the record of pools can't be written: {error}; the next start \
                     of the daemon would open the pool again; free space where the record is, or `zpool \
                     export -f {name}`"
                )));
            }
            self.note_command(&pool.engine);
            if is_at_any_cost {
                let left = pool.leave_at_any_cost(state, in_use).await.map_err(not_exported)?;
                lost(name, left).into_iter().for_each(|text| self.caller().note(text));
            } else {
                pool.leave(state, in_use).await.map_err(not_exported)?;
            }
            pools.remove(name);
            let class =
                if destroyed { "sysevent.fs.zfs.pool_destroy" } else { "sysevent.fs.zfs.pool_export" };
            pool.post(&pools.events, class);
            let follows = || format!("the next start of the daemon looks for '{name}' again");
            self.note_pools(follows).await;
            Ok(())
        })
        .await
    }

    async fn take_for_good(
        &self,
        found: &FoundPool,
        watched: Option<Watched>,
    ) -> Result<Engine, ControlError> {
        check_kernel(found.name())?;
        let taps = Arc::new(LeafIoTable::new(self.runtime()));
        let (found, taking) = self.open_watched(found, watched, Some(taps)).await?;
        let mos = self.import(&found, &self.newest(&found)).await?;
        let engine = Engine::start(&mos).await?;
        self.begin(&engine, &taking).await?;
        if let Some(pools) = &self.pools {
            pools.tuning.apply_multihost(&engine);
        }
        engine.ownership().set_state(PoolState::Active, this_host(self.runtime())).await?;
        // Replay used the keys available then; from now on keys must be loaded explicitly.
        engine.close_datasets(encrypted(&engine.mos().await?).await?).await?;
        engine.keys().restart(KeySource::default()).await;
        obey_failmode(&engine).await?;
        Ok(engine)
    }
}

async fn encrypted(mos: &Mos) -> Result<Vec<DatasetId>, ControlError> {
    let mut ids = Vec::new();
    for dataset in mos.reachable_datasets().await?.0 {
        if !dataset.is_snapshot() && dataset.dir().encryption().await?.is_some() {
            ids.push(dataset.id());
        }
    }
    Ok(ids)
}

/// The error for a pool that the daemon has not opened yet.
fn waits(pools: &Pools, name: &str) -> ControlError {
    let why = pools.waiting.named(name).pop().map(|waiting| waiting.why).unwrap_or_default();
    let why = why.lines().next().unwrap_or_default();
    ControlError::NotFound(format!("cannot open '{name}': it waits to be opened: {why}"))
}

fn refused(error: impl std::fmt::Display) -> ControlError {
    ControlError::Refused(error.to_string())
}

fn not_exported(error: ExportError) -> ControlError {
    match error {
        error @ (ExportError::Mounts(_) | ExportError::Served { .. }) => refused(error),
        ExportError::Dataset(error) => error.into(),
    }
}

/// A message for a pool closed without its last changes, with the reason; `None` if nothing was lost.
pub fn lost(pool: &str, lost: Option<DatasetError>) -> Option<String> {
    lost.map(|why| {
        format!("pool '{pool}' was let go without changes that were not on disk, which are lost: {why}")
    })
}
