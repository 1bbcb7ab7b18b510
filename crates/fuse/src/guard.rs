//! The guard: a second process that aborts the connections of a killed one.
//!
//! Idea: a connection ends with its last descriptor of `/dev/fuse`, which a process closes when its last
//! thread ends. A thread that waits for the process's own file systems never ends (a notice, say, for a
//! directory lock of an operation no longer served): all users of the mounts hang, and a new daemon finds the
//! disks in use. The guard, without such a descriptor, aborts each connection when the daemon is killed.
//!
//! ```text
//!   daemon --"+43", "-43"--> guard: a set of connections
//!   SIGKILL: its threads end, all but one --PR_SET_PDEATHSIG--> guard --> fusectl 43/abort
//! ```
//!
//! A service manager may kill both, so a file can list the connections, too: the next daemon aborts them.
//!
//! The signal comes when the guard's parent thread ends, even if others live on. So that thread is dedicated;
//! it also restarts the guard.
//!
//! Shared state: [`STATE`], locked for one change and its message.
//!
//! Source: Linux `fs/fuse/control.c` (`abort`), prctl(2).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, fstatfs, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen,
};

use crate::mount::table::{Line, Table};

const FUSECTL: &str = "/sys/fs/fuse/connections";
const FUSE_CTL_SUPER_MAGIC: u64 = 0x6573_5543;
/// Timeout of a message, and pause before a restart.
const PATIENCE: Duration = Duration::from_secs(1);

static STATE: Mutex<State> = Mutex::new(State { connections: BTreeMap::new(), guard: None, list: None });

struct State {
    /// Connection to mount id.
    connections: BTreeMap<u32, u64>,
    guard: Option<UnixStream>,
    /// For the next daemon.
    list: Option<File>,
}

impl State {
    fn say(&mut self, what: char, connection: u32) {
        let said = self.guard.as_mut().map(|guard| writeln!(guard, "{what}{connection}"));
        if let Some(Err(_)) = said {
            // The next guard gets a full list.
            self.guard = None;
        }
    }

    /// Best effort: without it, the next daemon finds a leftover mount when it needs the directory.
    fn write_list(&self) {
        let Some(list) = &self.list else { return };
        let mut text = boot_id();
        for (connection, mount) in &self.connections {
            text += &format!("{connection} {mount}\n");
        }
        list.write_all_at(text.as_bytes(), 0).and_then(|()| list.set_len(text.len() as u64)).ok();
    }
}

/// Connections and mounts are renumbered at boot.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Lists this process's connections in `file`, for its successor.
pub fn list_in(file: File) {
    let mut state = STATE.lock();
    state.list = Some(file);
    state.write_list();
}

/// The listed mounts that still exist, innermost first.
fn left(list: &str) -> Vec<Line> {
    let Ok(table) = Table::read() else { return Vec::new() };
    let Some(named) = list.strip_prefix(&boot_id()) else { return Vec::new() };
    let named = named.lines().filter_map(|line| line.split_once(' '));
    let named = named.filter_map(|(number, id)| Some((number.parse::<u32>().ok()?, id.parse::<u64>().ok()?)));
    let find = |(number, id)| {
        table
            .get(id)
            .filter(|line| connection(line.device) == number && line.fuse_subtype().is_some())
            .cloned()
    };
    let mut left: Vec<Line> = named.filter_map(find).collect();
    left.sort_by(|one, other| (&other.dir, other.id).cmp(&(&one.dir, one.id)));
    left
}

/// Aborts the listed connections of a killed process.
pub fn abort_left(list: &str) {
    let Ok(control) = control() else { return };
    left(list).iter().for_each(|mount| abort(&control, connection(mount.device)));
}

/// Takes down the listed mounts of a dead process.
pub fn take_down_left(list: &str) {
    abort_left(list);
    for mount in left(list) {
        let is_covered = Table::read().is_ok_and(|table| table.covering(mount.id).is_some());
        if !is_covered {
            rustix::mount::unmount(&mount.dir, UnmountFlags::DETACH).ok();
        }
    }
}

