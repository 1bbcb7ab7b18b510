//! What every command works with: the runtime, the disks, the keys, and an open pool.
//!
//! A target is written `pool/dataset[@snapshot][:/path]`.
//!
//! Locking: the only lock guards the set of messages printed so far. It is held for one insertion, never
//! across an await.

mod disks;
mod domains;
mod held;
mod interrupt;
mod json_array;
mod keys;
mod near;
mod noted;
mod progress;
mod replay;
mod returning;
mod rewind;
mod second;
mod target;
mod writing;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cenote_cache::CacheOptions;
use cenote_dataset::{Dataset, ImportOptions, KeySource, Mos, Rewind, import};
use cenote_format::units::Txg;
use cenote_host::pools::Pools;
use cenote_policy::PolicyName;
use cenote_pool::{Discovery, FoundPool, PoolState, Problem, VdevState, discover};
use cenote_runtime::Runtime;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use domains::{KeyDomain, key_domains};
pub use held::export_all;
pub use interrupt::{interrupted, unless_interrupted, until_cancelled};
pub use json_array::JsonArray;
pub use near::{dataset, file_error, meant};
pub use progress::{Progress, describe_bytes, watch};
pub use replay::now;
pub use rewind::WayBack;
pub use target::{Target, pool_of, split_path};
pub use writing::{check_kernel, this_host};

use crate::args::common::Common;
use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::render::{json_line, json_lines, parse_bytes, visible};
use crate::streams::{local, streams};

/// Default cache size.
const CACHE_BYTES: u64 = 128 << 20;
/// The smallest cache that still works: a few blocks of the largest size.
const LEAST_CACHE_BYTES: u64 = 64 << 20;

/// The common options, parsed and validated.
pub struct Session {
    runtime: Runtime,
    common: Common,
    disks: Vec<PathBuf>,
    cache: CacheOptions,
    keys: keys::GivenKeys,
    /// The command line as the pool's history records it.
    command: String,
    /// Left-out copies of devices that were reported already.
    told: Mutex<BTreeSet<String>>,
    /// The open pools of the daemon that runs this command.
    pools: Option<Arc<Pools>>,
    /// Whether the command is to see what was done until now, though no txg on disk has it yet.
    sees_all: bool,
}

/// Problems met during a search, one per line.
fn listed(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  {}: {}", problem.path, problem.why)).collect()
}

/// The size that an option says, if it is large enough for a cache.
pub fn at_least_bytes(option: &str, typed: &str) -> Result<u64, CliError> {
    let bytes = parse_bytes(typed).filter(|&bytes| bytes >= LEAST_CACHE_BYTES);
    bytes.ok_or_else(|| CliError::Usage(format!("{option} {typed}: give a size of at least 64M")))
}

impl Session {
    /// Checks the common options and starts the runtime.
    pub fn new(common: Common, command: String) -> Result<Session, CliError> {
        let cache_bytes = match &common.cache {
            None => CACHE_BYTES,
            Some(typed) => at_least_bytes("--cache", typed)?,
        };
        let policy = common.cache_policy.unwrap_or(PolicyName::OpenZfs);
        let disks = disks::named(&common.disks)?;
        if usize::from(common.txg.is_some()) + usize::from(common.rewind) + usize::from(common.checkpoint) > 1
        {
            let why = "--txg, --rewind and --checkpoint name different states: give one of them";
            return Err(CliError::Usage(why.into()));
        }
        let keys = keys::GivenKeys::parse(&common.keys)?;
        let threads = common.threads.map(|threads| usize::from(threads.max(1)));
        let runtime = Runtime::try_real(threads)
            .map_err(|error| CliError::Refused(format!("cannot start worker threads: {error}")))?;
        Ok(Session {
            runtime,
            common,
            disks,
            cache: CacheOptions { policy, ..CacheOptions::metadata(cache_bytes as usize) },
            keys,
            command,
            told: Mutex::default(),
            pools: None,
            sees_all: true,
        })
    }

