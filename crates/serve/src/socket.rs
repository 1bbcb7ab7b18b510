//! The daemon's socket: a command line comes in with its standard streams, its exit status goes back.
//!
//! ```text
//!   client                                   daemon
//!   Request: argv, cwd, environment  ----->  checks who asks, runs the command on the streams it was given
//!            + stdin, stdout, stderr (SCM_RIGHTS)
//!   Cancel (Ctrl-C), or end of stream ---->  cancels it
//!                                    <-----  exit status
//! ```
//!
//! Idea: the command's own streams travel to the daemon as descriptors. So output, messages, terminals, pipes
//! and `Broken pipe` are those of the command run alone, and nothing is copied through the socket.
//!
//! Layout of a message: length (4 bytes, little endian), then JSON.
//!
//! Who may: the kernel tells the daemon who is on the other side (`SO_PEERCRED`, `SO_PEERGROUPS`); what they
//! may do is for [`Serving::run`] to decide.
//!
//! Locking: none shared; each connection has a thread of its own, and one that waits for the client to
//! cancel.

mod groups;

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cenote_dataset::Credentials;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, recvmsg, sendmsg, shutdown, sockopt,
};
use serde::{Deserialize, Serialize};

use crate::cancel::Cancel;

/// The longest request: argument lists are at most 2 MiB on Linux, and bytes take up to four characters here.
const MAX_REQUEST_BYTES: u32 = 16 << 20;
/// Commands at the same time.
const MAX_COMMANDS: usize = 256;
/// A command runs on its thread as on a main thread; what is not used costs no memory.
const STACK_BYTES: usize = 32 << 20;
/// Raised when requests change.
const VERSION: u32 = 1;

/// A command line, and where it was typed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommandLine {
    version: u32,
    /// The program's name and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// The working directory.
    pub cwd: Vec<u8>,
    /// Variables that commands look at.
    pub env: Vec<(String, Vec<u8>)>,
}

impl CommandLine {
    /// A command line of this version of the protocol.
    pub fn new(argv: Vec<Vec<u8>>, cwd: Vec<u8>, env: Vec<(String, Vec<u8>)>) -> CommandLine {
        CommandLine { version: VERSION, argv, cwd, env }
    }
}

/// Who is on the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// User and groups.
    pub who: Credentials,
    /// Process.
    pub pid: i32,
}

/// A command to run.
#[derive(Debug)]
pub struct Asked {
    /// What was typed.
    pub line: CommandLine,
    /// By whom.
    pub peer: Peer,
    /// Its standard input, output and error.
    pub streams: [OwnedFd; 3],
    /// Set when the client is interrupted, or gone.
    pub cancel: Cancel,
}

/// What runs commands.
pub trait Serving: Send + Sync + 'static {
    /// Runs one; answers its exit status.
    fn run(&self, asked: Asked) -> u8;
}

/// Runs a command on a thread made for it.
///
/// # Errors
/// The system has no threads left.
pub fn on_command_thread(command: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("cenote-command".into()).stack_size(STACK_BYTES).spawn(command).map(drop)
}

/// Why there is no daemon, or no socket.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum SocketError {
    #[error(
        "{path}: a daemon is serving there already (process {pid}); stop it, or give this one another \
         --socket"
    )]
    Taken { path: String, pid: i32 },
    #[error("{path}: is not a socket; it is left alone: remove it, or give another --socket")]
    NotSocket { path: String },
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
}

/// The socket that a daemon listens on. Dropped, it is removed.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`. The socket that a dead daemon left there is replaced.
    ///
    /// # Errors
    /// A daemon answers there; something else lies there; the folder can't be made.
    pub fn bind(path: &Path) -> Result<Listener, SocketError> {
        let named = || path.display().to_string();
        let io = |source| SocketError::Io { path: named(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        if let Ok(found) = path.symlink_metadata() {
            if !found.file_type().is_socket() {
                return Err(SocketError::NotSocket { path: named() });
            }
            if let Ok(stream) = UnixStream::connect(path) {
                let pid = sockopt::socket_peercred(&stream).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
                return Err(SocketError::Taken { path: named(), pid });
            }
            std::fs::remove_file(path).map_err(io)?;
        }
        let socket = UnixListener::bind(path).map_err(io)?;
        // Anybody may ask; the daemon decides what for.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).map_err(io)?;
        Ok(Listener { socket, path: path.to_owned() })
    }

    /// Answers commands until `stop` is cancelled.
    pub fn serve(&self, serving: Arc<impl Serving>, stop: &Cancel) {
        let commands = Arc::new(AtomicUsize::new(0));
        while !stop.is_cancelled() {
            let Ok((stream, _)) = self.socket.accept() else { continue };
            if stop.is_cancelled() {
                return;
            }
            if commands.fetch_add(1, Ordering::AcqRel) >= MAX_COMMANDS {
                commands.fetch_sub(1, Ordering::AcqRel);
                continue; // closed: the client says that the daemon is busy
            }
            let (serving, commands) = (serving.clone(), commands.clone());
            let answer = move || {
                answer(&stream, &*serving).ok();
                commands.fetch_sub(1, Ordering::AcqRel);
            };
            on_command_thread(answer).ok();
        }
    }

    /// Wakes [`Listener::serve`] so that it looks at `stop`; also if somebody has removed its file.
    pub fn wake(&self) {
        shutdown(&self.socket, Shutdown::Both).ok();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).ok();
    }
}

