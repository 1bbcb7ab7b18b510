//! The pools that the daemon holds open.
//!
//! ```text
//!   import, create --> OpenPool: engine, txgs written in the background, mounts --> export, destroy
//!                         |
//!                    commands work on its engine; mounts follow what they change
//! ```
//!
//! Locking: `table` and `leaving` are locked for one look or change. Opening and closing pools happens one at
//! a time: `turn`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cenote_boxed::boxed;
use cenote_cache::BlockCache;
use cenote_engine::Engine;
use cenote_format::label::PoolState;
use cenote_format::nvlist::Nvlist;
use cenote_format::units::Guid;
use cenote_fuse::SessionOptions;
use cenote_object::DatasetError;
use cenote_runtime::{AbortOnDrop, Instant, Runtime};
use cenote_tasks::{
    keep_autotrimming, keep_expanding, keep_healthy, keep_passing, keep_rebuilding, keep_removing,
    keep_scanning, mend,
};
use parking_lot::Mutex;

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

/// A pool that is open.
pub struct OpenPool {
    /// Its name.
    pub name: String,
    /// Its engine.
    pub engine: Engine,
    /// Its mounted file systems.
    pub mounts: Mounts,
    /// Who uses its volumes.
    pub clients: Clients,
    /// The files and devices it lay on when it was opened.
    devices: Vec<PathBuf>,
    /// When it was opened.
    pub since: Instant,
    /// Scrubs, resilvers, initializations and trims go on, devices that fail go out of use, and cache devices
    /// are fed, while these are there.
    at_work: Mutex<Option<[AbortOnDrop<()>; 8]>>,
    /// Txgs are written, states of devices become events, and that the pool is suspended is told, while these
    /// are there.
    _background: (Arc<AbortOnDrop<()>>, [AbortOnDrop<()>; 2]),
}

/// What becomes of those who use a pool that is to be left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// They keep it.
    Stays,
    /// Clients of volumes are sent away; as with OpenZFS on Linux, nobody loses a file that is open.
    ClientsGo,
    /// Clients are sent away, and busy file systems taken out of the tree.
    Goes,
}

/// All pools that are open, and how more are opened.
pub struct Pools {
    table: Mutex<BTreeMap<String, Arc<OpenPool>>>,
    /// Those that are being closed, and are in the record no more.
    leaving: Mutex<BTreeSet<Guid>>,
    /// Held while a pool is opened or closed.
    pub turn: tokio::sync::Mutex<()>,
    /// Where pools are looked for if nobody says where; none: this machine's block devices.
    pub search: Vec<PathBuf>,
    /// How file systems are served.
    pub session: SessionOptions,
    /// What holds for all of them and can be changed.
    pub tuning: Tuning,
    /// What has happened to them.
    pub events: Events,
    /// How the daemon says something that nobody has asked for.
    pub say: Say,
    /// What changes took of late.
    dirty: Lately,
    /// What this process took beside what pools hold.
    beside: Lately,
    /// Those that don't open, and are tried again.
    pub waiting: WaitingPools,
    /// Where it is noted which pools there are.
    record: Arc<Record>,
    /// What the last daemon noted.
    before: State,
}

