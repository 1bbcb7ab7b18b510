//! The daemon's open pools.
//!
//! ```text
//!   import, create --> OpenPool: engine, txgs written in the background, mounts --> export, destroy
//!                         |
//!                    commands work on its engine; mounts follow their changes
//! ```
//!
//! Locking: `table` and `leaving` are locked for one look or change. `turn` serializes opening and closing
//! pools.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cenote_boxed::boxed;
use cenote_cache::BlockCache;
use cenote_device::Place;
use cenote_engine::Engine;
use cenote_format::label::PoolState;
use cenote_format::nvlist::Nvlist;
use cenote_format::units::Guid;
use cenote_fuse::SessionOptions;
use cenote_ha::Nodes;
use cenote_object::DatasetError;
use cenote_runtime::{AbortOnDrop, Instant, Runtime};
use cenote_tasks::{
    keep_autotrimming, keep_expanding, keep_healthy, keep_passing, keep_rebuilding, keep_removing,
    keep_scanning, mend,
};
use parking_lot::Mutex;

use crate::copies::Copies;
use crate::devices::Watched;
use crate::events::Events;
use crate::memory::{Balance, Lately, Memory, held_back};
use crate::mounts::{Mounts, MountsError};
use crate::places::places_of;
use crate::record::{NotedPool, Record, State};
use crate::suspended::{Say, keep_saying};
use crate::tuning::Tuning;
use crate::volumes::Clients;
use crate::waiting::WaitingPools;

/// An open pool.
pub struct OpenPool {
    /// Its name.
    pub name: String,
    /// Its engine.
    pub engine: Engine,
    /// Its mounted file systems.
    pub mounts: Mounts,
    /// Clients of its volumes.
    pub clients: Clients,
    devices: Vec<Place>,
    /// Time of opening.
    pub since: Instant,
    /// Background tasks: scans, passes, device health, cache devices ...
    at_work: Mutex<Option<[AbortOnDrop<()>; 8]>>,
    /// Tasks that write txgs, and report device states and suspension.
    _background: (Arc<AbortOnDrop<()>>, [AbortOnDrop<()>; 2]),
}

/// Treatment of a pool's users when it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// They keep it open.
    Stays,
    /// Disconnects volume clients; as in OpenZFS on Linux, open files keep the pool.
    ClientsGo,
    /// Disconnects clients, and detaches busy file systems.
    Goes,
}

/// All open pools.
pub struct Pools {
    table: Mutex<BTreeMap<String, Arc<OpenPool>>>,
    /// Pools being closed, already off the record.
    leaving: Mutex<BTreeSet<Guid>>,
    /// Held while a pool is opened or closed.
    pub turn: tokio::sync::Mutex<()>,
    /// Default search places; empty: this machine's block devices.
    pub search: Vec<Place>,
    /// How file systems are served.
    pub session: SessionOptions,
    /// Shared tunables.
    pub tuning: Tuning,
    /// Events of all pools.
    pub events: Events,
    /// Copies that the agent keeps.
    pub copies: Copies,
    /// Keepers of pools that move among machines.
    pub ha: OnceLock<Arc<Nodes>>,
    /// Prints the daemon's unsolicited messages.
    pub say: Say,
    /// Recent bytes of dirty data.
    dirty: Lately,
    /// Recent bytes of this process beside its pools.
    beside: Lately,
    /// Pools that failed to open, to be retried.
    pub waiting: WaitingPools,
    record: Arc<Record>,
    before: State,
}

