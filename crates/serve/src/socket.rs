//! The daemon's socket. A client sends a verb's request and gets its answer, or sends a command line with its
//! standard streams and gets the exit status.
//!
//! ```text
//!   client                                   daemon
//!   Request: verb and its request,   ----->  identifies the client, carries it out
//!            cwd, environment
//!            + standard input and output, opened files (SCM_RIGHTS)
//!                                    <-----  notes, progress, parts; answer or failure; exit status
//!
//!   Request: argv, cwd, environment  ----->  identifies the client, runs the command on these streams
//!            + stdin, stdout, stderr (SCM_RIGHTS)
//!   Cancel (Ctrl-C), or end of stream ---->  cancels it
//!                                    <-----  output and messages (`attendant`), then the exit status
//! ```
//!
//! Idea: the command's own streams travel to the daemon as descriptors. So output, messages, terminals, pipes
//! and `Broken pipe` behave as if the command ran alone, and the socket copies nothing. This holds for root
//! and the daemon's user; of other users' streams, the daemon uses standard input only.
//!
//! Value verbs (`cenote_control::table`) arrive as requests; the others are still command lines.
//!
//! Layout of a request: length (4 bytes, little endian), then JSON; of an answer: `answers`. Source:
//! `docs/protocol.md`.
//!
//! Rights: the kernel identifies the client (`SO_PEERCRED`, `SO_PEERGROUPS`); [`Serving::run`] decides its
//! rights.
//!
//! Limits: a command that never ends keeps its seat, so each user gets only some of the seats ([`Crowd`]). A
//! client must send its request promptly, and a small one unless it is trusted. If the system has no
//! descriptors or threads, the seat is returned, and the next client waits.
//!
//! Locking: only the seats are shared; each connection has its own thread and attendant.

mod answers;
mod attendant;
pub mod console;
mod groups;
mod link;
mod replies;

use std::fs::File;
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
use self::attendant::Attendant;
pub use self::link::Link;
pub use self::replies::Replies;
use crate::listen::{Crowd, stranger};
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
/// Refusal when no seat is free.
const NO_SEAT: &str = "too many commands are under way; try again when one has ended";
/// Commands expect a main thread's stack; unused pages cost no memory.
const STACK_BYTES: usize = 32 << 20;
/// Raised when requests change.
const VERSION: u32 = 4;
/// Files of a verb's request. Only root and the daemon's user may send any.
const FILES_MAX: u32 = 64 << 10;
/// Files per message; Linux allows 253 (`SCM_MAX_FD`).
const FILES_AT_ONCE: usize = 128;

/// A request and its context.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommandLine {
    version: u32,
    /// A verb's request; none: a command line.
    pub asking: Option<Asking>,
    /// The program's name and arguments.
    pub argv: Vec<Vec<u8>>,
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Environment variables used by commands.
    pub env: Vec<(String, Vec<u8>)>,
    /// Sizes of standard output and error if they are terminals.
    pub screens: Screens,
    /// Number of files sent for the verb. Their descriptors follow.
    #[serde(default)]
    files: u32,
}

/// Columns and rows of standard output and standard error; none: no terminal.
pub type Screens = [Option<(u16, u16)>; 2];

impl CommandLine {
    /// A command line in this protocol version.
    pub fn new(argv: Vec<Vec<u8>>, cwd: Vec<u8>, env: Vec<(String, Vec<u8>)>) -> CommandLine {
        CommandLine { version: VERSION, asking: None, argv, cwd, env, screens: [None; 2], files: 0 }
    }

    /// A verb's request instead.
    pub fn asking(self, asking: Asking) -> CommandLine {
        CommandLine { asking: Some(asking), argv: Vec::new(), ..self }
    }

    /// The same, at terminals of these sizes.
    pub fn at_screens(self, screens: Screens) -> CommandLine {
        CommandLine { screens, ..self }
    }
}

/// The client's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// User and groups.
    pub who: Credentials,
    /// Process id.
    pub pid: i32,
}

/// A command to run.
#[derive(Debug)]
pub struct Asked {
    /// Request.
    pub line: CommandLine,
    /// Client.
    pub peer: Peer,
    /// Its standard input, output and error.
    pub streams: [OwnedFd; 3],
    /// Files opened by the client.
    pub files: Vec<OwnedFd>,
    /// The client copies output and messages to its streams, which may be terminals.
    pub is_carried: bool,
    /// Set when the client interrupts or disconnects.
    pub cancel: Cancel,
}

