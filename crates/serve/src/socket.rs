//! The daemon's socket: a client sends a verb's request and gets its answer.
//!
//! ```text
//!   client                                   daemon
//!   Request: verb and its request,   ----->  identifies the client, carries it out
//!            cwd, environment
//!            + standard input and output, opened files (SCM_RIGHTS)
//!                                    <-----  notes, progress, parts; answer or failure; exit status
//!   Cancel (Ctrl-C), or end of stream ---->  cancels it
//! ```
//!
//! Idea: the client's standard input and output travel to the daemon as descriptors. So streams of `zfs send`
//! and `receive`, terminals, pipes and `Broken pipe` behave as if the verb ran in the client, and the socket
//! copies nothing.
//!
//! Layout of a request: length (4 bytes, little endian), then JSON; of an answer: `answers`. Source:
//! `docs/protocol.md`.
//!
//! Rights: the kernel identifies the client (`SO_PEERCRED`, `SO_PEERGROUPS`); [`Serving::carry_out`]
//! decides its rights.
//!
//! Limits: a command that never ends keeps its seat, so each user gets only some of the seats
//! ([`ClientLimit`]). A client must send its request promptly, and a small one unless it is trusted. If the
//! system has no descriptors or threads, the seat is returned, and the next client waits.
//!
//! Locking: only the seats and the attendants are shared; each connection has its own thread.

mod answers;
mod attendant;
pub mod console;
mod groups;
mod link;
mod replies;

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cenote_control::remote::Asking;
use cenote_control::{Caller, Session};
use cenote_dataset::Credentials;
use cenote_disk::Origin;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, recvmsg, sendmsg, shutdown, sockopt,
};
use serde::{Deserialize, Serialize};

use self::answers::Kind;
pub use self::attendant::Attendants;
pub use self::link::Link;
pub use self::replies::Replies;
use crate::listen::{ClientLimit, stranger};
use cenote_host::cancel::Cancel;
use cenote_host::own::is_trusted;

/// Linux limits argument lists to 2 MiB; JSON takes up to four characters per byte.
const REQUEST_BYTES_MAX: u32 = 16 << 20;
/// For untrusted users. Parsed, it is at most 15 times as large.
const STRANGERS_REQUEST_BYTES_MAX: u32 = 64 << 10;
/// Concurrent commands...
const SEATS: usize = 256;
/// ...of those reserved for root and the daemon's user...
const SEATS_KEPT: usize = 64;
/// ...and the share of any other user.
const SEATS_OF_ONE_USER: usize = 64;
/// Time limit for sending a request.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// Wait after running out of descriptors or threads.
const BREATHER: Duration = Duration::from_millis(100);
const NO_SEAT: &str = "too many commands are under way; try again when one has ended";
/// Commands expect a main thread's stack; unused pages cost no memory.
const STACK_BYTES: usize = 32 << 20;
/// Raised when requests change.
const VERSION: u32 = 5;
/// Files of a verb's request. Only root and the daemon's user may send any.
const FILES_MAX: u32 = 64 << 10;
/// Files per message; Linux allows 253 (`SCM_MAX_FD`).
const FILES_AT_ONCE: usize = 128;

/// A request and its context.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    version: u32,
    /// The verb and its request.
    pub asking: Asking,
    /// The client's context.
    pub here: Here,
    /// Number of files sent for the verb. Their descriptors follow.
    #[serde(default)]
    files: u32,
}

/// A client's context.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Here {
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Environment variables used by verbs.
    pub env: Vec<(String, Vec<u8>)>,
    /// Its standard error is a terminal, where it can be asked for secrets.
    pub has_screen: bool,
}

/// The client's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// User and groups.
    pub who: Credentials,
    /// Process id.
    pub pid: i32,
}

/// A client's side of a verb.
#[derive(Debug)]
pub struct Asked {
    /// Context.
    pub here: Here,
    /// Client.
    pub peer: Peer,
    /// Its standard input and output.
    pub streams: [OwnedFd; 2],
    /// Files opened by the client.
    pub files: Vec<OwnedFd>,
    /// Set when the client interrupts or disconnects.
    pub cancel: Cancel,
}

/// Runs verbs.
pub trait Serving: Send + Sync + 'static {
    /// Runs a verb for a client; returns its exit status.
    fn carry_out(&self, asking: Asking, asked: Asked, replies: Replies) -> u8;

    /// The session of a verb called by a part of the daemon itself. With `sees_all`, its pools include
    /// changes not yet on disk.
    fn session(&self, caller: Caller, command: String, sees_all: bool) -> Session;
}

/// Runs a command on its own thread.
///
/// # Errors
/// The system has no threads left.
pub fn on_command_thread(command: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("cenote-command".into()).stack_size(STACK_BYTES).spawn(command).map(drop)
}

/// Why daemon or socket are unavailable.
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

