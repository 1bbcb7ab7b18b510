//! The daemon of this machine, if one runs: it runs verbs on the pools that it holds.
//!
//! ```text
//!   cenote zfs list ──> a daemon's socket? ──no──> the verb runs here, on the disks
//!                            │ yes
//!                            └──> its request ──> the daemon: check rights, run on open pools
//! ```
//!
//! Commands that name disks (`--disks`, `CENOTE_DISKS`) or an old state run here, on disks. `zpool create`
//! and `import` still go to the daemon, as they would go to the kernel.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use cenote_control::remote::Daemon;
use cenote_control::table;
use cenote_control::verb::Runs;
use cenote_serve::socket::{Here, Link};

use crate::args::{Cli, Command, Common, Deferred};
use crate::command::lab::Lab;
use crate::command::zpool::Zpool;
use crate::outcome::CliError;
use crate::streams::streams;

/// The daemon's default socket.
pub const SOCKET: &str = "/run/cenote/cenote.sock";
/// Names another socket; empty: no daemon is asked.
pub const VARIABLE: &str = "CENOTE_SOCKET";

/// The daemon's socket; `None`: ask no daemon.
fn socket() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(path.into()),
        None => Some(SOCKET.into()),
    }
}

/// The daemon that runs a command's verbs, if it should and one runs.
///
/// # Errors
/// A daemon runs but can't be reached.
pub fn link(cli: &Cli) -> Result<Option<Arc<dyn Daemon>>, CliError> {
    let Some(path) = socket().filter(|_| is_for_daemon(cli)) else { return Ok(None) };
    let link = Link::open(&path, here(cli));
    let link = link.map_err(|error| CliError::Refused(format!("the daemon: {error}")))?;
    Ok(link.map(|link| Arc::new(link) as Arc<dyn Daemon>))
}

/// Whether a daemon would run commands on open pools.
pub fn is_there(common: &Common) -> bool {
    socket().is_some_and(|path| path.exists()) && !names_disks(common)
}

fn names_disks(common: &Common) -> bool {
    !common.disks.is_empty() || std::env::var_os("CENOTE_DISKS").is_some()
}

/// This program's context.
fn here(cli: &Cli) -> Here {
    let cwd = std::env::current_dir().unwrap_or_default().into_os_string().into_vec();
    let names = cli.common.keys.iter().filter_map(|key| key.split_once("=env:")).map(|(_, name)| name);
    let env = names.filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?.into_vec())));
    Here { cwd, env: env.collect(), has_screen: streams().stderr_screen().is_some() }
}

/// Whether a command is about open pools, so that a daemon should run its verbs.
fn is_for_daemon(cli: &Cli) -> bool {
    let common = &cli.common;
    // An import may begin with a rewind.
    let is_import = matches!(&cli.command, Command::Zpool(Deferred(Zpool::Import(_))));
    if common.txg.is_some() || common.rewind && !is_import || common.checkpoint || common.replay {
        return false;
    }
    let names_disks = names_disks(common);
    table::row(&cli.verb).is_some_and(|row| match (row.runs, &cli.command) {
        (Runs::InDaemon | Runs::AtTerminal, _) => true,
        (Runs::OnOpenPools, _) => !names_disks,
        (Runs::AsWordsSay, Command::Zpool(Deferred(Zpool::Import(import)))) => !import.0.is_for_disks(),
        (Runs::AsWordsSay, Command::Lab(Deferred(Lab::Advise(advise)))) => {
            !names_disks && advise.is_for_daemon()
        }
        (Runs::AsWordsSay, _) => false,
    })
}
