//! What a command works with: the runtime, the disks, the keys, and from them an opened pool.
//!
//! A target is written `pool/dataset[@snapshot][:/path]`.

mod interrupt;
mod keys;
mod near;
mod progress;
mod replay;
mod target;
mod writing;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;

use cenote_dataset::import::{ImportOptions, Rewind, import};
use cenote_dataset::{Dataset, KeySource, Mos, Txg};
use cenote_pool::{Discovery, FoundPool, VdevState, discover};
use cenote_runtime::Runtime;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use interrupt::{interrupted, unless_interrupted};
pub use near::{dataset, file_error};
pub use progress::{Progress, watch};
pub use replay::now;
pub use target::{Target, pool_of};
pub use writing::{check_kernel, this_host};

use crate::args::Common;
use crate::outcome::CliError;
use crate::render::parse_bytes;

/// Smallest cache that still works: a few blocks of the largest size.
const LEAST_CACHE_BYTES: u64 = 64 << 20;

/// The options common to all commands, made usable.
pub struct Session {
    runtime: Runtime,
    common: Common,
    cache_bytes: usize,
    keys: keys::GivenKeys,
    /// The command line, as the pool's history notes it.
    command: String,
}

impl Session {
    /// Checks the common options and starts the runtime.
    pub fn new(common: Common, command: String) -> Result<Session, CliError> {
        let cache_bytes =
            parse_bytes(&common.cache).filter(|&bytes| bytes >= LEAST_CACHE_BYTES).ok_or_else(|| {
                CliError::Usage(format!("--cache {}: give a size of at least 64M", common.cache))
            })?;
        let keys = keys::GivenKeys::parse(&common.keys)?;
        let runtime = Runtime::real(common.threads.map(|threads| threads.max(1)));
        Ok(Session { runtime, common, cache_bytes: cache_bytes as usize, keys, command })
    }

    /// Time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Output is for programs.
    pub fn json(&self) -> bool {
        self.common.json
    }

    /// The command line, without keys.
    pub fn command_line(&self) -> &str {
        &self.command
    }

    /// The options as typed.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// Looks for pools among the disks.
    pub async fn discover(&self) -> Discovery {
        if self.common.disks.is_empty() {
            let devices = cenote_pool::discover::machine_devices();
            return discover(&self.runtime, &devices).await;
        }
        discover(&self.runtime, &self.common.disks).await
    }

    /// The pools of these names or guids among the disks; all of them if none is named.
    pub async fn find_pools(&self, names: &[String]) -> Result<Vec<FoundPool>, CliError> {
        let mut discovery = self.discover().await;
        if names.is_empty() {
            if discovery.pools.is_empty() {
                return Err(self.nothing_found(&discovery));
            }
            return Ok(discovery.pools);
        }
        names.iter().map(|name| self.pick(&mut discovery, name)).collect()
    }

    /// The one pool of this name or guid.
    pub async fn find_pool(&self, name: &str) -> Result<FoundPool, CliError> {
        let mut discovery = self.discover().await;
        self.pick(&mut discovery, name)
    }

    fn pick(&self, discovery: &mut Discovery, name: &str) -> Result<FoundPool, CliError> {
        let matches = |pool: &FoundPool| pool.name() == name || pool.guid().to_string() == name;
        match discovery.pools.iter().filter(|pool| matches(pool)).count() {
            0 => Err(match discovery.pools.is_empty() {
                true => self.nothing_found(discovery),
                false => {
                    let there: Vec<&str> = discovery.pools.iter().map(FoundPool::name).collect();
                    let there = there.join(", ");
                    CliError::NotFound(format!("no pool '{name}' among the disks; there are: {there}"))
                }
            }),
            1 => {
                let index = discovery.pools.iter().position(matches).unwrap_or_default();
                Ok(discovery.pools.swap_remove(index))
            }
            _ => {
                let guids: Vec<String> = (discovery.pools.iter().filter(|pool| matches(pool)))
                    .map(|pool| pool.guid().to_string())
                    .collect();
                let guids = guids.join(", ");
                Err(CliError::NotFound(format!(
                    "several pools are called '{name}'; say which by its guid: {guids}"
                )))
            }
        }
    }