/// One connection: one command.
fn answer(stream: &UnixStream, serving: &impl Serving) -> io::Result<()> {
    let peer = sockopt::socket_peercred(stream)?;
    let mut gids = groups::of_peer(stream)?;
    gids.insert(0, peer.gid.as_raw());
    let who = Credentials { uid: peer.uid.as_raw(), gids };
    let peer = Peer { who, pid: peer.pid.as_raw_nonzero().get() };
    let (line, streams) = receive(stream)?;
    let cancel = Cancel::default();
    let watch = {
        let (mut stream, cancel) = (stream.try_clone()?, cancel.clone());
        // A byte is Ctrl-C, another one is impatience; the end of the stream is a client that was killed. The
        // thread ends when the connection is shut down below.
        let wait = move || {
            let mut byte = [0];
            while stream.read(&mut byte).is_ok_and(|count| count > 0) {
                cancel.cancel();
            }
            cancel.cancel();
        };
        thread::Builder::new().name("cenote-cancel".into()).spawn(wait)?
    };
    let status = serving.run(Asked { line, peer, streams, cancel });
    (&*stream).write_all(&[status]).ok();
    stream.shutdown(std::net::Shutdown::Both).ok();
    watch.join().ok();
    Ok(())
}

/// Reads a request and the descriptors that come with its first bytes.
fn receive(stream: &UnixStream) -> io::Result<(CommandLine, [OwnedFd; 3])> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut length)], &mut ancillary, flags)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    let length = u32::from_le_bytes(length);
    if got.bytes != 4 || length > MAX_REQUEST_BYTES {
        return Err(invalid("not a request"));
    }
    let streams = descriptors.try_into().map_err(|_| invalid("a request comes with three streams"))?;
    let mut json = vec![0; length as usize];
    (&*stream).read_exact(&mut json)?;
    let line: CommandLine = serde_json::from_slice(&json)?;
    match line.version == VERSION {
        true => Ok((line, streams)),
        false => Err(invalid("the client is of another version")),
    }
}

/// A command that a daemon runs for this program.
#[derive(Debug)]
pub struct Forwarded {
    stream: UnixStream,
}

impl Forwarded {
    /// Hands a command to the daemon at `path`. `Ok(None)`: there is none.
    ///
    /// # Errors
    /// There is one, and it can't be talked to.
    pub fn send(path: &Path, line: &CommandLine) -> Result<Option<Forwarded>, SocketError> {
        let io = |source| SocketError::Io { path: path.display().to_string(), source };
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(io(error)),
        };
        let json = serde_json::to_vec(line).map_err(|error| io(error.into()))?;
        let length = (json.len() as u32).to_le_bytes();
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&streams));
        sendmsg(&stream, &[IoSlice::new(&length)], &mut ancillary, SendFlags::NOSIGNAL)
            .map_err(|errno| io(errno.into()))?;
        (&stream).write_all(&json).map_err(io)?;
        Ok(Some(Forwarded { stream }))
    }

    /// By which the command can be cancelled from another thread.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn canceller(&self) -> io::Result<Canceller> {
        Ok(Canceller(File::from(OwnedFd::from(self.stream.try_clone()?))))
    }

    /// Waits for the exit status.
    ///
    /// # Errors
    /// The daemon ended first.
    pub fn status(mut self) -> io::Result<u8> {
        let mut status = [0];
        self.stream.read_exact(&mut status)?;
        Ok(status[0])
    }
}

/// Cancels a forwarded command.
#[derive(Debug)]
pub struct Canceller(File);

impl Canceller {
    /// Asks for its end.
    pub fn cancel(&self) {
        (&self.0).write_all(&[1]).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl Serving for Echo {
        fn run(&self, asked: Asked) -> u8 {
            let [_, out, _] = asked.streams;
            let text = asked.line.argv.concat();
            File::from(out).write_all(&text).unwrap();
            asked.line.argv.len() as u8
        }
    }

    #[test]
    fn a_socket_of_a_dead_daemon_is_replaced_and_that_of_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/cenote.sock");
        let first = Listener::bind(&path).unwrap();
        let refused = Listener::bind(&path).unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        std::mem::forget(first.socket.try_clone().unwrap());
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        Listener::bind(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(matches!(Listener::bind(&path), Err(SocketError::NotSocket { .. })));
    }

    #[test]
    fn a_command_goes_out_and_its_status_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sock");
        let line = CommandLine::new(vec![b"a".to_vec(), b"\xff".to_vec()], b"/".to_vec(), Vec::new());
        assert!(Forwarded::send(&path, &line).unwrap().is_none(), "no daemon");
        let (listener, stop) = (Listener::bind(&path).unwrap(), Cancel::default());
        thread::scope(|scope| {
            scope.spawn(|| listener.serve(Arc::new(Echo), &stop));
            let sent = Forwarded::send(&path, &line).unwrap().unwrap();
            assert_eq!(sent.status().unwrap(), 2);
            stop.cancel();
            // Whoever removed the file does not keep the daemon.
            std::fs::remove_file(&path).unwrap();
            listener.wake();
        });
    }
}
