//! The daemon as a whole: from its settings to its end.
//!
//! ```text
//!   start: socket ──> pools named, and those open at the last stop ──> mounts ──> READY
//!   run:   verbs come through the doors; pools that did not open are retried (`opening`)
//!   end (SIGTERM, SIGINT): no more verbs; file systems are unmounted, pools exported
//! ```
//!
//! Idea: one value has all settings ([`Daemon`]), and one function runs until the daemon ends. Reading the
//! settings, from the command line or a file, is the caller's part, as is all that belongs to the process:
//! messages, the allocator, helper processes ([`Process`]).
//!
//! After `kill -9` the pools are still marked as in use by this machine, so the next start opens them again
//! and replays their logs. Stale mounts are removed when their mount points are used again.
//!
//! Read in this order: `doors` (clients over the network), `opening` (pools), `ha` (pools that move among
//! machines), [`room_for_pools`] (memory), `agent`.

mod agent;
mod doors;
mod ha;
mod opening;
mod process;
mod room;
mod systemd;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cenote_control::{ControlError, Outcome, Session};
use cenote_fuse::SessionOptions;
use cenote_host::cancel::Cancel;
use cenote_host::kstat::files::keep_kstats;
use cenote_host::lock::StateLock;
use cenote_host::record;
use cenote_serve::requests::Verbs;
use cenote_serve::sandbox;
use cenote_serve::socket::Listener;

pub use doors::Doors;
pub use process::Process;
pub use room::room_for_pools;

use agent::Agent;
use cenote_agent::Program;
use ha::{Ha, How};
use opening::Opening;
use room::export_all;
use systemd::{notify, watchdog_interval};

/// Time that commands have to end when the daemon does.
const PATIENCE: Duration = Duration::from_secs(3);

/// A daemon's settings.
#[derive(Debug)]
pub struct Daemon {
    /// Path of the socket for commands.
    pub socket: PathBuf,
    /// File that records the open pools.
    pub state: PathBuf,
    /// Pools to import at the start, by name.
    pub pools: Vec<String>,
    /// Mount nothing at the start.
    pub no_mount: bool,
    /// Load the keys of encrypted datasets.
    pub load_keys: bool,
    /// How file systems are served.
    pub fuse: SessionOptions,
    /// Limit of the memory of all pools; none: by this machine's memory.
    pub memory_bytes: Option<u64>,
    /// Doors for clients over the network.
    pub doors: Doors,
    /// File with the agent's rules.
    pub agent: Option<PathBuf>,
    /// File with the settings of pools that move among machines.
    pub ha: Option<PathBuf>,
    /// Folder for counters as files.
    pub kstat: Option<PathBuf>,
}

impl Daemon {
    /// Runs until an interrupt.
    ///
    /// # Errors
    /// A setting is wrong, a door can't be opened, or another daemon runs. A pool that does not open is no
    /// error: it is retried.
    pub async fn run(self, session: &Session, process: Process) -> Result<Outcome, ControlError> {
        let Daemon {
            socket,
            state,
            pools: named,
            no_mount,
            load_keys,
            fuse,
            memory_bytes,
            doors,
            agent,
            ha,
            kstat,
        } = self;
        let say = process.say;
        // Taken before anything in the folders is touched.
        let locks = StateLock::take_all(&[&socket, &state]);
        let locks = locks.map_err(|error| ControlError::Refused(error.to_string()))?;
        let refused = |error| ControlError::Refused(format!("{}: {error}", state.display()));
        record::check(&state).map_err(refused)?;
        let listener = Listener::bind(&socket).map_err(|error| ControlError::Refused(error.to_string()))?;
        let listener = Arc::new(listener);
        let listeners = doors::open(&doors, session.runtime(), &socket, say).await?;
        let agent = agent.as_deref().map(Agent::read).transpose()?;
        let ha = match &ha {
            Some(path) => Some(Ha::read(path, session).await?),
            None => None,
        };
        let program = std::env::current_exe().map_err(ControlError::io("this program"))?;
        // Applied before a byte of a pool is read.
        if let Err(error) = sandbox::forbid_calls() {
            say(&format!("no system calls are given up: {error}"));
        }
        (process.start_guard)();
        let (pools, _memory) = room_for_pools(session, process, memory_bytes, fuse, state);
        let session = session.serving(&pools);
        let _noting = session.runtime().spawn(pools.clone().keep_noting(session.runtime().clone()));
        let _noting = _noting.abort_on_drop();
        let opening =
            Opening { session: session.serving(&pools), pools: pools.clone(), load_keys, no_mount, say };
        let outcome = opening.begin(&named, |name| ha.as_ref().is_some_and(|ha| ha.manages(name))).await;
        if let Some(ha) = &ha {
            ha.start(&session, &pools, How { load_keys, no_mount, say });
        }
        let verbs = Arc::new(Verbs { runtime: session.runtime().clone(), pools: pools.clone() });
        let open = listeners.let_in(session.runtime(), &pools, verbs.clone());
        let agent = agent.map(|agent| {
            let program = Program { path: program, socket: socket.clone() };
            agent.start(session.runtime(), say, verbs.clone(), (pools.clone(), program))
        });
        let stop = Cancel::default();
        let kstats = kstat.map(|dir| {
            let (runtime, pools) = (session.runtime(), Arc::downgrade(&pools));
            runtime.spawn(keep_kstats(runtime.clone(), pools, dir, stop.clone()))
        });
        let opening = opening.keep(stop.clone()).map_err(ControlError::io("a thread"))?;
        let serving = {
            let (listener, stop) = (listener.clone(), stop.clone());
            std::thread::spawn(move || listener.serve(verbs, &stop))
        };
        let names: Vec<String> = pools.all().iter().map(|pool| pool.name.clone()).collect();
        let names = if names.is_empty() { "no pool yet".into() } else { names.join(", ") };
        say(&format!("serving {names} at {}", socket.display()));
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
        session.caller().interrupted().await;
        say("ending");
        locks.iter().for_each(StateLock::is_ending);
        notify("STOPPING=1");
        stop.cancel();
        listener.wake();
        drop((serving.join(), opening.join()));
        drop(listener);
        drop((open, agent));
        if let Some(kstats) = kstats {
            kstats.await.ok();
        }
        if let Some(nodes) = pools.ha.get() {
            // Pools not let go in time are exported with the others.
            session.runtime().timeout(PATIENCE, nodes.end()).await.ok();
        }
        if let Err(error) = pools.end_record(session.runtime()).await {
            say(&format!("the record of pools can't be written: {error}"));
        }
        // Commands still running learn of the end from their pools, and have a moment to report it.
        if session.runtime().timeout(PATIENCE, export_all(&pools, say)).await.is_err() {
            say("giving the pools back takes longer than usual");
            export_all(&pools, say).await;
        }
        match pools.waiting.all().is_empty() {
            true => Ok(outcome),
            false => Ok(outcome.and(Outcome::Failed)),
        }
    }
}
