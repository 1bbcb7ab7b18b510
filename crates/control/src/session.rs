//! A verb's context: its caller, the pools, the keys.
//!
//! Idea: a daemon holds pools open; without one, a verb opens a pool itself and leaves it exported. A verb
//! asks for a pool by name and can't tell which of the two it got.
//!
//! Locking: the only lock guards the set of notes given so far. It is held for one insertion, never across an
//! await.

mod disks;
mod domains;
mod held;
mod keys;
mod multihost;
mod near;
mod noted;
mod replay;
mod returning;
mod rewind;
mod second;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cenote_cache::CacheOptions;
use cenote_dataset::{ImportOptions, KeySource, Mos, Rewind, import};
use cenote_device::{Place, Tenure};
use cenote_engine::Names;
use cenote_format::units::{Guid, Txg};
use cenote_host::pools::Pools;
use cenote_pool::{Discovery, FoundPool, PoolState, Problem, VdevState, discover_places};
use cenote_runtime::Runtime;

pub use disks::named;
pub use domains::{KeyDomain, key_domains};
pub use held::{NewDatasets, lost};
pub use keys::{GivenKeys, read_key};
pub use near::{dataset, file_error, meant, pool_of};
pub use replay::now;
pub use rewind::WayBack;
pub use writing::{check_kernel, this_host};

use crate::caller::Caller;
use crate::error::{ControlError, Outcome};
use crate::remote::Daemon;

/// The context of a verb.
pub struct Session {
    runtime: Runtime,
    caller: Caller,
    options: Options,
    /// Doubtful devices and read-only pools already reported.
    told: Mutex<BTreeSet<String>>,
    /// Open pools, in the daemon.
    pools: Option<Arc<Pools>>,
    /// The daemon, in its client.
    daemon: Option<Arc<dyn Daemon>>,
    /// By pool, the names with which a delegated caller's rights were checked.
    names: Mutex<BTreeMap<Guid, Names>>,
    /// The current verb only reads: it does not wait for devices that don't answer.
    pub(crate) only_looks: AtomicBool,
}

/// How a verb finds and opens pools.
#[derive(Clone)]
pub struct Options {
    /// Places to search; empty: this machine's block devices.
    pub disks: Vec<Place>,
    /// The pool state to open.
    pub state: State,
    /// Replay intent logs in memory.
    pub replay: bool,
    /// Cache size and policy.
    pub cache: CacheOptions,
    /// Keys that came with the request.
    pub keys: GivenKeys,
    /// The command for the pool's history, without keys.
    pub command: String,
    /// The verb also sees changes that no txg on disk has yet.
    pub sees_all: bool,
    /// Fence machines that have locks in the storage, and take their pools.
    pub takes_over: bool,
    /// A witness's grant of the pool to be opened.
    pub tenure: Option<Tenure>,
}

/// The longest command in a pool's history.
const HIS_MAX_RECORD_LEN: usize = 128 << 10;

/// Cache of a pool that a verb opens for itself.
const CACHE_BYTES: usize = 128 << 20;

impl Options {
    /// Options of a verb that the daemon runs on its pools.
    pub fn in_daemon(keys: GivenKeys, command: String, sees_all: bool) -> Options {
        let command = for_history(command);
        let cache = CacheOptions { data: true, ..CacheOptions::metadata(CACHE_BYTES) };
        let (disks, state) = (Vec::new(), State::Newest);
        Options {
            disks,
            state,
            replay: false,
            cache,
            keys,
            command,
            sees_all,
            takes_over: false,
            tenure: None,
        }
    }
}

/// Cuts a command to the length that a history holds.
pub fn for_history(mut command: String) -> String {
    let end = (0..=command.len().min(HIS_MAX_RECORD_LEN)).rev().find(|end| command.is_char_boundary(*end));
    command.truncate(end.unwrap_or(0));
    command
}

/// A state of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum State {
    /// Newest.
    #[default]
    Newest,
    /// The newest at or before this txg.
    Txg(Txg),
    /// The newest whose tree is intact.
    Intact,
    /// Checkpoint.
    Checkpoint,
}

fn listed(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  {}: {}", problem.path, problem.why)).collect()
}

impl Session {
    /// A session without a daemon.
    pub fn new(runtime: &Runtime, caller: Caller, options: Options) -> Session {
        Session {
            runtime: runtime.clone(),
            caller,
            options,
            told: Mutex::default(),
            pools: None,
            daemon: None,
            names: Mutex::default(),
            only_looks: AtomicBool::new(false),
        }
    }