    /// That no pool is there, and what the search stumbled over.
    pub fn nothing_found(&self, discovery: &Discovery) -> CliError {
        let mut text = if self.common.disks.is_empty() {
            "no pool among this machine's block devices; name folders, images or devices with -d".to_string()
        } else {
            let places: Vec<String> = self.common.disks.iter().map(|p| p.display().to_string()).collect();
            format!(
                "no pool in {}; name the folder, images or devices that hold its disks with -d",
                places.join(", ")
            )
        };
        for problem in &discovery.problems {
            text.push_str(&format!("\n  {}: {}", problem.path, problem.why));
        }
        CliError::NotFound(text)
    }

    /// Opens a pool as the common options say: newest state, rewound, or its checkpoint.
    pub async fn open(&self, found: &FoundPool) -> Result<Mos, CliError> {
        self.open_with(found, self.keys.source()).await
    }

    /// Who knows keys: those given, files, the terminal.
    pub fn keys(&self) -> KeySource {
        self.keys.source()
    }

    /// Opens a pool for what can be shown without keys: nobody is asked for one, those given are used.
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

    /// Opens a pool's checkpoint; keys as with [`Session::open_without_asking`].
    pub async fn open_checkpoint(&self, found: &FoundPool) -> Result<Mos, CliError> {
        let options = ImportOptions { checkpoint: true, ..self.import_options() };
        Ok(import(&self.runtime, found, &options).await?)
    }

    async fn open_with(&self, found: &FoundPool, keys: KeySource) -> Result<Mos, CliError> {
        let options = ImportOptions { keys, ..self.import_options() };
        import(&self.runtime, found, &options).await.map_err(|error| match found.status().state() {
            // What can't be read is not damaged: the disks that hold it are elsewhere.
            VdevState::Unavailable => CliError::DevicesMissing { pool: found.name().into(), source: error },
            _ => error.into(),
        })
    }

    /// How the common options say that pools are opened; nobody is asked for keys, those given are used.
    pub fn import_options(&self) -> ImportOptions {
        let (checkpoint, cache_bytes) = (self.common.checkpoint, self.cache_bytes);
        ImportOptions { rewind: self.rewind(), checkpoint, cache_bytes, keys: self.keys.given() }
    }

    /// Finds and opens a pool by name.
    pub async fn open_pool(&self, name: &str) -> Result<Mos, CliError> {
        let found = self.find_pool(name).await?;
        self.open(&found).await
    }

    /// The same for what can be shown without keys.
    pub async fn open_pool_without_asking(&self, name: &str) -> Result<Mos, CliError> {
        let found = self.find_pool(name).await?;
        self.open_without_asking(&found).await
    }

    /// Opens the pool of a target, and in it the dataset or snapshot.
    pub async fn open_dataset(&self, target: &Target) -> Result<Dataset, CliError> {
        let mos = self.open_pool(target.pool()).await?;
        dataset(&mos, &target.dataset).await
    }
}

/// Copies of deep trees need an open folder for each level: takes as many files as the system gives.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it is refused, too deep folders are told as not copied.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Standard output, buffered; errors name it.
pub fn stdout() -> BufWriter<io::StdoutLock<'static>> {
    BufWriter::with_capacity(1 << 16, io::stdout().lock())
}

/// Standard output for bulk data: neither buffered nor cut at line ends.
pub fn raw_stdout() -> Result<File, CliError> {
    let fd = io::stdout().as_fd().try_clone_to_owned().map_err(CliError::io("standard output"))?;
    Ok(fd.into())
}

/// Writes text to standard output.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), CliError> {
    let mut out = stdout();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).map_err(CliError::io("standard output"))
}

/// Writes a value as JSON to standard output, indented for a terminal.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text = match io::stdout().is_terminal() {
        true => serde_json::to_string_pretty(value),
        false => serde_json::to_string(value),
    };
    let text = text.map_err(|error| CliError::io("JSON")(io::Error::other(error)))?;
    print(text + "\n")
}