    /// The session of a command that a daemon runs. If it `sees_all`, what was done until now is in the pool
    /// that it finds; else what the last txg has.
    pub fn in_daemon(
        runtime: &Runtime,
        pools: &Arc<Pools>,
        common: Common,
        command: String,
        sees_all: bool,
    ) -> Result<Session, CliError> {
        let disks = common.disks.iter().map(|disk| local(disk)).collect();
        let keys = keys::GivenKeys::parse(&common.keys)?;
        keys.use_for_command();
        Ok(Session {
            runtime: runtime.clone(),
            common,
            disks,
            cache: CacheOptions { data: true, ..CacheOptions::metadata(CACHE_BYTES as usize) },
            keys,
            command,
            told: Mutex::default(),
            pools: Some(pools.clone()),
            sees_all,
        })
    }

    /// The session of a daemon that holds these pools.
    pub fn serving(&self, pools: &Arc<Pools>) -> Session {
        Session { pools: Some(pools.clone()), ..self.searching(self.disks.clone()) }
    }

    /// Where pools are looked for; none: this machine's block devices.
    pub fn disks(&self) -> &[PathBuf] {
        &self.disks
    }

    /// Provides time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Whether output is JSON.
    pub fn json(&self) -> bool {
        self.common.json
    }

    /// The command line, with keys removed.
    pub fn command_line(&self) -> &str {
        &self.command
    }

    /// An error of a command that looks at an older state by its txg: what can't be read there may have been
    /// written over since, and nothing is wrong with the pool.
    pub fn of_older_state(&self, error: CliError) -> CliError {
        match self.common.txg {
            Some(txg) if error.outcome() == Outcome::Damaged => CliError::Refused(format!(
                "{error}\nThat is so in txg {txg}, which --txg asked for: blocks that were free later may \
                 have been written over since. It says nothing of the pool's newest state"
            )),
            _ => error,
        }
    }

    /// The common options as typed.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// The same session with other disks.
    pub fn searching(&self, disks: Vec<PathBuf>) -> Session {
        let (runtime, common, command) = (self.runtime.clone(), self.common.clone(), self.command.clone());
        let (keys, told) = (self.keys.clone(), Mutex::default());
        let (pools, sees_all) = (self.pools.clone(), self.sees_all);
        Session { runtime, common, disks, cache: self.cache, keys, command, told, pools, sees_all }
    }

    /// Looks for pools among the disks.
    pub async fn discover(&self) -> Discovery {
        let search = self.pools.as_ref().map_or(&self.disks, |pools| match self.disks.is_empty() {
            true => &pools.search,
            false => &self.disks,
        });
        match search.is_empty() {
            true => {
                let all = self.runtime.blocking(cenote_pool::discover::machine_devices).await;
                discover(&self.runtime, &all).await
            }
            false => discover(&self.runtime, search).await,
        }
    }

    /// The pools with these names or guids; all pools if none is named.
    pub async fn find_pools(&self, names: &[String]) -> Result<Vec<FoundPool>, CliError> {
        if let Some(pools) = &self.pools {
            return self.find_held(pools, names).await;
        }
        let discovery = self.discover().await;
        if names.is_empty() {
            if discovery.pools.is_empty() {
                return Err(self.nothing_found(&discovery));
            }
            discovery.pools.iter().for_each(|found| self.tell_copies(found));
            return Ok(discovery.pools);
        }
        each_once(names).map(|name| self.pick(&discovery, name)).collect()
    }

    /// The same for display: pools that are missing are reported, and the others are still shown. That this
    /// machine has no pools is no error, as in OpenZFS; that named disks have none is one.
    pub async fn find_pools_to_show(&self, names: &[String]) -> Result<(Vec<FoundPool>, Outcome), CliError> {
        if names.is_empty() {
            return match self.find_pools(names).await {
                Err(CliError::NotFound(why)) if self.disks.is_empty() => {
                    say!("{why}");
                    Ok((Vec::new(), Outcome::Done))
                }
                found => Ok((found?, Outcome::Done)),
            };
        }
        let discovery = if self.pools.is_some() { Discovery::default() } else { self.discover().await };
        let (mut pools, mut missing) = (Vec::new(), Vec::new());
        let is_open = |name: &&String| self.held_by_name(name).is_some();
        let waits = |name: &&String| !self.waiting(std::slice::from_ref(*name)).is_empty();
        // A pool that waits is shown otherwise.
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
        let outcome =
            missing.iter().fold(Outcome::Done, |outcome, (name, error)| outcome.and(error.tell(name)));
        match last {
            Some((_, error)) if self.waiting(names).is_empty() => Err(error),
            Some((name, error)) => Ok((pools, outcome.and(error.tell(name)))),
            None => Ok((pools, outcome)),
        }
    }