/// A daemon's listening socket, removed on drop.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`. Replaces the socket of a dead daemon.
    ///
    /// # Errors
    /// A daemon answers there; another file is there; the folder can't be made.
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
        // Every user may connect; the daemon checks rights.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).map_err(io)?;
        Ok(Listener { socket, path: path.to_owned() })
    }

    /// Answers commands until `stop` is cancelled.
    pub fn serve(&self, serving: Arc<impl Serving>, stop: &Cancel) {
        let seats = ClientLimit::sharing(SEATS, SEATS_KEPT, SEATS_OF_ONE_USER);
        let attendants = loop {
            match Attendants::start() {
                Ok(attendants) => break Arc::new(attendants),
                Err(_) if stop.is_cancelled() => return,
                Err(_) => thread::sleep(BREATHER),
            }
        };
        while !stop.is_cancelled() {
            let stream = match self.socket.accept() {
                Ok((stream, _)) => stream,
                Err(_) if stop.is_cancelled() => return,
                Err(_) => {
                    thread::sleep(BREATHER);
                    continue;
                }
            };
            if stop.is_cancelled() {
                return;
            }
            let Ok(uid) = sockopt::socket_peercred(&stream).map(|peer| peer.uid.as_raw()) else { continue };
            let Some(seat) = seats.enter(stranger(Origin::User(uid))) else {
                refuse(&stream);
                continue;
            };
            let (serving, attendants) = (serving.clone(), attendants.clone());
            let answer = move || {
                answer(&stream, &*serving, &attendants).ok();
                drop(seat);
            };
            if on_command_thread(answer).is_err() {
                thread::sleep(BREATHER);
            }
        }
    }

    /// Wakes [`Listener::serve`] to check `stop`, even if the socket file has been removed.
    pub fn wake(&self) {
        shutdown(&self.socket, Shutdown::Both).ok();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).ok();
    }
}

/// Tells a client that no seat is free, if that does not block.
fn refuse(stream: &UnixStream) {
    if stream.set_nonblocking(true).is_ok() {
        answers::send(stream, Kind::Refused, NO_SEAT.as_bytes()).ok();
    }
}

/// Serves one connection: one command.
///
/// # Errors
/// The client sends no request or disconnects.
pub fn answer(stream: &UnixStream, serving: &impl Serving, attendants: &Attendants) -> io::Result<()> {
    let peer = sockopt::socket_peercred(stream)?;
    let is_trusted = is_trusted(peer.uid.as_raw());
    let bytes_max = if is_trusted { REQUEST_BYTES_MAX } else { STRANGERS_REQUEST_BYTES_MAX };
    stream.set_write_timeout(Some(attendant::PATIENCE))?;
    let deadline = Instant::now() + REQUEST_PATIENCE;
    let received = receive(stream, bytes_max, deadline).and_then(|(request, streams)| {
        let files = receive_files(stream, request.files, is_trusted, deadline)?;
        Ok((request, streams, files))
    });
    let (Request { asking, here, .. }, streams, files) = received.inspect_err(|error| {
        answers::send(stream, Kind::Refused, error.to_string().as_bytes()).ok();
    })?;
    let mut gids = groups::of_peer(stream)?;
    gids.insert(0, peer.gid.as_raw());
    let who = Credentials { uid: peer.uid.as_raw(), gids };
    let peer = Peer { who, pid: peer.pid.as_raw_nonzero().get() };
    let cancel = Cancel::default();
    let attended = attendants.attend(stream.try_clone()?, cancel.clone())?;
    let asked = Asked { here, peer, streams, files, cancel };
    let status = serving.carry_out(asking, asked, Replies::to(stream.try_clone()?));
    if attended.end() {
        answers::send(stream, Kind::Status, &[status])?;
    }
    Ok(())
}

/// Descriptors come with the request's first bytes.
fn receive(stream: &UnixStream, bytes_max: u32, deadline: Instant) -> io::Result<(Request, [OwnedFd; 2])> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    wait_until(stream, deadline)?;
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut length)], &mut ancillary, flags)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    let length = u32::from_le_bytes(length);
    if got.bytes != 4 || length > REQUEST_BYTES_MAX {
        return Err(invalid("not a request"));
    }
    if length > bytes_max {
        return Err(invalid("the command is too long: only root and the daemon's user may send that much"));
    }
    let streams = descriptors.try_into().map_err(|_| invalid("a request comes with two streams"))?;
    let mut json = vec![0; length as usize];
    let mut rest = &mut json[..];
    while !rest.is_empty() {
        wait_until(stream, deadline)?;
        match (&*stream).read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => rest = &mut rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let request: Request = serde_json::from_slice(&json)
        .map_err(|error| invalid(&format!("the client is of another version: {error}")))?;
    match request.version == VERSION {
        true => Ok((request, streams)),
        false => Err(invalid("the client is of another version")),
    }
}

