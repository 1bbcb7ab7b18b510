//! The holder of the test pools: OpenZFS's module, or a daemon of this program.
//!
//! The daemon is started for the pools of one test, with a socket in the test's folder, so it disturbs no
//! other. `zpool` reaches it through that socket. It ends with its [`Holder`].

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::load::machine::zpool::{Zpool, command};
use crate::load::program;
use crate::{LabError, Result};

/// Time limit for the daemon's start, and for its end.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// An implementation of ZFS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// OpenZFS's programs and kernel module.
    #[default]
    Module,
    /// This program: a daemon holds the pools, and FUSE mounts them.
    Cenote,
}

#[derive(Debug)]
pub enum Holder {
    Module,
    Cenote(Daemon),
}

#[derive(Debug)]
pub struct Daemon {
    program: PathBuf,
    socket: PathBuf,
    child: Child,
}

impl Holder {
    /// Starts the holder; the daemon's files are created in `folder`.
    ///
    /// # Errors
    /// The daemon can't be started; the text has its output.
    pub fn start(engine: Engine, folder: &Path) -> Result<Holder> {
        match engine {
            Engine::Module => Ok(Holder::Module),
            Engine::Cenote => Daemon::start(folder).map(Holder::Cenote),
        }
    }

    /// Name and version of the measured program.
    ///
    /// # Errors
    /// OpenZFS is not available.
    pub fn version(&self) -> Result<(String, String)> {
        match self {
            Holder::Module => Ok(("zpool".into(), Zpool::find()?.userland().to_owned())),
            Holder::Cenote(daemon) => Ok(("cenote".into(), program::version(&daemon.program))),
        }
    }

    /// The command `zpool` with these words.
    ///
    /// # Errors
    /// No such program.
    pub fn zpool(&self, words: &[&str]) -> Result<Command> {
        let mut command = match self {
            Holder::Module => command("zpool")?,
            Holder::Cenote(daemon) => daemon.command("zpool"),
        };
        command.args(words);
        Ok(command)
    }

    /// Command that makes devices fail on request.
    ///
    /// # Errors
    /// The module holds the pools.
    pub fn inject(&self) -> Result<Command> {
        match self {
            Holder::Module => Err(LabError::Refused("only Cenote's pools get faults here".into())),
            Holder::Cenote(daemon) => Ok(daemon.command("inject")),
        }
    }
}

impl Daemon {
    fn start(folder: &Path) -> Result<Daemon> {
        let program = std::env::current_exe().map_err(LabError::io("cannot find this program"))?;
        let (socket, log) = (folder.join("socket"), folder.join("daemon.log"));
        let said = File::create(&log).map_err(LabError::io(log.display().to_string()))?;
        let child = Command::new(&program)
            .arg("serve")
            .arg("--socket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            // A keyboard interrupt must not reach the daemon directly.
            .process_group(0)
            .spawn()
            .map_err(LabError::io("cannot start the daemon"))?;
        let mut daemon = Daemon { program, socket, child };
        let began = Instant::now();
        while !daemon.socket.exists() {
            let is_over = daemon.child.try_wait().is_ok_and(|status| status.is_some());
            if is_over || began.elapsed() > PATIENCE {
                let what = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(LabError::Program { program: "cenote serve".into(), what });
            }
            thread::sleep(LOOK_INTERVAL);
        }
        Ok(daemon)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env("CENOTE_SOCKET", &self.socket).arg(verb);
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let asked = Pid::from_child(&self.child);
        // It may have ended already.
        let _ = kill_process(asked, Signal::TERM);
        let began = Instant::now();
        while self.child.try_wait().is_ok_and(|status| status.is_none()) {
            if began.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }
}
