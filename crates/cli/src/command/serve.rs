//! Command line of `cenote serve`: the daemon, which holds pools open, mounts their file systems, and runs
//! commands of clients (`cenote_daemon`).
//!
//! Every option can also be set in a file (`config`); the command line has priority.

mod config;

use std::path::PathBuf;

use cenote_daemon::{Daemon, Doors, Process};
use cenote_fuse::SessionOptions;
use clap::{Args, ValueEnum};

use crate::allocator::set_freed;
use crate::args::common::Common;
use crate::command::guard;
use crate::daemon::{SOCKET, VARIABLE};
use crate::message::{say, use_json};
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, at_least_bytes};

/// This process, for pools that stay open.
pub const PROCESS: Process = Process { say: |text| say!("{text}"), set_freed, start_guard: guard::start };

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
    /// Threads that read requests from /dev/fuse, for all file systems [default: 4]
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub readers: Option<u16>,
    /// Read requests from /dev/fuse even if the kernel offers io_uring
    #[arg(long)]
    pub no_fuse_io_uring: bool,
    /// Mount without a loop device for each file system; `sync` then does not reach the pool
    #[arg(long)]
    pub no_loop: bool,
    /// Let the kernel delay writes and combine small ones; costs promises, see docs/mount.md
    #[arg(long)]
    pub writeback: bool,
    /// Memory limit of all pools: cached blocks, and changes not yet on disk [default: all but 1G, at least
    /// five eighths]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Serve volumes over NBD at HOST:PORT or unix:PATH; repeatable
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Vec<String>,
    /// Export a disk or file of this machine over NBD, for pools of other machines; repeatable
    #[arg(long, value_name = "NAME=PATH")]
    pub export: Vec<String>,
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
    /// File with settings (TOML) of pools that move among machines; see docs/ha.md
    #[arg(long, value_name = "FILE")]
    pub ha: Option<PathBuf>,
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
        let memory = memory.or(session.typed_cache_bytes());
        let daemon = Daemon {
            socket: path,
            state,
            pools: self.pools,
            no_mount: self.no_mount,
            load_keys: self.load_keys,
            fuse: SessionOptions {
                readers: self.readers.unwrap_or(READERS).into(),
                over_io_uring: !self.no_fuse_io_uring,
                hears_sync: !self.no_loop,
                writeback_cache: self.writeback,
                ..SessionOptions::default()
            },
            memory_bytes: memory,
            doors: Doors {
                nbd: self.nbd,
                exports: self.export,
                iscsi: self.iscsi,
                iscsi_name: self.iscsi_name,
                iscsi_lun: self.iscsi_lun,
                iscsi_accounts: self.iscsi_accounts,
                vhost_user: self.vhost_user,
                ublk: self.ublk,
                http: self.http,
                http_tokens: self.http_tokens,
                tls: self.tls,
                connections: self.connections,
                insecure: self.insecure,
            },
            agent: self.agent,
            ha: self.ha,
            kstat: self.kstat,
        };
        daemon.run(session.control(), PROCESS).await
    }
}
