//! Hands commands to the daemon, if one runs, and runs the commands handed to it.
//!
//! ```text
//!   cenote zfs list ──> a daemon's socket? ──no──> run here
//!                            │ yes
//!                            └──> argv, cwd, streams ──> the daemon: parse, check rights, run on open pools
//! ```
//!
//! Commands that name disks (`--disks`, `CENOTE_DISKS`) or an old state are about disks, not about open
//! pools: they run here. `zpool create` and `import` still go to the daemon, as they would go to the kernel.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use cenote_control::permissions::ONLY_ADMINS;
use cenote_control::remote::{Asking, Daemon};
use cenote_control::session::GivenKeys;
use cenote_control::table::{self, Row};
use cenote_control::verb::{Needs, Runs};
use cenote_control::{Caller, Options};
use cenote_host::own::is_trusted;
use cenote_host::pools::Pools;
use cenote_runtime::Runtime;
use cenote_serve::requests;
use cenote_serve::socket::{Asked, CommandLine, Forwarded, Link, NoStatus, Replies, Serving};
use clap::CommandFactory;

use crate::args::{self, Cli, Command, Deferred};
use crate::command::lab::Lab;
use crate::command::zpool::Zpool;
use crate::message;
use crate::outcome::{CliError, Say};
use crate::session::{Session, until_cancelled};
use crate::streams::{Client, Streams, screen, streams, with_streams};

/// The daemon's default socket.
pub const SOCKET: &str = "/run/cenote/cenote.sock";
/// Names another socket; empty: no daemon is asked.
pub const VARIABLE: &str = "CENOTE_SOCKET";
/// Environment variables read by commands.
const VARIABLES: [&str; 2] = ["NO_COLOR", "COLUMNS"];

/// The daemon's socket; `None`: ask no daemon.
fn socket() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(path.into()),
        None => Some(SOCKET.into()),
    }
}

/// The daemon that runs a command's verbs, if they are sent as values and one runs.
///
/// # Errors
/// A daemon runs but can't be reached.
pub fn link(cli: &Cli) -> Result<Option<Arc<dyn Daemon>>, CliError> {
    let is_request = for_daemon(cli).is_some_and(|row| !row.is_line);
    let Some(path) = socket().filter(|_| is_request) else { return Ok(None) };
    let link = Link::open(&path, here(cli, Vec::new())).map_err(|error| refused(&error))?;
    Ok(link.map(|link| Arc::new(link) as Arc<dyn Daemon>))
}

fn refused(error: &dyn std::fmt::Display) -> CliError {
    CliError::Refused(format!("the daemon: {error}"))
}

/// A command line, and the place where it was typed.
fn here(cli: &Cli, argv: Vec<Vec<u8>>) -> CommandLine {
    let cwd = std::env::current_dir().unwrap_or_default().into_os_string().into_vec();
    let mut env: Vec<(String, Vec<u8>)> = VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?.into_vec())))
        .collect();
    for name in cli.common.keys.iter().filter_map(|key| key.split_once("=env:")).map(|(_, name)| name) {
        env.extend(std::env::var_os(name).map(|value| (name.to_owned(), value.into_vec())));
    }
    let screens = [screen(&std::io::stdout()), screen(&std::io::stderr())];
    CommandLine::new(argv, cwd, env).at_screens(screens)
}

/// Hands a command to the daemon; returns its exit status. `None`: run it here.
pub fn forward(cli: &Cli, argv: &[OsString]) -> Option<Result<u8, CliError>> {
    for_daemon(cli).filter(|row| row.is_line)?;
    let path = socket().filter(|path| path.exists())?;
    let argv = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
    let sent = match Forwarded::send(&path, &here(cli, argv)) {
        Ok(Some(sent)) => sent,
        Ok(None) => return None,
        Err(error) => return Some(Err(refused(&error))),
    };
    if let Ok(canceller) = sent.canceller() {
        let heed = move || {
            // Without this, Ctrl-C ends this program, and the daemon notices that.
            let Ok(runtime) = Runtime::try_real(Some(1)) else { return };
            loop {
                runtime.block_on(crate::session::interrupted());
                canceller.cancel();
            }
        };
        std::thread::Builder::new().spawn(heed).ok();
    }
    let failed = |why| match why {
        NoStatus::Output(error) => CliError::io("standard output")(error),
        NoStatus::Refused(_) => refused(&why),
        NoStatus::Ended => CliError::Refused(why.to_string()),
    };
    Some(sent.status().map_err(failed))
}

