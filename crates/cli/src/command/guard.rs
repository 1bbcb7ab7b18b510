//! `cenote guard`: helpers of a process that mounts. The guard takes down its mounts if it is killed
//! (`cenote_fuse::guard`); hands (`--hand`) make its calls with paths (`cenote_fuse::mount::hand`).
//!
//! systemd kills all processes of a service at once (`systemctl kill`, a stop that takes too long). So a
//! service's guard moves to a scope of its own, if systemd permits; it still ends with the daemon.
//!
//! Source: org.freedesktop.systemd1(5), `StartTransientUnit`, `PIDs`.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use cenote_fuse::guard::Guarded;
use cenote_fuse::mount::hand;
use cenote_serve::sandbox;
use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

use crate::message::say;
use crate::outcome::{CliError, Outcome};

/// `cenote guard`
#[derive(Debug, Args)]
pub struct Guard {
    /// Make and remove mount points
    #[arg(long)]
    pub hand: bool,
}

/// Starts a guard for this process. Without one everything works until this process is killed.
pub fn start() {
    if let Err(error) = cenote_fuse::guard::start(command) {
        say!("nobody guards the mounts: {error}");
    }
    hand::start(|| {
        let mut command = command();
        command.arg("--hand");
        command
    });
}

/// The running program, even if a new version has replaced its file.
fn command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("cenote").arg("guard");
    command
}

impl Guard {
    /// Serves the process that started this one, until that process ends.
    pub fn run(&self) -> Result<Outcome, CliError> {
        let failed = CliError::io("guard");
        if self.hand {
            let socket = sandbox::drop_capabilities_of_hand()
                .and_then(|()| Ok(rustix::io::dup(std::io::stdin())?))
                .map_err(failed)?;
            hand::serve(&socket);
            return Ok(Outcome::Done);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.and_then(|runtime| runtime.block_on(guard())).map(|()| Outcome::Done).map_err(failed)
    }
}

/// The variable that systemd sets for the processes of a service.
const INVOCATION_ID: &str = "INVOCATION_ID";

/// Moves this process to a scope of its own. If that fails, it is killed with its service, and the next
/// daemon finds the connections by their list.
fn leave_service() {
    let pid = std::process::id().to_string();
    let scope = format!("cenote-guard-{pid}.scope");
    let manager =
        ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"];
    // Name, mode; two properties; no units beside it.
    let what = ["StartTransientUnit", "ssa(sv)a(sa(sv))", &scope, "fail", "2"];
    let properties = ["PIDs", "au", "1", &pid, "Description", "s", "Cenote: guard of the daemon", "0"];
    let mut busctl = Command::new("busctl");
    busctl.args(["--quiet", "--timeout=5", "call"]).args(manager).args(what).args(properties);
    busctl.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
}

async fn guard() -> std::io::Result<()> {
    // A service manager sends these to all processes of a service; this one ends with its daemon.
    let _ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let mut killed = signal(SignalKind::user_defined2())?;
    set_parent_process_death_signal(Some(Signal::USR2))?;
    let mut guarded = Guarded::new()?;
    if std::env::var_os(INVOCATION_ID).is_some() {
        leave_service();
    }
    // The files of the control file system belong to root.
    sandbox::drop_all_capabilities()?;
    let stdin = rustix::io::dup(std::io::stdin())?;
    let stream = std::os::unix::net::UnixStream::from(stdin);
    stream.set_nonblocking(true)?;
    let mut lines = BufReader::new(UnixStream::from_std(stream)?).lines();
    if getppid().is_none_or(rustix::process::Pid::is_init) {
        return Ok(());
    }
    loop {
        tokio::select! {
            // Messages sent before the end come first.
            biased;
            line = lines.next_line() => match line? {
                Some(line) => guarded.heed(&line),
                None => return Ok(()),
            },
            _ = killed.recv() => guarded.abort(),
        }
    }
}