/// Each batch of descriptors comes with one byte.
fn receive_files(
    stream: &UnixStream,
    count: u32,
    is_trusted: bool,
    deadline: Instant,
) -> io::Result<Vec<OwnedFd>> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    if count > 0 && !is_trusted {
        return Err(invalid("only root and the daemon's user may send files"));
    }
    if count > FILES_MAX {
        return Err(invalid("a request comes with 65,536 files at most"));
    }
    let mut files = Vec::new();
    while files.len() < count as usize {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_AT_ONCE))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        wait_until(stream, deadline)?;
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(stream, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, flags)?;
        let before = files.len();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
        // The limit of descriptors is reached, or none was sent.
        if got.bytes == 0 || files.len() == before || files.len() > count as usize {
            return Err(invalid("the files of the request did not come: too many may be open"));
        }
    }
    Ok(files)
}

fn send_files(stream: &UnixStream, files: &[OwnedFd]) -> io::Result<()> {
    for group in files.chunks(FILES_AT_ONCE) {
        let group: Vec<_> = group.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_AT_ONCE))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&group));
        sendmsg(stream, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

fn wait_until(stream: &UnixStream, deadline: Instant) -> io::Result<()> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => stream.set_read_timeout(Some(left)),
    }
}

fn connect(path: &Path) -> Result<Option<UnixStream>, SocketError> {
    match UnixStream::connect(path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(source) => Err(SocketError::Io { path: path.display().to_string(), source }),
    }
}

fn send(stream: &UnixStream, asking: &Asking, here: &Here, files: &[OwnedFd]) -> io::Result<()> {
    let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
    let (asking, here) = (asking.clone(), here.clone());
    let json = serde_json::to_vec(&Request { version: VERSION, asking, here, files: count })?;
    let length = (json.len() as u32).to_le_bytes();
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let streams = [stdin.as_fd(), stdout.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&streams));
    let sent = sendmsg(stream, &[IoSlice::new(&length)], &mut ancillary, SendFlags::NOSIGNAL);
    let sent = sent.map_err(io::Error::from).and_then(|_| (&mut { stream }).write_all(&json));
    match sent.and_then(|()| send_files(stream, files)) {
        // Refused unread: the answer gives the reason.
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            Ok(())
        }
        sent => sent,
    }
}

#[cfg(test)]
mod tests {
    use cenote_control::remote::{Daemon, Failure, Told};
    use cenote_control::{Caller, Console, Input, Note, Outcome};
    use parking_lot::Mutex;
    use serde_json::value::RawValue;

    use super::*;

    struct Echo;

    impl Serving for Echo {
        fn carry_out(&self, asking: Asking, _asked: Asked, replies: Replies) -> u8 {
            replies.tell(&Told::Note(Note::Said(asking.command)));
            match asking.verb.as_str() {
                "echo" => replies.answer(asking.request.get().as_bytes()),
                verb => replies.fail(&Failure { text: format!("no {verb}"), status: 2 }),
            }
            0
        }

        fn session(&self, _: Caller, _: String, _: bool) -> Session {
            unreachable!("it has no pools")
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

    #[derive(Default)]
    struct Kept(Mutex<Vec<Note>>);

    impl Console for Kept {
        fn note(&self, note: Note) {
            self.0.lock().push(note);
        }

        fn progress(&self, _now: Option<cenote_control::Progress<'_>>) {}

        fn input(&self) -> Input<'_> {
            Input::None
        }

        fn prompt(&self, _text: &str) -> Option<String> {
            None
        }
    }

    #[test]
    fn requests_go_out_and_notes_answers_and_failures_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sock");
        let here = Here::default();
        assert!(Link::open(&path, here.clone()).unwrap().is_none(), "no daemon");
        let (listener, stop) = (Listener::bind(&path).unwrap(), Cancel::default());
        thread::scope(|scope| {
            scope.spawn(|| listener.serve(Arc::new(Echo), &stop));
            let link = Link::open(&path, here).unwrap().unwrap();
            let kept = Arc::new(Kept::default());
            let caller = Caller::own(kept.clone());
            let ask = |verb: &str, value: &serde_json::Value| {
                let request = RawValue::from_string(value.to_string()).unwrap();
                let asking =
                    Asking { verb: verb.into(), request, keys: Default::default(), command: "it".into() };
                let mut answering = link.ask(&asking, &caller)?;
                // It is complete at once or later.
                let soon = answering.wait(&caller, Some(Duration::ZERO))?;
                soon.map_or_else(|| answering.wait(&caller, None).map(Option::unwrap), Ok)
            };
            let long = serde_json::json!(vec!["x"; 100_000]);
            let (answer, outcome) = ask("echo", &long).unwrap();
            assert_eq!(
                (serde_json::from_slice::<serde_json::Value>(&answer).unwrap(), outcome),
                (long, Outcome::Done)
            );
            // On another connection.
            let failed = ask("sing", &serde_json::json!({})).unwrap_err();
            assert_eq!((failed.to_string(), failed.outcome()), ("no sing".into(), Outcome::Misused));
            assert_eq!(*kept.0.lock(), [Note::Said("it".into()), Note::Said("it".into())]);
            stop.cancel();
            std::fs::remove_file(&path).unwrap();
            listener.wake();
        });
    }
}