    /// The pool with this name or guid.
    pub async fn find_pool(&self, name: &str) -> Result<FoundPool, CliError> {
        match &self.pools {
            Some(pools) => self.find_held_by_name(pools, name).await,
            None => self.find_on_disks(name).await,
        }
    }

    /// The same as its labels say, which an open pool's devices are read for.
    pub async fn find_in_labels(&self, name: &str) -> Result<FoundPool, CliError> {
        let found = self.find_pool(name).await?;
        match self.held(&found) {
            None => Ok(found),
            Some(_) => self.searching(found.paths()).find_on_disks(&found.guid().to_string()).await,
        }
    }

    /// The same among the disks, whether or not a daemon has it open.
    pub async fn find_on_disks(&self, name: &str) -> Result<FoundPool, CliError> {
        let discovery = self.discover().await;
        self.pick(&discovery, name)
    }

    fn pick(&self, discovery: &Discovery, name: &str) -> Result<FoundPool, CliError> {
        let matches = |pool: &&FoundPool| pool.name() == name || pool.guid().to_string() == name;
        let mut matching: Vec<&FoundPool> = discovery.pools.iter().filter(matches).collect();
        // Disks that another pool of the name leaves behind still say what they belonged to.
        if matching.iter().any(|pool| pool.state() != PoolState::Destroyed) {
            matching.retain(|pool| pool.state() != PoolState::Destroyed);
        }
        match *matching {
            [pool] => {
                self.tell_copies(pool);
                Ok(pool.clone())
            }
            // Pool names contain no '/': this is the operand of a verb whose own -d was meant as --disks.
            [] if name.contains('/') && Path::new(name).exists() => Err(CliError::Usage(format!(
                "'{name}' is a path, not a pool; disks are named by --disks {name}"
            ))),
            [] if discovery.pools.is_empty() => Err(self.nothing_found(discovery)),
            [] => {
                let there: Vec<&str> = discovery.pools.iter().map(FoundPool::name).collect();
                let there = there.join(", ");
                let text = format!("no pool '{name}' among the disks; found: {there}");
                Err(CliError::NotFound(text + &listed(&discovery.problems)))
            }
            _ => {
                let guids: Vec<String> = matching.iter().map(|pool| pool.guid().to_string()).collect();
                let guids = guids.join(", ");
                Err(CliError::NotFound(format!(
                    "several pools are called '{name}'; choose one by guid: {guids}"
                )))
            }
        }
    }

    /// Reports, once each, the devices of a pool that are left out because copies of them exist.
    pub fn tell_copies(&self, found: &FoundPool) {
        for copy in &found.duplicates {
            if self.told.lock().is_ok_and(|mut told| told.insert(copy.left_out.clone())) {
                say!("pool '{}': {copy}", found.name());
            }
        }
    }

    /// The error for no pool found, with the problems met during the search.
    pub fn nothing_found(&self, discovery: &Discovery) -> CliError {
        let mut text = if self.disks.is_empty() {
            "no pool among this machine's block devices; name folders, images or devices with --disks".into()
        } else {
            let places: Vec<String> = self.disks.iter().map(|place| place.display().to_string()).collect();
            let places = places.join(", ");
            format!(
                "no pool in {places}; name the folder, images or devices that hold its disks with --disks"
            )
        };
        text += &listed(&discovery.problems);
        CliError::NotFound(text)
    }

    /// Opens a pool in the state the common options select: newest, rewound, or the checkpoint.
    pub async fn open(&self, found: &FoundPool) -> Result<Mos, CliError> {
        self.open_with(found, self.keys()).await
    }

    /// Key source: `--key`, then key files, then the terminal.
    pub fn keys(&self) -> KeySource {
        self.keys.source(true)
    }

    /// Keys to load or to check: `--key`, then this location or the one that the pool stores, which may be a
    /// pipe.
    pub fn keys_to_load(&self, location: Option<&str>) -> KeySource {
        let pools = self.pools.clone();
        self.keys.to_load(location, move |root| match &pools {
            Some(pools) => pools.get(pool_of(root)).is_some_and(|pool| !pool.others_may_write()),
            // With the rights of this program, which are the user's.
            None => true,
        })
    }