impl OpenPool {
    /// Wraps an engine that has taken its pool, and starts its tasks.
    pub fn new(
        name: &str,
        engine: Engine,
        devices: Vec<Place>,
        root: Option<PathBuf>,
        pools: &Pools,
    ) -> OpenPool {
        let mounts = Mounts::new(&engine, root, pools.session);
        pools.events.listen(&engine, name);
        let watch = pools.events.clone().watch(engine.weak(), name.into());
        let since = engine.runtime().now();
        let watching = engine.runtime().spawn(watch).abort_on_drop();
        let telling = keep_saying(engine.weak(), name.into(), pools.events.clone(), pools.say);
        let telling = engine.runtime().spawn(telling).abort_on_drop();
        let _background = (engine.sync_in_background(), [watching, telling]);
        let (events, pool) = (pools.events.clone(), name.to_owned());
        let guid = engine.pool().tree().guid();
        let failed = move |_: DatasetError| events.post(SCAN_FAILED, &pool, guid, Nvlist::new());
        let scanning = engine.runtime().spawn(keep_scanning(engine.weak(), failed)).abort_on_drop();
        let record = pools.record.clone();
        engine.on_config(move || record.has_changed());
        let watched = Watched::new(name, devices.clone(), pools.search.clone(), pools.events.clone());
        let health = engine.runtime().spawn(keep_healthy(engine.weak(), watched)).abort_on_drop();
        let feeding = engine.runtime().spawn(engine.l2arc().feed()).abort_on_drop();
        let passing = engine.runtime().spawn(keep_passing(engine.weak())).abort_on_drop();
        let trimming = engine.runtime().spawn(keep_autotrimming(engine.weak())).abort_on_drop();
        let (events, pool) = (pools.events.clone(), name.to_owned());
        let failed = move |_: DatasetError| events.post(REMOVAL_FAILED, &pool, guid, Nvlist::new());
        let removing = engine.runtime().spawn(keep_removing(engine.weak(), failed)).abort_on_drop();
        let (events, pool) = (pools.events.clone(), name.to_owned());
        let failed = move |_: DatasetError| events.post(REBUILD_FAILED, &pool, guid, Nvlist::new());
        let rebuilding = engine.runtime().spawn(keep_rebuilding(engine.weak(), failed)).abort_on_drop();
        let (events, pool) = (pools.events.clone(), name.to_owned());
        let failed = move |_: DatasetError| events.post(EXPANSION_FAILED, &pool, guid, Nvlist::new());
        let expanding = engine.runtime().spawn(keep_expanding(engine.weak(), failed)).abort_on_drop();
        let at_work =
            Some([scanning, health, feeding, passing, trimming, removing, rebuilding, expanding]).into();
        let clients = Clients::default();
        OpenPool { name: name.into(), engine, mounts, clients, devices, since, at_work, _background }
    }

    /// Posts an event of this pool.
    pub fn post(&self, events: &Events, class: &'static str) {
        events.post(class, &self.name, self.guid(), Nvlist::new());
    }

    /// Current or last places of its devices.
    pub fn places(&self) -> Vec<Place> {
        places_of(&self.engine, &self.devices)
    }

    /// Whether users other than root and the daemon's may have written to it.
    pub fn others_may_write(&self) -> bool {
        self.engine.pool().tree().found().others_may_write()
    }

    /// Its guid.
    pub fn guid(&self) -> Guid {
        self.engine.pool().tree().guid()
    }

    /// Stops background tasks.
    #[boxed]
    pub async fn rest(&self) {
        self.at_work.lock().take();
        self.engine.l2arc().devices().end().await;
        // Unrecorded damage will be found again.
        mend(&self.engine).await.ok();
    }

    /// Stops background tasks, and closes the pool in this state.
    ///
    /// # Errors
    /// The last txg could not be written.
    #[boxed]
    pub async fn close(&self, state: PoolState) -> Result<(), ExportError> {
        self.rest().await;
        Ok(self.engine.close(state).await?)
    }

    /// Unmounts everything and closes the pool in this state.
    ///
    /// # Errors
    /// A file system or volume is in use; the pool is suspended or has stopped.
    #[boxed]
    pub async fn leave(&self, state: PoolState, in_use: InUse) -> Result<(), ExportError> {
        self.engine.suspension().refuse_at_standstill()?;
        let left = self.engine.suspension().unless(LEAVING_PATIENCE, self.leave_whole(state, in_use)).await?;
        left?;
        self.engine.pool().tree().let_go_of_devices();
        Ok(())
    }

    /// Closes the pool even if its devices don't work, then detaching busy file systems. Returns the error
    /// that lost its last changes, if any.
    ///
    /// # Errors
    /// A file system is in use in a working pool.
    #[boxed]
    pub async fn leave_at_any_cost(
        &self,
        state: PoolState,
        in_use: InUse,
    ) -> Result<Option<DatasetError>, ExportError> {
        let left = async {
            let left = self.leave_whole(state, in_use).await;
            match (&left, self.engine.suspension().refuse_at_standstill()) {
                (Err(ExportError::Mounts(_)), Err(_)) => self.leave_whole(state, InUse::Goes).await,
                _ => left,
            }
        };
        let lost = match self.engine.suspension().leave(LEAVING_PATIENCE, left).await {
            Ok(()) => None,
            Err(ExportError::Dataset(lost)) => Some(lost),
            Err(error) => return Err(error),
        };
        self.engine.pool().tree().let_go_of_devices();
        Ok(lost)
    }

