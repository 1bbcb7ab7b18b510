//! The context of every command: the verbs' context ([`cenote_control::Session`]), the common options, and
//! standard output.
//!
//! A target is written `pool/dataset[@snapshot][:/path]`.

mod interrupt;
mod progress;
mod target;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use cenote_cache::CacheOptions;
use cenote_control::remote::Daemon;
use cenote_control::session::{GivenKeys, named};
use cenote_control::text::{parse_bytes, visible};
use cenote_control::{Caller, Options, Session as Control, State};
use cenote_dataset::Dataset;
use cenote_device::Place;
use cenote_format::units::Txg;
use cenote_policy::PolicyName;
use cenote_runtime::Runtime;
use cenote_shown::json;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use cenote_control::files::Target;
pub use cenote_control::session::{dataset, meant, pool_of};
pub use interrupt::{interrupted, unless_interrupted};
pub use progress::{Progress, bytes_line, files_line, text_line, watch};
pub use target::TargetParser;

use crate::args::common::Common;
use crate::outcome::{CliError, Outcome};
use crate::streams::{caller, streams};

/// Default cache size.
const CACHE_BYTES: u64 = 128 << 20;
/// The smallest cache that still works: a few blocks of the largest size.
const LEAST_CACHE_BYTES: u64 = 64 << 20;

/// A command's context.
pub struct Session {
    control: Control,
    common: Common,
    /// The exit status, if it differs from the outcome's.
    status: OnceLock<u8>,
}

impl Deref for Session {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

/// The size given to an option, checked to be large enough for a cache.
pub fn at_least_bytes(option: &str, typed: &str) -> Result<u64, CliError> {
    let bytes = parse_bytes(typed).filter(|&bytes| bytes >= LEAST_CACHE_BYTES);
    bytes.ok_or_else(|| CliError::Usage(format!("{option} {typed}: give a size of at least 64M")))
}

impl Session {
    /// Checks the common options and starts the runtime. If a daemon runs the verb, this thread is enough.
    pub fn new(
        common: Common,
        command: String,
        daemon: Option<Arc<dyn Daemon>>,
    ) -> Result<Session, CliError> {
        let cache_bytes = match &common.cache {
            None => CACHE_BYTES,
            Some(typed) => at_least_bytes("--cache", typed)?,
        };
        let policy = common.cache_policy.unwrap_or(PolicyName::OpenZfs);
        let cache = CacheOptions { policy, ..CacheOptions::metadata(cache_bytes as usize) };
        let disks = named(&common.disks)?;
        if usize::from(common.txg.is_some()) + usize::from(common.rewind) + usize::from(common.checkpoint) > 1
        {
            let why = "--txg, --rewind and --checkpoint name different states: give one of them";
            return Err(CliError::Usage(why.into()));
        }
        let caller = caller();
        let options = options(&common, &caller, disks, cache, command)?;
        let threads = match &daemon {
            Some(_) => Some(0),
            None => common.threads.map(|threads| usize::from(threads.max(1))),
        };
        let runtime = Runtime::try_real(threads)
            .map_err(|error| CliError::Refused(format!("cannot start worker threads: {error}")))?;
        let control = Control::new(&runtime, caller, options).through(daemon);
        Ok(Session { control, common, status: OnceLock::new() })
    }

    /// The same session with other disks.
    pub fn searching(&self, disks: Vec<Place>) -> Session {
        let control = self.control.searching(disks);
        Session { control, common: self.common.clone(), status: OnceLock::new() }
    }

    /// Sets the program's exit status for success.
    pub fn end_with(&self, status: u8) {
        self.status.get_or_init(|| status);
    }

    /// The exit status for an outcome.
    pub fn status(&self, outcome: Outcome) -> u8 {
        self.status.get().copied().unwrap_or(outcome.status())
    }

    /// The verbs' context.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Whether output is JSON.
    pub fn json(&self) -> bool {
        self.common.json
    }

    /// Prints an answer: with `--json` as JSON, otherwise as text. Only the printed form is made.
    pub fn show<T: AsRef<str>, V: serde::Serialize>(
        &self,
        text: impl FnOnce() -> T,
        json: impl FnOnce() -> V,
    ) -> Result<(), CliError> {
        if self.json() { print_json(&json()) } else { print(text()) }
    }

    /// The size of the cache, if it was given.
    pub fn typed_cache_bytes(&self) -> Option<u64> {
        self.common.cache.as_ref().map(|_| self.control.cache().budget_bytes as u64)
    }

    /// The common options as typed.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// Opens a target's pool and, in it, the dataset or snapshot.
    pub async fn open_dataset(&self, target: &Target) -> Result<Dataset, CliError> {
        let mos = self.open_pool(target.pool()).await?;
        dataset(&mos, &target.dataset).await
    }
}

/// Options to find and open pools.
fn options(
    common: &Common,
    caller: &Caller,
    disks: Vec<Place>,
    cache: CacheOptions,
    command: String,
) -> Result<Options, CliError> {
    let state = match common.txg {
        Some(txg) => State::Txg(Txg(txg)),
        None if common.rewind => State::Intact,
        None if common.checkpoint => State::Checkpoint,
        None => State::Newest,
    };
    let keys = GivenKeys::parse(&common.keys, caller)?;
    let (replay, sees_all, takes_over) = (common.replay, true, false);
    Ok(Options { disks, state, replay, cache, keys, command, sees_all, takes_over, tenure: None })
}

/// Copying a deep tree keeps a folder open per level: raises the file limit to the maximum.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If this is refused, folders that are too deep are reported as not copied.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Standard output, buffered.
pub type Stdout = BufWriter<Arc<File>>;

/// Standard output, buffered.
pub fn stdout() -> Stdout {
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
    let text = if streams().stdout_screen().is_some() { json::lines(value) } else { json::line(value) };
    print(text.map_err(|error| CliError::io("JSON")(io::Error::other(error)))?)
}
