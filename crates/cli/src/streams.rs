//! This program's standard streams, and how messages are shown there.
//!
//! Locking: atomics, set while the command line is read.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use cenote_control::Caller;

use crate::console::Terminal;

/// The streams.
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
}

/// Descriptors 0 to 2 are always open: Rust's runtime opens /dev/null in place of closed ones.
static OWN: LazyLock<io::Result<Streams>> = LazyLock::new(|| {
    let file = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(|fd| Arc::new(File::from(fd)));
    Ok(Streams {
        stdin: file(io::stdin().as_fd())?,
        stdout: file(io::stdout().as_fd())?,
        stderr: file(io::stderr().as_fd())?,
        json: AtomicBool::new(false),
        nameless: AtomicBool::new(false),
        progress: OnceLock::new(),
    })
});

/// Takes the program's own streams. Call it before other descriptors are taken.
///
/// # Errors
/// No descriptors are left for them.
pub fn take_own() -> Result<(), &'static io::Error> {
    OWN.as_ref().map(drop)
}

/// The streams.
pub fn streams() -> &'static Streams {
    OWN.as_ref().unwrap_or_else(|error| panic!("the standard streams can't be used: {error}"))
}

/// The caller of this program's verbs.
pub fn caller() -> Caller {
    Caller::own(Arc::new(Terminal::default()))
}

/// Columns and rows of a stream, if it is a terminal.
pub fn screen(stream: &(impl IsTerminal + AsFd)) -> Option<(u16, u16)> {
    let size = |stream| rustix::termios::tcgetwinsize(stream).map(|size| (size.ws_col, size.ws_row));
    stream.is_terminal().then(|| size(stream).unwrap_or((80, 24)))
}

impl Streams {
    /// Columns and rows of standard output, if it is a terminal.
    pub fn stdout_screen(&self) -> Option<(u16, u16)> {
        screen(&*self.stdout)
    }

    /// The same for standard error.
    pub fn stderr_screen(&self) -> Option<(u16, u16)> {
        screen(&*self.stderr)
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
