//! `cenote serve`: the daemon. It holds pools open, mounts their file systems, and runs commands of clients.
//!
//! ```text
//!   start: socket ──> pools named, and those open at the last stop ──> mounts ──> READY
//!   run:   commands come through the socket; pools that did not open are retried (`opening`)
//!   end (SIGTERM, SIGINT): no more commands; file systems are unmounted, pools exported
//! ```
//!
//! Every option can also be set in a file (`config`); the command line has priority.
//!
//! After `kill -9` the pools are still marked as in use by this machine, so the next start opens them again
//! and replays their logs. Stale mounts are removed when their mount points are used again.

mod agent;
mod config;
mod listeners;
mod opening;
pub mod room;

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cenote_fuse::SessionOptions;
use cenote_host::cancel::Cancel;
use cenote_host::kstat::files::keep_kstats;
use cenote_host::lock::StateLock;
use cenote_host::record;
use cenote_serve::requests::Verbs;
use cenote_serve::sandbox;
use cenote_serve::socket::Listener;
use clap::{Args, ValueEnum};
use opening::Opening;
use room::{export_all, room_for_pools};

use crate::args::common::Common;
use crate::command::guard;
use crate::daemon::{SOCKET, VARIABLE};
use crate::message::{say, use_json};
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, at_least_bytes, interrupted};

/// Time that commands have to end when the daemon does.
const PATIENCE: Duration = Duration::from_secs(3);

/// How the daemon's messages are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl From<cenote_serve::config::LogFormat> for LogFormat {
    fn from(configured: cenote_serve::config::LogFormat) -> LogFormat {
        match configured {
            cenote_serve::config::LogFormat::Text => LogFormat::Text,
            cenote_serve::config::LogFormat::Json => LogFormat::Json,
        }
    }
}

/// Default number of threads that answer the kernel.
const READERS: u16 = 4;

/// `cenote serve`
#[derive(Debug, Args)]
#[command(
    after_help = "While it runs, `cenote zpool`, `zfs`, `ls`, `cp` and other commands work on its pools, as \
        with the kernel module; also through links named `zpool` and `zfs`. Root and the daemon's user may \
        change pools; others may look, and use permissions delegated by `zfs allow`.\n\n\
        Example: cenote serve --disks /srv/images tank"
)]
pub struct Serve {
    /// File with options (TOML), each under its long name; typed options override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Path of the socket [default: $CENOTE_SOCKET, or /run/cenote/cenote.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// File that records the open pools [default: pools.json beside the socket]
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Import the named pools, but mount nothing
    #[arg(short = 'N', long)]
    pub no_mount: bool,
    /// Load the keys of encrypted datasets from their keylocation
    #[arg(short = 'l', long)]
    pub load_keys: bool,
    /// Threads that read requests from /dev/fuse, per file system [default: 4]
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub readers: Option<u16>,
    /// Read requests from /dev/fuse even if the kernel offers io_uring
    #[arg(long)]
    pub no_fuse_io_uring: bool,
    /// Mount without a loop device for each file system; `sync` then does not reach the pool
    #[arg(long)]
    pub no_loop: bool,
    /// Let the kernel cache writes and combine small ones; it then sets modification times
    #[arg(long)]
    pub writeback: bool,
    /// Memory limit of all pools: cached blocks, and changes not yet on disk [default: all but 1G, at least
    /// five eighths]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Serve volumes over NBD at HOST:PORT or unix:PATH; repeatable
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Vec<String>,
    /// Serve volumes to virtual machines (vhost-user-blk), at sockets DIR/POOL/VOLUME
    #[arg(long, value_name = "DIR")]
    pub vhost_user: Option<PathBuf>,
    /// Serve volumes as block devices of this machine (ublk, Linux 6.0 or newer), with links DIR/POOL/VOLUME;
    /// DIR may be /dev/zvol
    #[arg(long, value_name = "DIR")]
    pub ublk: Option<PathBuf>,
    /// Serve the page, the API and metrics over HTTP at HOST:PORT or unix:PATH; repeatable
    #[arg(long, value_name = "ADDRESS")]
    pub http: Vec<String>,
    /// File with the tokens of HTTP clients: lines of `look TOKEN` or `change TOKEN` [default: a new token at
    /// each start, in http-token beside the socket]
    #[arg(long, value_name = "FILE")]
    pub http_tokens: Option<PathBuf>,
    /// Folder for counters as files, as below /proc: spl/kstat/zfs/arcstats and others
    #[arg(long, value_name = "DIR")]
    pub kstat: Option<PathBuf>,
    /// File with rules (TOML) for scrubs, trims, SMART and alerts; see docs/agent.md
    #[arg(long, value_name = "FILE")]
    pub agent: Option<PathBuf>,
    /// Folder with server-cert.pem and server-key.pem for network protocols; if it has ca-cert.pem, clients
    /// need certificates, too
    #[arg(long, value_name = "DIR")]
    pub tls: Option<PathBuf>,
    /// Serve volumes over iSCSI at HOST:PORT; repeatable
    #[arg(long, value_name = "ADDRESS")]
    pub iscsi: Vec<String>,
    /// Prefix of the names of iSCSI targets, for servers whose pools have the same names [default:
    /// iqn.2026-11.org.cenote]
    #[arg(long, value_name = "NAME")]
    pub iscsi_name: Option<String>,
    /// Make a volume a unit of a shared iSCSI target: TARGET:NUMBER=VOLUME; repeatable
    #[arg(long, value_name = "UNIT")]
    pub iscsi_lun: Vec<String>,
    /// File with names and secrets (CHAP) for iSCSI logins
    #[arg(long, value_name = "FILE")]
    pub iscsi_accounts: Option<PathBuf>,
    /// Limit of concurrent connections of each network protocol, half of them for one user or address
    /// [default: 1024]
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: Option<u32>,
    /// Serve everybody over the network: NBD without client certificates, iSCSI without accounts, HTTP to
    /// other machines without TLS
    #[arg(long)]
    pub insecure: bool,
    /// Format of messages [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Stay in the foreground, which is always so
    #[arg(long, hide = true)]
    pub foreground: bool,
    /// Pools to import at the start
    #[arg(value_name = "POOL")]
    pub pools: Vec<String>,
}