impl OpenPool {
    /// An engine that has taken its pool: its txgs are written from now on.
    pub fn new(
        name: &str,
        engine: Engine,
        devices: Vec<PathBuf>,
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
        let guid = engine.pool().guid();
        let failed = move |_: DatasetError| events.post(SCAN_FAILED, &pool, guid, Nvlist::new());
        let scanning = engine.runtime().spawn(keep_scanning(engine.weak(), failed)).abort_on_drop();
        let record = pools.record.clone();
        engine.on_config(move || record.has_changed());
        let watched = Watched::new(name, devices.clone(), pools.search.clone(), pools.events.clone());
        let health = engine.runtime().spawn(keep_healthy(engine.weak(), watched)).abort_on_drop();
        let feeding = engine.runtime().spawn(engine.feed_cache_devices()).abort_on_drop();
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

    /// Something has happened to it.
    pub fn post(&self, events: &Events, class: &'static str) {
        events.post(class, &self.name, self.guid(), Nvlist::new());
    }

    /// Where its devices are, or were.
    pub fn places(&self) -> Vec<PathBuf> {
        places_of(&self.engine, &self.devices)
    }

    /// Whether others than root and the daemon's user can have put anything into it.
    pub fn others_may_write(&self) -> bool {
        self.engine.pool().found().others_may_write()
    }

    /// Its guid.
    pub fn guid(&self) -> Guid {
        self.engine.pool().guid()
    }

    /// Ends what works in the background.
    #[boxed]
    pub async fn rest(&self) {
        self.at_work.lock().take();
        self.engine.cache_devices().end().await;
        // What can't be noted any more is found again.
        mend(&self.engine).await.ok();
    }

    /// Ends what works in the background, and leaves the pool in this state.
    ///
    /// # Errors
    /// The last txg could not be written.
    #[boxed]
    pub async fn close(&self, state: PoolState) -> Result<(), ExportError> {
        self.rest().await;
        Ok(self.engine.close(state).await?)
    }

    /// Leaves the pool in this state when nobody uses it any more: unmounts everything. One that takes no
    /// changes is left alone.
    ///
    /// # Errors
    /// A file system or a volume is in use; the pool is suspended, or has stopped.
    #[boxed]
    pub async fn leave(&self, state: PoolState, in_use: InUse) -> Result<(), ExportError> {
        self.engine.refuse_at_standstill()?;
        let left = self.engine.unless_suspended(LEAVING_PATIENCE, self.leave_whole(state, in_use)).await?;
        left?;
        self.engine.pool().let_go_of_devices();
        Ok(())
    }

    /// Leaves the pool even if its devices don't work; answers why its last changes are lost, if they are. Of
    /// such a pool, busy file systems are taken out of the tree.
    ///
    /// # Errors
    /// A file system is in use, in a pool that works.
    #[boxed]
    pub async fn leave_at_any_cost(
        &self,
        state: PoolState,
        in_use: InUse,
    ) -> Result<Option<DatasetError>, ExportError> {
        let left = async {
            let left = self.leave_whole(state, in_use).await;
            match (&left, self.engine.refuse_at_standstill()) {
                (Err(ExportError::Mounts(_)), Err(_)) => self.leave_whole(state, InUse::Goes).await,
                _ => left,
            }
        };
        let lost = match self.engine.leaving(LEAVING_PATIENCE, left).await {
            Ok(()) => None,
            Err(ExportError::Dataset(lost)) => Some(lost),
            Err(error) => return Err(error),
        };
        self.engine.pool().let_go_of_devices();
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

/// A scan could not go on: metadata can't be read. It is tried again at the next order.
const SCAN_FAILED: &str = "ereport.org.cenote.scan_failed";
/// The same of an expansion.
const EXPANSION_FAILED: &str = "ereport.org.cenote.expansion_failed";
/// The same of a rebuild.
const REBUILD_FAILED: &str = "ereport.org.cenote.rebuild_failed";
/// The same of a removal.
const REMOVAL_FAILED: &str = "ereport.org.cenote.removal_failed";

/// How long a pool that is being left may be suspended.
const LEAVING_PATIENCE: Duration = Duration::from_secs(2);

/// How long it takes until the record is written again that could not be.
const NOTE_AGAIN: Duration = Duration::from_secs(5);

/// The least that all caches together get, however much has changed.
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

/// A pool that is being closed: see [`Pools::leaving`].
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
    /// No pool is open yet. `state` is the file that keeps which are.
    pub fn new(
        runtime: &Runtime,
        search: Vec<PathBuf>,
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

    /// The pools that the last daemon had, however it ended.
    pub fn noted(&self) -> &State {
        &self.before
    }

    /// Brings the record up to date: pools that are open, and those that wait.
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

    /// Brings the record up to date for the last time: the next daemon is to have the pools that are let go
    /// of from now on.
    ///
    /// # Errors
    /// The file can't be written.
    #[boxed]
    pub async fn end_record(self: &Arc<Pools>, runtime: &Runtime) -> io::Result<()> {
        let noted = self.note(runtime).await;
        self.record.end().await;
        noted
    }

    /// Keeps the record up to date while there are pools; `failed` hears why it is not, once each.
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

    /// What the record is to say.
    fn state(&self, before: &State) -> State {
        let noted = |pool: &Arc<OpenPool>| {
            let before = before.pools.iter().find(|noted| noted.is(&pool.name, pool.guid()));
            NotedPool::of(&pool.name, &pool.engine, before)
        };
        let stays = |pool: &Arc<OpenPool>| !self.leaving.lock().contains(&pool.guid());
        let mut pools: Vec<NotedPool> = self.all().iter().filter(|pool| stays(pool)).map(noted).collect();
        let waiting = self.waiting.all().into_iter().map(|waiting| waiting.pool);
        // With a name alone the next start could not begin anything.
        let waiting = waiting.filter(|pool| !pool.devices.is_empty());
        pools.extend(waiting.filter(|pool| !self.is_open(pool)));
        State { pools }
    }

    /// Whether a pool of the record is open.
    pub fn is_open(&self, noted: &NotedPool) -> bool {
        self.table.lock().values().any(|pool| noted.is(&pool.name, pool.guid()))
    }

    /// A pool does not open, and waits. Answers whether the reason is a new one.
    pub fn wait(&self, runtime: &Runtime, pool: NotedPool, why: &str) -> bool {
        self.waiting.add(runtime, pool, why)
    }

    /// The record is to say from now on that a pool is closed, although it is still open: if the daemon ends
    /// while it closes the pool, the next one does not open it again. Until the answer is dropped.
    pub fn leaving(self: &Arc<Self>, guid: Guid) -> Leaving {
        self.leaving.lock().insert(guid);
        self.record.has_changed();
        Leaving { pools: self.clone(), guid }
    }

    /// Forgets a pool that waits. Answers whether one of that name or guid did.
    pub fn forget(&self, name: &str) -> bool {
        let has_waited = self.waiting.forget(name);
        self.record.has_changed();
        has_waited
    }

    /// The pool of this guid.
    pub fn by_guid(&self, guid: Guid) -> Option<Arc<OpenPool>> {
        self.table.lock().values().find(|pool| pool.guid() == guid).cloned()
    }

    /// The pool of this name.
    pub fn get(&self, name: &str) -> Option<Arc<OpenPool>> {
        self.table.lock().get(name).cloned()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<OpenPool>> {
        self.table.lock().values().cloned().collect()
    }

    /// A pool was opened.
    pub fn insert(&self, pool: OpenPool) -> Arc<OpenPool> {
        let pool = Arc::new(pool);
        self.table.lock().insert(pool.name.clone(), pool.clone());
        self.waiting.opened(&pool.name, pool.guid());
        self.record.has_changed();
        self.tune();
        pool
    }

    /// A pool was closed.
    pub fn remove(&self, name: &str) {
        self.table.lock().remove(name);
        self.record.has_changed();
        self.tune();
    }

    /// Brings all tunables to all open pools.
    pub fn tune(&self) {
        let pools = self.all();
        pools.iter().for_each(|pool| self.tuning.apply(&pool.engine));
        self.share(&pools, self.tuning.target_bytes(), 0);
    }

    /// Brings what all pools hold in line with the memory that is left. Answers what may be held, and what is
    /// taken beside it: caches make room for that, unless freed memory was `kept` in it, which goes when it
    /// has to.
    pub(crate) fn balance(&self, memory: Memory, kept: bool) -> Balance {
        let pools = self.all();
        let held = pools.iter().map(|pool| {
            let engine = &pool.engine;
            engine.cache().bytes() + engine.dirty_bytes() + engine.cache_devices().memory_bytes()
        });
        let held_bytes: u64 = held.sum();
        let target_bytes = self.tuning.balance(held_bytes, memory.left_bytes);
        let beside_bytes = memory.own_bytes.saturating_sub(held_bytes);
        self.share(&pools, target_bytes, if kept { 0 } else { beside_bytes });
        Balance { target_bytes, beside_bytes }
    }

    /// The caches of all open pools.
    pub(crate) fn caches(&self) -> Vec<Arc<BlockCache>> {
        self.all().iter().map(|pool| pool.engine.cache().clone()).collect()
    }

    /// Shares what pools may hold among their caches. Changes in memory come first, and come back: the room
    /// that they took is left free for a while. So is what the process takes beside them.
    fn share(&self, pools: &[Arc<OpenPool>], target_bytes: u64, beside_bytes: u64) {
        let dirty_bytes: u64 = pools.iter().map(|pool| pool.engine.dirty_bytes()).sum();
        let taken = self.dirty.note(dirty_bytes) + held_back(target_bytes, self.beside.note(beside_bytes));
        let each = target_bytes.saturating_sub(taken).max(LEAST_CACHE_BYTES) / pools.len().max(1) as u64;
        for pool in pools {
            // `l2arc_meta_percent`: what knows where blocks are on cache devices counts, too.
            let devices = pool.engine.cache_devices();
            devices.set_index_bytes(each / 3);
            let left = each.saturating_sub(devices.memory_bytes()).max(each / 2);
            pool.engine.cache().set_budget(usize::try_from(left).unwrap_or(usize::MAX));
        }
    }
}