/// Runs commands and verbs.
pub trait Serving: Send + Sync + 'static {
    /// Runs a command; returns its exit status.
    fn run(&self, asked: Asked) -> u8;

    /// Runs a verb; returns its exit status. Messages go to `replies`, not to the streams.
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
        let seats = Crowd::sharing(SEATS, SEATS_KEPT, SEATS_OF_ONE_USER);
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
            let serving = serving.clone();
            let answer = move || {
                answer(&stream, &*serving).ok();
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
pub fn answer(stream: &UnixStream, serving: &impl Serving) -> io::Result<()> {
    let peer = sockopt::socket_peercred(stream)?;
    let is_trusted = is_trusted(peer.uid.as_raw());
    let bytes_max = if is_trusted { REQUEST_BYTES_MAX } else { STRANGERS_REQUEST_BYTES_MAX };
    stream.set_write_timeout(Some(Attendant::PATIENCE))?;
    let deadline = Instant::now() + REQUEST_PATIENCE;
    let received = receive(stream, bytes_max, deadline).and_then(|(line, streams)| {
        let files = receive_files(stream, line.files, is_trusted, deadline)?;
        Ok((line, streams, files))
    });
    let (mut line, mut streams, files) = received.inspect_err(|error| {
        answers::send(stream, Kind::Refused, error.to_string().as_bytes()).ok();
    })?;
    let mut gids = groups::of_peer(stream)?;
    gids.insert(0, peer.gid.as_raw());
    let who = Credentials { uid: peer.uid.as_raw(), gids };
    let peer = Peer { who, pid: peer.pid.as_raw_nonzero().get() };
    let mut outputs = Vec::new();
    let asking = line.asking.take();
    if !is_trusted && asking.is_none() {
        for (kind, stream) in [Kind::Output, Kind::Message].into_iter().zip(&mut streams[1..]) {
            let (reader, writer) = io::pipe()?;
            *stream = writer.into();
            outputs.push((kind, reader));
        }
    }
    let cancel = Cancel::default();
    let attendant = Attendant::start(stream.try_clone()?, outputs, cancel.clone())?;
    let asked = Asked { line, peer, streams, files, is_carried: !is_trusted, cancel };
    let status = match asking {
        None => serving.run(asked),
        Some(asking) => serving.carry_out(asking, asked, Replies::to(stream.try_clone()?)),
    };
    if attendant.end() {
        answers::send(stream, Kind::Status, &[status])?;
    }
    Ok(())
}

/// Descriptors come with the request's first bytes.
fn receive(
    stream: &UnixStream,
    bytes_max: u32,
    deadline: Instant,
) -> io::Result<(CommandLine, [OwnedFd; 3])> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
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
    let streams = descriptors.try_into().map_err(|_| invalid("a request comes with three streams"))?;
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
    let line: CommandLine = serde_json::from_slice(&json)
        .map_err(|error| invalid(&format!("the client is of another version: {error}")))?;
    match line.version == VERSION {
        true => Ok((line, streams)),
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

/// A command that a daemon runs for this program.
#[derive(Debug)]
pub struct Forwarded {
    stream: UnixStream,
}

impl Forwarded {
    /// Sends a command to the daemon at `path`. `Ok(None)`: no daemon.
    ///
    /// # Errors
    /// The daemon can't be reached.
    pub fn send(path: &Path, line: &CommandLine) -> Result<Option<Forwarded>, SocketError> {
        let Some(stream) = connect(path)? else { return Ok(None) };
        send(&stream, line, &[])
            .map_err(|source| SocketError::Io { path: path.display().to_string(), source })?;
        Ok(Some(Forwarded { stream }))
    }

    /// A handle to cancel the command from another thread.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn canceller(&self) -> io::Result<Canceller> {
        Ok(Canceller(File::from(OwnedFd::from(self.stream.try_clone()?))))
    }

    /// Waits for the exit status, and writes the output sent by the daemon.
    ///
    /// # Errors
    /// No exit status arrives.
    pub fn status(self) -> Result<u8, NoStatus> {
        loop {
            match answers::receive(&self.stream).map_err(|_| NoStatus::Ended)? {
                (Kind::Status, status) => return status.first().copied().ok_or(NoStatus::Ended),
                (Kind::Output, bytes) => {
                    let mut out = io::stdout().lock();
                    out.write_all(&bytes).and_then(|()| out.flush()).map_err(NoStatus::Output)?;
                }
                (Kind::Message, bytes) => io::stderr().write_all(&bytes).unwrap_or_default(),
                (Kind::Refused, why) => {
                    return Err(NoStatus::Refused(String::from_utf8_lossy(&why).into_owned()));
                }
                // Only for verbs.
                (Kind::Told | Kind::Answer | Kind::Failed | Kind::Part, _) => {}
            }
        }
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

fn send(stream: &UnixStream, line: &CommandLine, files: &[OwnedFd]) -> io::Result<()> {
    let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
    let json = serde_json::to_vec(&CommandLine { files: count, ..line.clone() })?;
    let length = (json.len() as u32).to_le_bytes();
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
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

/// Why a forwarded command has no exit status.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum NoStatus {
    #[error("the daemon ended before the command was done")]
    Ended,
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Output(io::Error),
}

/// Cancels a forwarded command.
#[derive(Debug)]
pub struct Canceller(File);

impl Canceller {
    /// Requests cancellation.
    pub fn cancel(&self) {
        (&self.0).write_all(&[1]).ok();
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
        fn run(&self, asked: Asked) -> u8 {
            let [_, out, _] = asked.streams;
            let text = asked.line.argv.concat();
            File::from(out).write_all(&text).unwrap();
            asked.line.argv.len() as u8
        }

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
            // Removing the file does not keep the daemon from stopping.
            std::fs::remove_file(&path).unwrap();
            listener.wake();
        });
    }

    /// Stores messages.
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
        let here = CommandLine::new(Vec::new(), b"/".to_vec(), Vec::new());
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
                link.ask(&asking, &caller)
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
