//! The streams of a command: this program's own standard streams, or those of the client for which the daemon
//! runs it.
//!
//! Idea: the daemon runs each command on a thread of its own, with the streams that came through the socket.
//! Commands ask here for "standard output" and never know the difference.
//!
//! Locking: the streams of the daemon's commands are thread-local, set before a command begins and reset when
//! it has ended. Work that a command passes to other threads does not see them: it writes to the daemon's own
//! streams unless it takes the client's along.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use cenote_control::{Caller, Rights};
use cenote_dataset::Credentials;
use cenote_host::cancel::Cancel;
use cenote_serve::socket::Screens;

use crate::console::Terminal;

/// A command's surroundings.
#[derive(Debug)]
pub struct Streams {
    pub stdin: Arc<File>,
    pub stdout: Arc<File>,
    pub stderr: Arc<File>,
    /// Messages are JSON.
    pub json: AtomicBool,
    /// Errors omit the program's name: it was called as `zfs` or `zpool`, whose errors have none.
    pub nameless: AtomicBool,
    /// Whether progress is shown; if unset, only on a terminal.
    pub progress: OnceLock<bool>,
    /// Set for a command of a client.
    pub client: Option<Client>,
}

/// The client for which the daemon runs a command.
#[derive(Debug)]
pub struct Client {
    pub cwd: PathBuf,
    pub who: Credentials,
    /// Whether all commands are allowed; other users need delegated permissions.
    pub is_admin: bool,
    pub env: Vec<(String, Vec<u8>)>,
    /// Sizes of the client's terminals, if its output is relayed: the relay can't be asked for them.
    pub screens: Option<Screens>,
    pub cancel: Cancel,
}

thread_local! {
    static OF_CLIENT: RefCell<Option<Arc<Streams>>> = const { RefCell::new(None) };
}

/// The program's own streams. Descriptors 0 to 2 are always open: Rust's runtime opens /dev/null in place of
/// closed ones.
static OWN: LazyLock<io::Result<Arc<Streams>>> = LazyLock::new(|| {
    let file = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(|fd| Arc::new(File::from(fd)));
    Ok(Arc::new(Streams {
        stdin: file(io::stdin().as_fd())?,
        stdout: file(io::stdout().as_fd())?,
        stderr: file(io::stderr().as_fd())?,
        json: AtomicBool::new(false),
        nameless: AtomicBool::new(false),
        progress: OnceLock::new(),
        client: None,
    }))
});

/// Takes the program's own streams. Call it before other descriptors are taken.
///
/// # Errors
/// No descriptors are left for them.
pub fn take_own() -> Result<(), &'static io::Error> {
    OWN.as_ref().map(drop)
}

/// The streams of the command that this thread runs.
pub fn streams() -> Arc<Streams> {
    let own = || OWN.as_ref().map(Arc::clone);
    let own = || own().unwrap_or_else(|error| panic!("the standard streams can't be used: {error}"));
    OF_CLIENT.with_borrow(Clone::clone).unwrap_or_else(own)
}

/// The caller of this thread's command.
pub fn caller() -> Caller {
    let streams = streams();
    let console = Arc::new(Terminal::new(&streams));
    let Some(client) = &streams.client else { return Caller::own(console) };
    let rights = if client.is_admin { Rights::All } else { Rights::Delegated };
    let (who, cwd, env) = (client.who.clone(), client.cwd.clone(), client.env.clone());
    Caller::client(who, rights, console, cwd, env, client.cancel.clone())
}

/// Runs `command` with a client's streams.
pub fn with_streams<T>(streams: Arc<Streams>, command: impl FnOnce() -> T) -> T {
    let before = OF_CLIENT.replace(Some(streams));
    let done = command();
    OF_CLIENT.set(before);
    done
}

/// Resolves a local path against the user's working directory.
pub fn local(path: &Path) -> PathBuf {
    match &streams().client {
        Some(client) => client.cwd.join(path),
        None => path.to_owned(),
    }
}

/// An environment variable of the user.
pub fn variable(name: &str) -> Option<std::ffi::OsString> {
    use std::os::unix::ffi::OsStringExt;
    match &streams().client {
        Some(client) => {
            let (_, value) = client.env.iter().find(|(other, _)| other == name)?;
            Some(std::ffi::OsString::from_vec(value.clone()))
        }
        None => std::env::var_os(name),
    }
}

/// Whether the daemon runs this command, on pools that it holds open for changes.
pub fn is_in_daemon() -> bool {
    streams().client.is_some()
}

/// Columns and rows of a stream, if it is a terminal.
pub fn screen(stream: &(impl IsTerminal + AsFd)) -> Option<(u16, u16)> {
    let size = |stream| rustix::termios::tcgetwinsize(stream).map(|size| (size.ws_col, size.ws_row));
    stream.is_terminal().then(|| size(stream).unwrap_or((80, 24)))
}

impl Streams {
    /// Columns and rows of standard output, if it is a terminal.
    pub fn stdout_screen(&self) -> Option<(u16, u16)> {
        self.told().map_or_else(|| screen(&*self.stdout), |[stdout, _]| stdout)
    }

    /// The same for standard error.
    pub fn stderr_screen(&self) -> Option<(u16, u16)> {
        self.told().map_or_else(|| screen(&*self.stderr), |[_, stderr]| stderr)
    }

    fn told(&self) -> Option<Screens> {
        self.client.as_ref().and_then(|client| client.screens)
    }

    /// Errors omit the program's name from now on.
    pub fn use_no_name(&self) {
        self.nameless.store(true, Ordering::Relaxed);
    }

    /// Whether progress is shown from now on, on a terminal or not.
    pub fn show_progress(&self, is_shown: bool) {
        self.progress.get_or_init(|| is_shown);
    }

    /// Messages are JSON from now on.
    pub fn use_json(&self) {
        self.json.store(true, Ordering::Relaxed);
    }
}
