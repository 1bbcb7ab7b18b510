//! Limits set by the system on this program.

use std::io;
use std::os::unix::net::UnixStream;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// Raises the limit on open files to the hard limit. The soft one, often 1024, is meant for programs that use
/// `select`. A pool needs one file for each device, the daemon one for each client.
pub fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If refused, the limit stays.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
}

/// Makes a write beyond the file-size limit fail with EFBIG: by default, SIGXFSZ ends the program. The signal
/// is handled rather than ignored, since child processes would inherit that. Call within a runtime.
///
/// # Errors
/// No descriptors are left for signals. This is checked here because tokio would panic.
pub fn survive_file_size() -> io::Result<()> {
    drop(UnixStream::pair()?);
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}
