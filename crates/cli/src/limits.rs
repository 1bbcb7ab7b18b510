//! Limits that the system sets to this program.

use std::io;
use std::os::unix::net::UnixStream;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// As many open files as the administrator allows (the hard limit): the soft one, often 1024, is meant for
/// programs that use `select`. A pool has one for each device, the daemon one for each client.
pub fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Refused, it stays as it is.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
}

/// From now on a file that would become larger than allowed is an error (EFBIG) of the write, as any other:
/// by itself the signal would end the program. It is not ignored, since programs that this one starts would
/// inherit that. Within a runtime.
///
/// # Errors
/// There are no descriptors for signals. Heard of here, that is an error: tokio panics then.
pub fn survive_file_size() -> io::Result<()> {
    drop(UnixStream::pair()?);
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}