fn abort(control: &OwnedFd, connection: u32) {
    abort_file(control, connection).and_then(|file| rustix::io::write(file, b"1")).ok();
}

/// The file that aborts a connection. It is gone once the connection has ended.
fn abort_file(control: &OwnedFd, connection: u32) -> rustix::io::Result<OwnedFd> {
    let path = format!("{connection}/abort");
    openat(control, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Starts a guard, once: `command` makes a process that hands its standard input, line by line, to a
/// [`Guarded`].
///
/// # Errors
/// It can't be started.
pub fn start(command: impl Fn() -> Command + Send + 'static) -> io::Result<()> {
    let (sender, started) = mpsc::channel();
    let keep = move || {
        let mut guard = match start_one(command()) {
            Ok(guard) => guard,
            Err(error) => return drop(sender.send(Err(error))),
        };
        sender.send(Ok(())).ok();
        loop {
            guard.wait().ok();
            guard = loop {
                thread::sleep(PATIENCE);
                if let Ok(next) = start_one(command()) {
                    break next;
                }
            };
        }
    };
    thread::Builder::new().name("cenote-guard".into()).spawn(keep)?;
    started.recv().unwrap_or(Ok(()))
}

fn start_one(mut command: Command) -> io::Result<std::process::Child> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_write_timeout(Some(PATIENCE))?;
    // Its own process group: a terminal's signals must not reach it.
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let child = command.spawn()?;
    let mut state = STATE.lock();
    state.guard = Some(ours);
    for connection in state.connections.clone().into_keys() {
        state.say('+', connection);
    }
    Ok(child)
}

/// The connection's number: the kernel's device number (`MKDEV`).
pub(crate) fn connection((major, minor): (u32, u32)) -> u32 {
    major << 20 | minor
}

/// Guarded until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched(u32);

pub(crate) fn watch(connection: u32, mount: u64) -> Watched {
    let mut state = STATE.lock();
    state.connections.insert(connection, mount);
    state.say('+', connection);
    state.write_list();
    Watched(connection)
}

impl Watched {
    pub(crate) fn abort(&self) {
        if let Ok(control) = control() {
            abort(&control, self.0);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut state = STATE.lock();
        state.connections.remove(&self.0);
        state.say('-', self.0);
        state.write_list();
    }
}

/// The guarded connections of another process.
#[derive(Debug)]
pub struct Guarded {
    /// With the files that abort them. They are opened early: once a connection has ended, its number may be
    /// that of another process's mount, and the open file of the old connection does nothing.
    connections: BTreeMap<u32, Option<OwnedFd>>,
    control: OwnedFd,
}

impl Guarded {
    /// An empty set.
    ///
    /// # Errors
    /// There is no control file system, and it can't be mounted (only root may).
    pub fn new() -> io::Result<Guarded> {
        Ok(Guarded { connections: BTreeMap::new(), control: control()? })
    }

    /// Processes a line.
    pub fn heed(&mut self, line: &str) {
        let known = line.split_at_checked(1).and_then(|(what, number)| Some((what, number.parse().ok()?)));
        match known {
            Some(("+", connection)) => match abort_file(&self.control, connection) {
                // It has ended meanwhile.
                Err(Errno::NOENT) => {}
                file => _ = self.connections.insert(connection, file.ok()),
            },
            Some(("-", connection)) => _ = self.connections.remove(&connection),
            _ => {}
        }
    }

    /// Aborts the connections: all users get an error.
    pub fn abort(&self) {
        for (connection, file) in &self.connections {
            match file {
                Some(file) => _ = rustix::io::write(file, b"1").ok(),
                None => abort(&self.control, *connection),
            }
        }
    }
}

fn control() -> io::Result<OwnedFd> {
    let folder = openat(CWD, FUSECTL, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    if let Ok(folder) = folder
        && fstatfs(folder.as_fd()).is_ok_and(|found| found.f_type as u64 == FUSE_CTL_SUPER_MAGIC)
    {
        return Ok(folder);
    }
    let opened = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(opened.as_fd())?;
    Ok(fsmount(opened.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