    /// Opens a pool without prompting for keys; keys given by `--key` are used.
    pub async fn open_without_asking(&self, found: &FoundPool) -> Result<Mos, CliError> {
        self.open_with(found, self.keys.given()).await
    }

    fn rewind(&self) -> Rewind {
        match self.common.txg {
            Some(txg) => Rewind::Txg(Txg(txg)),
            None if self.common.rewind => Rewind::Back,
            None => Rewind::Newest,
        }
    }

    /// Opens a pool's checkpoint; keys as in [`Session::open_without_asking`].
    pub async fn open_checkpoint(&self, found: &FoundPool) -> Result<Mos, CliError> {
        let options = ImportOptions { checkpoint: true, ..self.import_options() };
        Ok(import(&self.runtime, found, &options).await?)
    }

    /// Opens a pool in the state the common options select, with these keys.
    pub async fn open_with(&self, found: &FoundPool, keys: KeySource) -> Result<Mos, CliError> {
        if let Some(pool) = self.held(found) {
            return Ok(pool.engine.mos().await?);
        }
        let options = ImportOptions { keys, ..self.import_options() };
        import(&self.runtime, found, &options).await.map_err(|error| match found.status().state() {
            // Unreadable does not mean damaged here: devices that hold the data are missing.
            VdevState::Unavailable => CliError::DevicesMissing {
                pool: found.name().into(),
                source: error,
                notes: listed(&found.notes),
            },
            _ if error.is_damage() && self.rewind() == Rewind::Newest => {
                CliError::Corrupted { pool: found.name().into(), source: error }
            }
            _ => error.into(),
        })
    }

    /// Import options from the common options, without prompting for keys.
    pub fn import_options(&self) -> ImportOptions {
        let (checkpoint, cache) = (self.common.checkpoint, self.cache);
        ImportOptions { rewind: self.rewind(), checkpoint, cache, keys: self.keys.given(), salvage: false }
    }

    /// Finds and opens a pool by name.
    pub async fn open_pool(&self, name: &str) -> Result<Mos, CliError> {
        let found = self.find_pool(name).await?;
        self.open(&found).await
    }

    /// The same without prompting for keys.
    pub async fn open_pool_without_asking(&self, name: &str) -> Result<Mos, CliError> {
        let found = self.find_pool(name).await?;
        self.open_without_asking(&found).await
    }

    /// Opens a target's pool and, in it, the dataset or snapshot.
    pub async fn open_dataset(&self, target: &Target) -> Result<Dataset, CliError> {
        let mos = self.open_pool(target.pool()).await?;
        dataset(&mos, &target.dataset).await
    }
}

/// The names without repetitions.
fn each_once(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().enumerate().filter(|(at, name)| !names[..*at].contains(name)).map(|(_, name)| name)
}

/// Copying a deep tree keeps a folder open per level: raises the file limit to the maximum.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If this is refused, folders that are too deep are reported as not copied.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Standard output, buffered; errors name it.
pub fn stdout() -> BufWriter<Arc<File>> {
    BufWriter::with_capacity(1 << 16, streams().stdout.clone())
}

/// Standard output for bulk data, without buffering.
pub fn raw_stdout() -> Result<File, CliError> {
    streams().stdout.try_clone().map_err(CliError::io("standard output"))
}

/// Writes text to standard output, with control characters escaped: names from disks can't drive the
/// terminal.
pub fn print(text: impl AsRef<str>) -> Result<(), CliError> {
    print_bytes(visible(text.as_ref()))
}

/// Writes binary data, or coloured text whose words are escaped already, to standard output.
pub fn print_bytes(bytes: impl AsRef<[u8]>) -> Result<(), CliError> {
    let mut out = stdout();
    out.write_all(bytes.as_ref()).and_then(|()| out.flush()).map_err(CliError::io("standard output"))
}

/// Writes a value as indented JSON to standard output.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text = if streams().stdout_screen().is_some() { json_lines(value) } else { json_line(value) };
    print(text.map_err(|error| CliError::io("JSON")(io::Error::other(error)))?)
}