    /// The same for a daemon's client.
    pub fn through(self, daemon: Option<Arc<dyn Daemon>>) -> Session {
        Session { daemon, ..self }
    }

    /// The daemon that runs verbs for this program.
    pub(crate) fn daemon(&self) -> Option<&Arc<dyn Daemon>> {
        self.daemon.as_ref()
    }

    /// A session of a verb that the daemon runs on its pools.
    pub fn in_daemon(runtime: &Runtime, caller: Caller, options: Options, pools: &Arc<Pools>) -> Session {
        Session { pools: Some(pools.clone()), ..Session::new(runtime, caller, options) }
    }

    /// The session of a daemon that holds these pools.
    pub fn serving(&self, pools: &Arc<Pools>) -> Session {
        Session { pools: Some(pools.clone()), ..self.searching(self.options.disks.clone()) }
    }

    /// The same session with other disks.
    pub fn searching(&self, disks: Vec<Place>) -> Session {
        self.with(Options { disks, ..self.options.clone() })
    }

    /// The same session for a takeover.
    pub fn taking_over(&self) -> Session {
        self.with(Options { takes_over: true, ..self.options.clone() })
    }

    /// The same session for a pool that a witness grants to this machine; `takes_over`: an earlier user of it
    /// has lost it.
    pub fn under(&self, tenure: Tenure, takes_over: bool) -> Session {
        self.with(Options { tenure: Some(tenure), takes_over, ..self.options.clone() })
    }

    fn with(&self, options: Options) -> Session {
        Session { pools: self.pools.clone(), ..Session::new(&self.runtime, self.caller.clone(), options) }
    }

    /// The same session of another caller.
    pub(crate) fn for_caller(&self, caller: Caller) -> Session {
        Session {
            pools: self.pools.clone(),
            daemon: self.daemon.clone(),
            ..Session::new(&self.runtime, caller, self.options.clone())
        }
    }

    /// The caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Places to search; empty: this machine's block devices.
    pub fn disks(&self) -> &[Place] {
        &self.options.disks
    }

    /// Provides time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// How pools are found and opened.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The command line for the pool's history.
    pub fn command_line(&self) -> &str {
        &self.options.command
    }

    /// Words an error met in an older txg: unreadable blocks may have been overwritten since, and the pool
    /// itself is not damaged.
    pub fn of_older_state(&self, error: ControlError) -> ControlError {
        match self.options.state {
            State::Txg(Txg(txg)) if error.outcome() == Outcome::Damaged => ControlError::Refused(format!(
                "{error}\nThat is so in txg {txg}, which --txg asked for: blocks that were free later may \
                 have been written over since. It says nothing of the pool's newest state"
            )),
            _ => error,
        }
    }

    /// Looks for pools among the disks.
    pub async fn discover(&self) -> Discovery {
        let search = self.pools.as_ref().map_or(self.disks(), |pools| match self.disks().is_empty() {
            true => &pools.search,
            false => self.disks(),
        });
        match search.is_empty() {
            true => {
                let all = self.runtime.blocking(cenote_pool::discover::machine_devices).await;
                let all: Vec<Place> = all.into_iter().map(Place::Path).collect();
                discover_places(&self.runtime, &all).await
            }
            false => discover_places(&self.runtime, search).await,
        }
    }

    /// The pools with these names or guids; with no names, all pools.
    pub async fn find_pools(&self, names: &[String]) -> Result<Vec<FoundPool>, ControlError> {
        if let Some(pools) = &self.pools {
            return self.find_held(pools, names).await;
        }
        let discovery = self.discover().await;
        if names.is_empty() {
            if discovery.pools.is_empty() {
                return Err(self.nothing_found(&discovery));
            }
            discovery.pools.iter().for_each(|found| self.tell_doubts(found));
            return Ok(discovery.pools);
        }
        each_once(names).map(|name| self.pick(&discovery, name)).collect()
    }