/// The verb, if it is about open pools and a daemon should run it.
fn for_daemon(cli: &Cli) -> Option<&'static Row> {
    let common = &cli.common;
    // An import may begin with a rewind.
    let is_import = matches!(&cli.command, Command::Zpool(Deferred(Zpool::Import(_))));
    if common.txg.is_some() || common.rewind && !is_import || common.checkpoint || common.replay {
        return None;
    }
    let names_disks = !common.disks.is_empty() || std::env::var_os("CENOTE_DISKS").is_some();
    table::row(&cli.verb).filter(|row| match (row.runs, &cli.command) {
        (Runs::InDaemon | Runs::AtTerminal, _) => true,
        (Runs::OnOpenPools, _) => !names_disks,
        (Runs::AsWordsSay, Command::Zpool(Deferred(Zpool::Import(import)))) => !import.is_for_disks(),
        (Runs::AsWordsSay, Command::Lab(Deferred(Lab::Advise(advise)))) => {
            !names_disks && advise.is_for_daemon()
        }
        (Runs::AsWordsSay, _) => false,
    })
}

/// The description of every command.
pub fn described() -> clap::Command {
    Cli::command()
}

/// Runs commands in the daemon.
pub struct Commands {
    pub runtime: Runtime,
    pub pools: Arc<Pools>,
}

impl Serving for Commands {
    fn run(&self, asked: Asked) -> u8 {
        let Asked { line, peer, streams: [stdin, stdout, stderr], is_carried, cancel, .. } = asked;
        let file = |fd| Arc::new(File::from(fd));
        let client = Client {
            cwd: Path::new(OsStr::from_bytes(&line.cwd)).to_owned(),
            is_admin: is_trusted(peer.who.uid),
            who: peer.who,
            env: line.env,
            screens: is_carried.then_some(line.screens),
            cancel,
        };
        let streams = Arc::new(Streams {
            stdin: file(stdin),
            stdout: file(stdout),
            stderr: file(stderr),
            json: AtomicBool::new(false),
            nameless: AtomicBool::new(false),
            progress: OnceLock::new(),
            client: Some(client),
        });
        let argv: Vec<OsString> = line.argv.into_iter().map(OsString::from_vec).collect();
        with_streams(streams, || self.run_line(argv))
    }

    fn carry_out(&self, asking: Asking, asked: Asked, replies: Replies) -> u8 {
        requests::carry_out(&self.runtime, &self.pools, asking, asked, replies)
    }

    fn session(&self, caller: Caller, command: String, sees_all: bool) -> cenote_control::Session {
        let options = Options::in_daemon(GivenKeys::default(), command, sees_all);
        cenote_control::Session::in_daemon(&self.runtime, caller, options, &self.pools)
    }
}

impl Commands {
    fn run_line(&self, argv: Vec<OsString>) -> u8 {
        let command = args::as_noted(&argv);
        let cli = match Cli::read(argv) {
            Ok(cli) => cli,
            // The client has checked the words before it sent them.
            Err(error) => return CliError::Usage(error.to_string()).say().status(),
        };
        if cli.as_tool {
            streams().use_no_name();
        }
        if cli.common.json {
            message::use_json();
        }
        let row = table::row(&cli.verb);
        let sees_all = row.is_some_and(|row| row.sees_all);
        let session = Session::in_daemon(&self.runtime, &self.pools, cli.common, command, sees_all);
        let done = session.and_then(|session| {
            self.runtime.block_on(until_cancelled(async {
                check_user(row, &cli.command, &session).await?;
                crate::run(cli.command, &session).await
            }))
        });
        match done {
            Ok(outcome) => outcome.status(),
            Err(error) if error.is_broken_pipe() => 0,
            Err(error) => error.say().status(),
        }
    }
}

/// Refuses commands that this user may not run. A verb without a row is for administrators.
async fn check_user(row: Option<&Row>, command: &Command, session: &Session) -> Result<(), CliError> {
    let streams = streams();
    let Some(client) = &streams.client else { return Err(CliError::Refused("permission denied".into())) };
    let needs = row.map_or(Needs::All, |row| row.needs_if(command.only_looks()));
    match needs {
        _ if client.is_admin => Ok(()),
        // The daemon would open these disks with its own rights.
        _ if !session.disks().is_empty() => {
            Err(CliError::Refused("permission denied: --disks is for root and the daemon's user".into()))
        }
        Needs::Nothing => Ok(()),
        // Its verb checks the user.
        _ if row.is_some_and(|row| !row.is_line) => Ok(()),
        _ => Err(CliError::Refused(ONLY_ADMINS.into())),
    }
}
