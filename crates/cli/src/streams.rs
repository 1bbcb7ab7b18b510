//! Where a command reads and writes: this program's own standard streams, or those of the client for whom the
//! daemon runs it.
//!
//! Idea: the daemon runs each command on a thread of its own, with the streams that came through the socket.
//! Commands ask here for "standard output" and never know the difference.
//!
//! Locking: the streams of the daemon's commands are thread-local; set before a command begins, taken back
//! when it has ended. What a command leaves to other threads has no streams of a client there, and writes to
//! the daemon's own, unless it takes them along.

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
    /// Errors go without the program's name: it was called as `zfs` or `zpool`, whose errors have none.
    pub nameless: AtomicBool,
    /// Whether progress is shown; unset: if standard error is a terminal.
    pub progress: OnceLock<bool>,
    /// Set for a command of a client.
    pub client: Option<Client>,
}

/// For whom the daemon runs a command.
#[derive(Debug)]
pub struct Client {
    pub cwd: PathBuf,
    pub who: Credentials,
    /// May do everything; others may do what was delegated to them.
    pub is_admin: bool,
    pub env: Vec<(String, Vec<u8>)>,
    /// Set if its output is carried to streams of these sizes: they can't be asked.
    pub screens: Option<Screens>,
    pub cancel: Cancel,
}

thread_local! {
    static OF_CLIENT: RefCell<Option<Arc<Streams>>> = const { RefCell::new(None) };
}

/// The program's own. Descriptors 0 to 2 are always open: Rust's runtime opens /dev/null for those that are
/// not.
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

/// Takes the program's own streams, before anything else takes descriptors.
///
/// # Errors
/// There are no descriptors for them.
pub fn take_own() -> Result<(), &'static io::Error> {
    OWN.as_ref().map(drop)
}

/// The streams of the command that this thread runs.
pub fn streams() -> Arc<Streams> {
    let own = || OWN.as_ref().map(Arc::clone);
    let own = || own().unwrap_or_else(|error| panic!("the standard streams can't be used: {error}"));
    OF_CLIENT.with_borrow(Clone::clone).unwrap_or_else(own)
}

/// Who the command of this thread works for.
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

/// A file of the machine as the user named it: relative to where the user is.
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

/// Columns and rows of a terminal, if a stream is one.
pub fn screen(stream: &(impl IsTerminal + AsFd)) -> Option<(u16, u16)> {
    let size = |stream| rustix::termios::tcgetwinsize(stream).map(|size| (size.ws_col, size.ws_row));
    stream.is_terminal().then(|| size(stream).unwrap_or((80, 24)))
}

impl Streams {
    /// Columns and rows of the terminal that standard output is, if it is one.
    pub fn stdout_screen(&self) -> Option<(u16, u16)> {
        self.told().map_or_else(|| screen(&*self.stdout), |[stdout, _]| stdout)
    }

    /// The same of standard error.
    pub fn stderr_screen(&self) -> Option<(u16, u16)> {
        self.told().map_or_else(|| screen(&*self.stderr), |[_, stderr]| stderr)
    }

    fn told(&self) -> Option<Screens> {
        self.client.as_ref().and_then(|client| client.screens)
    }

    /// Errors go without the program's name from now on.
    pub fn use_no_name(&self) {
        self.nameless.store(true, Ordering::Relaxed);
    }

    /// Whether progress is shown from now on, whatever standard error is.
    pub fn show_progress(&self, is_shown: bool) {
        self.progress.get_or_init(|| is_shown);
    }

    /// Messages are JSON from now on.
    pub fn use_json(&self) {
        self.json.store(true, Ordering::Relaxed);
    }
}