    async fn leave_whole(&self, state: PoolState, in_use: InUse) -> Result<(), ExportError> {
        if in_use == InUse::Stays
            && let Some(client) = self.clients.in_the_way(self.engine.runtime()).await
        {
            let pool = self.name.clone();
            return Err(ExportError::Served { pool, volume: client.volume, who: client.who });
        }
        self.mounts.leave(in_use == InUse::Goes).await?;
        self.clients.send_away().await;
        self.close(state).await
    }
}

/// Background work failed on unreadable metadata; it is retried at the next order.
const SCAN_FAILED: &str = "ereport.org.cenote.scan_failed";
const EXPANSION_FAILED: &str = "ereport.org.cenote.expansion_failed";
const REBUILD_FAILED: &str = "ereport.org.cenote.rebuild_failed";
const REMOVAL_FAILED: &str = "ereport.org.cenote.removal_failed";

/// How long a closing pool may be suspended.
const LEAVING_PATIENCE: Duration = Duration::from_secs(2);

/// Delay before writing the record is retried.
const NOTE_AGAIN: Duration = Duration::from_secs(5);

/// Minimum of all caches together.
const LEAST_CACHE_BYTES: u64 = 16 << 20;

/// Why a pool is still open.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum ExportError {
    #[error(transparent)]
    Mounts(#[from] MountsError),
    #[error("pool '{pool}' is busy: '{volume}' is used by {who}; -f sends clients away")]
    Served { pool: String, volume: String, who: String },
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

/// A pool being closed: see [`Pools::leaving`].
pub struct Leaving {
    pools: Arc<Pools>,
    guid: Guid,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.pools.leaving.lock().remove(&self.guid);
        self.pools.record.has_changed();
    }
}

impl Pools {
    /// No open pools yet; `state` is the record's file.
    pub fn new(
        runtime: &Runtime,
        search: Vec<Place>,
        session: SessionOptions,
        tuning: Tuning,
        state: PathBuf,
        say: Say,
    ) -> Pools {
        let (table, leaving, turn, dirty, beside, waiting) = Default::default();
        let events = Events::new(runtime);
        let (record, before) = Record::read(state);
        let record = Arc::new(record);
        Pools {
            copies: Copies::default(),
            ha: OnceLock::new(),
            table,
            leaving,
            turn,
            search,
            session,
            tuning,
            events,
            say,
            dirty,
            beside,
            waiting,
            record,
            before,
        }
    }

    /// The last daemon's pools, even after a crash.
    pub fn noted(&self) -> &State {
        &self.before
    }

    /// Updates the record.
    ///
    /// # Errors
    /// The file can't be written.
    #[boxed]
    pub async fn note(self: &Arc<Pools>, runtime: &Runtime) -> io::Result<()> {
        let pools = Arc::downgrade(self);
        let now =
            move |before: &State| pools.upgrade().map_or_else(|| before.clone(), |all| all.state(before));
        self.record.clone().note(runtime, now).await
    }

    /// Updates the record for the last time, before the daemon closes its pools.
    ///
    /// # Errors
    /// The file can't be written.
    #[boxed]
    pub async fn end_record(self: &Arc<Pools>, runtime: &Runtime) -> io::Result<()> {
        let noted = self.note(runtime).await;
        self.record.end().await;
        noted
    }

    /// Keeps the record current; prints each new error once.
    pub async fn keep_noting(self: Arc<Pools>, runtime: Runtime) {
        let (record, pools) = (self.record.clone(), Arc::downgrade(&self));
        drop(self);
        let mut last = String::new();
        loop {
            record.changed().await;
            loop {
                let Some(pools) = pools.upgrade() else { return };
                let Err(error) = pools.note(&runtime).await else { break };
                let text = format!("the record of pools can't be written: {error}");
                if text != last {
                    (pools.say)(&text);
                    last = text;
                }
                drop(pools);
                runtime.sleep(NOTE_AGAIN).await;
            }
            last.clear();
        }
    }

    fn state(&self, before: &State) -> State {
        let noted = |pool: &Arc<OpenPool>| {
            let before = before.pools.iter().find(|noted| noted.is(&pool.name, pool.guid()));
            NotedPool::of(&pool.name, &pool.engine, before)
        };
        let stays = |pool: &Arc<OpenPool>| !self.leaving.lock().contains(&pool.guid());
        let mut pools: Vec<NotedPool> = self.all().iter().filter(|pool| stays(pool)).map(noted).collect();
        let waiting = self.waiting.all().into_iter().map(|waiting| waiting.pool);
        // A name alone would not help the next start.
        let waiting = waiting.filter(|pool| !pool.devices.is_empty());
        pools.extend(waiting.filter(|pool| !self.is_open(pool)));
        State { pools }
    }