    /// The same for display: missing pools are reported, the others shown. As in OpenZFS, a machine without
    /// pools is no error; disks named by the caller must have some.
    pub async fn find_pools_to_show(
        &self,
        names: &[String],
    ) -> Result<(Vec<FoundPool>, Outcome), ControlError> {
        if names.is_empty() {
            return match self.find_pools(names).await {
                Err(ControlError::NotFound(why)) if self.disks().is_empty() => {
                    self.caller.note(why);
                    Ok((Vec::new(), Outcome::Done))
                }
                found => Ok((found?, Outcome::Done)),
            };
        }
        let discovery = if self.pools.is_some() { Discovery::default() } else { self.discover().await };
        let (mut pools, mut missing) = (Vec::new(), Vec::new());
        let is_open = |name: &&String| self.held_by_name(name).is_some();
        let waits = |name: &&String| !self.waiting(std::slice::from_ref(*name)).is_empty();
        // Waiting pools are shown separately.
        for name in each_once(names).filter(|name| is_open(name) || !waits(name)) {
            let found = match &self.pools {
                Some(held) => self.find_held_by_name(held, name).await,
                None => self.pick(&discovery, name),
            };
            match found {
                Ok(pool) => pools.push(pool),
                Err(error) => missing.push((name, error)),
            }
        }
        // If nothing at all was found, the last error is the command's error.
        let last = missing.pop_if(|_| pools.is_empty());
        let outcome = missing
            .iter()
            .fold(Outcome::Done, |outcome, (name, error)| outcome.and(self.caller.tell(name, error)));
        match last {
            Some((_, error)) if self.waiting(names).is_empty() => Err(error),
            Some((name, error)) => Ok((pools, outcome.and(self.caller.tell(name, &error)))),
            None => Ok((pools, outcome)),
        }
    }

    /// The pool with this name or guid.
    pub async fn find_pool(&self, name: &str) -> Result<FoundPool, ControlError> {
        match &self.pools {
            Some(pools) => self.find_held_by_name(pools, name).await,
            None => self.find_on_disks(name).await,
        }
    }

    /// The same as recorded in the labels; reads the devices even of an open pool.
    pub async fn find_in_labels(&self, name: &str) -> Result<FoundPool, ControlError> {
        let found = self.find_pool(name).await?;
        match self.held(&found) {
            None => Ok(found),
            Some(_) => self.searching(found.places()).find_on_disks(&found.guid().to_string()).await,
        }
    }

    /// The same among the disks, whether or not a daemon has it open.
    pub async fn find_on_disks(&self, name: &str) -> Result<FoundPool, ControlError> {
        let discovery = self.discover().await;
        self.pick(&discovery, name)
    }

    fn pick(&self, discovery: &Discovery, name: &str) -> Result<FoundPool, ControlError> {
        let matches = |pool: &&FoundPool| pool.name() == name || pool.guid().to_string() == name;
        let mut matching: Vec<&FoundPool> = discovery.pools.iter().filter(matches).collect();
        // Disks left over from another pool of this name still carry its labels.
        if matching.iter().any(|pool| pool.state() != PoolState::Destroyed) {
            matching.retain(|pool| pool.state() != PoolState::Destroyed);
        }
        match *matching {
            [pool] => {
                self.tell_doubts(pool);
                Ok(pool.clone())
            }
            // Pool names contain no '/': the operand was probably meant for -d as in --disks.
            [] if name.contains('/') && Path::new(name).exists() => Err(ControlError::Usage(format!(
                "'{name}' is a path, not a pool; disks are named by --disks {name}"
            ))),
            [] if discovery.pools.is_empty() => Err(self.nothing_found(discovery)),
            [] => {
                let there: Vec<&str> = discovery.pools.iter().map(FoundPool::name).collect();
                let there = there.join(", ");
                let text = format!("no pool '{name}' among the disks; found: {there}");
                Err(ControlError::NotFound(text + &listed(&discovery.problems)))
            }
            _ => {
                let guids: Vec<String> = matching.iter().map(|pool| pool.guid().to_string()).collect();
                let guids = guids.join(", ");
                Err(ControlError::NotFound(format!(
                    "several pools are called '{name}'; choose one by guid: {guids}"
                )))
            }
        }
    }

    /// Reports, once each, devices of a pool left out because of copies, and lost newer states.
    pub fn tell_doubts(&self, found: &FoundPool) {
        for copy in &found.duplicates {
            if self.told.lock().is_ok_and(|mut told| told.insert(copy.left_out.clone())) {
                self.caller.note(format!("pool '{}': {copy}", found.name()));
            }
        }
        if let Some(lost) = found.lost
            && self.told.lock().is_ok_and(|mut told| told.insert(found.guid().to_string()))
        {
            self.caller.note(format!("pool '{}': {lost}", found.name()));
        }
    }

    /// The error for no pool found, with the problems met during the search.
    pub fn nothing_found(&self, discovery: &Discovery) -> ControlError {
        let mut text = if self.disks().is_empty() {
            "no pool among this machine's block devices; name folders, images or devices with --disks".into()
        } else {
            let places: Vec<String> = self.disks().iter().map(Place::to_string).collect();
            let places = places.join(", ");
            format!(
                "no pool in {places}; name the folder, images or devices that hold its disks with --disks"
            )
        };
        text += &listed(&discovery.problems);
        ControlError::NotFound(text)
    }