impl Serve {
    /// Adds the settings of the configuration file that the command line leaves open.
    pub fn read_config(&mut self, common: &mut Common) -> Result<(), CliError> {
        if let Some(path) = self.config.clone() {
            config::complete(config::read(&path)?, self, common);
        }
        Ok(())
    }

    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.log_format == Some(LogFormat::Json) {
            use_json();
        }
        let memory = self.memory.as_deref().map(|typed| at_least_bytes("--memory", typed)).transpose()?;
        let path = self.socket.clone().or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
        let path = path.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| SOCKET.into());
        let state = self.state.clone().unwrap_or_else(|| path.with_file_name("pools.json"));
        // Taken before anything in the folders is touched.
        let locks = StateLock::take_all(&[&path, &state]);
        let locks = locks.map_err(|error| CliError::Refused(error.to_string()))?;
        let refused = |error| CliError::Refused(format!("{}: {error}", state.display()));
        record::check(&state).map_err(refused)?;
        let listener = Listener::bind(&path).map_err(|error| CliError::Refused(error.to_string()))?;
        let listener = Arc::new(listener);
        let doors = listeners::open(&self, session.runtime(), &path).await?;
        let agent = self.agent.as_deref().map(agent::Agent::read).transpose()?;
        // Applied before a byte of a pool is read.
        if let Err(error) = sandbox::forbid_calls() {
            say!("no system calls are given up: {error}");
        }
        guard::start();
        let fuse = SessionOptions {
            readers: self.readers.unwrap_or(READERS).into(),
            over_io_uring: !self.no_fuse_io_uring,
            hears_sync: !self.no_loop,
            writeback_cache: self.writeback,
            ..SessionOptions::default()
        };
        let (pools, _memory) = room_for_pools(session, memory, fuse, state);
        let session = session.serving(&pools);
        let _noting = session.runtime().spawn(pools.clone().keep_noting(session.runtime().clone()));
        let _noting = _noting.abort_on_drop();
        let opening = Opening {
            session: session.serving(&pools),
            pools: pools.clone(),
            load_keys: self.load_keys,
            no_mount: self.no_mount,
        };
        let outcome = opening.begin(&self.pools).await;
        let verbs = Arc::new(Verbs { runtime: session.runtime().clone(), pools: pools.clone() });
        let doors = doors.let_in(session.runtime(), &pools, verbs.clone());
        let agent = agent.map(|agent| agent.start(session.runtime(), verbs.clone(), pools.events.clone()));
        let stop = Cancel::default();
        let kstats = self.kstat.clone().map(|dir| {
            let (runtime, pools) = (session.runtime(), Arc::downgrade(&pools));
            runtime.spawn(keep_kstats(runtime.clone(), pools, dir, stop.clone()))
        });
        let opening = opening.keep(stop.clone()).map_err(CliError::io("a thread"))?;
        let serving = {
            let (listener, stop) = (listener.clone(), stop.clone());
            std::thread::spawn(move || listener.serve(verbs, &stop))
        };
        let names: Vec<String> = pools.all().iter().map(|pool| pool.name.clone()).collect();
        let names = if names.is_empty() { "no pool yet".into() } else { names.join(", ") };
        say!("serving {names} at {}", path.display());
        notify("READY=1");
        let _watchdog = watchdog_interval().map(|interval| {
            let runtime = session.runtime().clone();
            // A task on the same workers as all service: if no worker runs any more, systemd is not told.
            let tell = async move {
                loop {
                    notify("WATCHDOG=1");
                    runtime.sleep(interval).await;
                }
            };
            session.runtime().spawn(tell).abort_on_drop()
        });
        interrupted().await;
        say!("ending");
        locks.iter().for_each(StateLock::is_ending);
        notify("STOPPING=1");
        stop.cancel();
        listener.wake();
        drop((serving.join(), opening.join()));
        drop(listener);
        drop((doors, agent));
        if let Some(kstats) = kstats {
            kstats.await.ok();
        }
        if let Err(error) = pools.end_record(session.runtime()).await {
            say!("the record of pools can't be written: {error}");
        }
        // Commands still running learn of the end from their pools, and have a moment to report it.
        if session.runtime().timeout(PATIENCE, export_all(&pools)).await.is_err() {
            say!("giving the pools back takes longer than usual");
            export_all(&pools).await;
        }
        match pools.waiting.all().is_empty() {
            true => Ok(outcome),
            false => Ok(outcome.and(Outcome::Failed)),
        }
    }
}

/// Interval of watchdog messages to systemd, if it wants them (`sd_watchdog_enabled`): half the time after
/// which it would end this process.
fn watchdog_interval() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_other = number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id()));
    let interval = number("WATCHDOG_USEC").filter(|_| !is_other)?;
    Some(Duration::from_micros(interval / 2).max(Duration::from_millis(10)))
}

/// Tells systemd (`sd_notify`): one datagram to the socket it names.
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Ok(socket) = UnixDatagram::unbound() {
        socket.send_to(state.as_bytes(), path).ok();
    }
}