    /// Whether a recorded pool is open.
    pub fn is_open(&self, noted: &NotedPool) -> bool {
        self.table.lock().values().any(|pool| noted.is(&pool.name, pool.guid()))
    }

    /// Adds a pool that failed to open. Returns whether the reason is new.
    pub fn wait(&self, runtime: &Runtime, pool: NotedPool, why: &str) -> bool {
        self.waiting.add(runtime, pool, why)
    }

    /// Records a closing pool as closed until the result is dropped, in case the daemon ends meanwhile.
    pub fn leaving(self: &Arc<Self>, guid: Guid) -> Leaving {
        self.leaving.lock().insert(guid);
        self.record.has_changed();
        Leaving { pools: self.clone(), guid }
    }

    /// Forgets a waiting pool, by name or guid. Returns whether there was one.
    pub fn forget(&self, name: &str) -> bool {
        let has_waited = self.waiting.forget(name);
        self.record.has_changed();
        has_waited
    }

    /// Whether a pool moves among machines.
    pub fn moves(&self, name: &str) -> bool {
        self.ha.get().is_some_and(|nodes| nodes.manages(name))
    }

    /// The pool with this guid.
    pub fn by_guid(&self, guid: Guid) -> Option<Arc<OpenPool>> {
        self.table.lock().values().find(|pool| pool.guid() == guid).cloned()
    }

    /// The pool with this name.
    pub fn get(&self, name: &str) -> Option<Arc<OpenPool>> {
        self.table.lock().get(name).cloned()
    }

    /// All pools, by name.
    pub fn all(&self) -> Vec<Arc<OpenPool>> {
        self.table.lock().values().cloned().collect()
    }

    /// Adds an opened pool.
    pub fn insert(&self, pool: OpenPool) -> Arc<OpenPool> {
        let pool = Arc::new(pool);
        self.table.lock().insert(pool.name.clone(), pool.clone());
        self.waiting.opened(&pool.name, pool.guid());
        self.record.has_changed();
        self.tune();
        pool
    }

    /// Removes a closed pool.
    pub fn remove(&self, name: &str) {
        self.table.lock().remove(name);
        self.record.has_changed();
        self.tune();
    }

    /// Applies all tunables to all open pools.
    pub fn tune(&self) {
        let pools = self.all();
        pools.iter().for_each(|pool| self.tuning.apply(&pool.engine));
        self.share(&pools, self.tuning.target_bytes(), 0);
    }

    /// Adapts the caches to the memory left; returns the target and the memory beside the pools. Caches make
    /// room for the latter, except if the allocator `kept` freed memory, which gives way.
    pub(crate) fn balance(&self, memory: Memory, kept: bool) -> Balance {
        let pools = self.all();
        let held = pools.iter().map(|pool| {
            let engine = &pool.engine;
            engine.cache().bytes() + engine.load().dirty_bytes() + engine.l2arc().devices().memory_bytes()
        });
        let held_bytes: u64 = held.sum();
        let target_bytes = self.tuning.balance(held_bytes, memory.left_bytes);
        let beside_bytes = memory.own_bytes.saturating_sub(held_bytes);
        self.share(&pools, target_bytes, if kept { 0 } else { beside_bytes });
        Balance { target_bytes, beside_bytes }
    }

    pub(crate) fn caches(&self) -> Vec<Arc<BlockCache>> {
        self.all().iter().map(|pool| pool.engine.cache().clone()).collect()
    }

    /// Divides the target among the caches, less recent peaks of dirty data and of the process's other
    /// memory.
    fn share(&self, pools: &[Arc<OpenPool>], target_bytes: u64, beside_bytes: u64) {
        let dirty_bytes: u64 = pools.iter().map(|pool| pool.engine.load().dirty_bytes()).sum();
        let taken = self.dirty.note(dirty_bytes) + held_back(target_bytes, self.beside.note(beside_bytes));
        let each = target_bytes.saturating_sub(taken).max(LEAST_CACHE_BYTES) / pools.len().max(1) as u64;
        for pool in pools {
            // `l2arc_meta_percent`: the index of cache devices counts, too.
            let devices = pool.engine.l2arc().devices();
            devices.set_index_bytes(each / 3);
            let left = each.saturating_sub(devices.memory_bytes()).max(each / 2);
            pool.engine.cache().set_budget(usize::try_from(left).unwrap_or(usize::MAX));
        }
    }
}