    /// Opens a pool in the state selected by the options: newest, rewound, or the checkpoint.
    pub async fn open(&self, found: &FoundPool) -> Result<Mos, ControlError> {
        self.open_with(found, self.keys()).await
    }

    /// Key source: `--key`, then key files, then the terminal.
    pub fn keys(&self) -> KeySource {
        self.options.keys.source(&self.caller, true)
    }

    /// Keys to load or check: `--key`, then this location, or else the stored one, which may be a pipe.
    pub fn keys_to_load(&self, location: Option<&str>) -> KeySource {
        let pools = self.pools.clone();
        self.options.keys.to_load(&self.caller, location, move |root| match &pools {
            Some(pools) => pools.get(pool_of(root)).is_some_and(|pool| !pool.others_may_write()),
            // This program runs with the user's own rights.
            None => true,
        })
    }

    /// Opens a pool with keys from `--key` only, without prompting.
    pub async fn open_without_asking(&self, found: &FoundPool) -> Result<Mos, ControlError> {
        self.open_with(found, self.options.keys.given()).await
    }

    fn rewind(&self) -> Rewind {
        match self.options.state {
            State::Txg(txg) => Rewind::Txg(txg),
            State::Intact => Rewind::Back,
            State::Newest | State::Checkpoint => Rewind::Newest,
        }
    }

    /// Opens a pool's checkpoint; keys as in [`Session::open_without_asking`].
    pub async fn open_checkpoint(&self, found: &FoundPool) -> Result<Mos, ControlError> {
        self.tell_in_use(found);
        let options = ImportOptions { checkpoint: true, ..self.import_options() };
        Ok(import(&self.runtime, found, &options).await?)
    }

    /// Opens a pool in the selected state, with these keys.
    pub async fn open_with(&self, found: &FoundPool, keys: KeySource) -> Result<Mos, ControlError> {
        if let Some(pool) = self.held(found) {
            let mos = match self.only_looks.load(Ordering::Relaxed) {
                true => pool.engine.mos_to_look().await,
                false => pool.engine.mos().await,
            }?;
            self.check_names(&pool)?;
            return Ok(mos);
        }
        let options = ImportOptions { keys, ..self.import_options() };
        let mos = self.import(found, &options).await?;
        self.tell_in_use(found);
        self.tell_features_in_the_way(&mos).await;
        Ok(mos)
    }

    /// Opens a pool for reading or writing; errors name missing devices.
    async fn import(&self, found: &FoundPool, options: &ImportOptions) -> Result<Mos, ControlError> {
        import(&self.runtime, found, options).await.map_err(|error| match found.status().state() {
            // Unreadable does not mean damaged here: devices with the data are missing.
            VdevState::Unavailable => ControlError::DevicesMissing {
                pool: found.name().into(),
                source: error,
                notes: listed(&found.notes),
            },
            _ if error.is_damage() && options.rewind == Rewind::Newest => {
                ControlError::Corrupted { pool: found.name().into(), source: error }
            }
            _ => error.into(),
        })
    }

    /// Reports once that features make a pool read-only.
    async fn tell_features_in_the_way(&self, mos: &Mos) {
        // If the feature table is unreadable, its next user reports the error.
        let features = mos.features_in_the_way().await.unwrap_or_default();
        if features.is_empty() {
            return;
        }
        let (name, features) = (mos.pool().name().to_owned(), features.join(", "));
        if self.told.lock().is_ok_and(|mut told| told.insert(format!("features of {name}"))) {
            self.caller.note(format!(
                "pool '{name}' is opened read-only: it uses features that are not written here: {features}"
            ));
        }
    }

    /// Import options without prompting for keys.
    pub fn import_options(&self) -> ImportOptions {
        let (checkpoint, cache) = (self.options.state == State::Checkpoint, self.options.cache);
        ImportOptions {
            rewind: self.rewind(),
            checkpoint,
            cache,
            keys: self.options.keys.given(),
            salvage: false,
        }
    }

    /// Finds and opens a pool by name.
    pub async fn open_pool(&self, name: &str) -> Result<Mos, ControlError> {
        let found = self.find_pool(name).await?;
        self.open(&found).await
    }

    /// The same without prompting for keys.
    pub async fn open_pool_without_asking(&self, name: &str) -> Result<Mos, ControlError> {
        let found = self.find_pool(name).await?;
        self.open_without_asking(&found).await
    }
}

fn each_once(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().enumerate().filter(|(at, name)| !names[..*at].contains(name)).map(|(_, name)| name)
}
