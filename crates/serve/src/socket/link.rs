//! A client's end of the socket, for verbs: sends requests to the daemon and receives answers.
//!
//! Locking: one mutex, for the connection that [`Link::cancel`] writes to; held for a clone or a byte.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_control::caller::CountedFiles;
use cenote_control::parts::Part;
use cenote_control::remote::{Answering, Asking, Daemon, Failure, Met, Told};
use cenote_control::table::Json;
use cenote_control::{Caller, ControlError, Outcome, Progress};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;

use super::answers::{self, CONTENT_BYTES_MAX, Kind};
use super::replies::{ANSWER_BYTES_MAX, PART_BYTES_MAX};
use super::{Here, SocketError, connect, send};

/// A daemon that answers at a socket.
pub struct Link {
    path: PathBuf,
    /// This program's context.
    here: Here,
    /// The connection, before its first request.
    first: Mutex<Option<UnixStream>>,
    /// The connection of the running verb.
    current: Arc<Mutex<Option<UnixStream>>>,
}

impl Link {
    /// Connects to the daemon at `path`. `Ok(None)`: no daemon.
    ///
    /// # Errors
    /// The daemon can't be reached.
    pub fn open(path: &Path, here: Here) -> Result<Option<Link>, SocketError> {
        let Some(stream) = connect(path)? else { return Ok(None) };
        let (first, current) = (Mutex::new(Some(stream)), Arc::default());
        Ok(Some(Link { path: path.to_owned(), here, first, current }))
    }
}

impl Daemon for Link {
    fn ask(&self, asking: &Asking, caller: &Caller) -> Result<Box<dyn Answering>, ControlError> {
        let first = self.first.lock().take();
        let stream = match first {
            Some(stream) => stream,
            None => match connect(&self.path).map_err(|error| refused(&error))? {
                Some(stream) => stream,
                None => return Err(refused(&"it has ended")),
            },
        };
        *self.current.lock() = stream.try_clone().ok();
        let current = self.current.clone();
        let exchange = Exchange { stream, current, answer: Vec::new(), part: Vec::new(), failed: None };
        send(&exchange.stream, asking, &self.here, caller.files()).map_err(|error| refused(&error))?;
        Ok(Box::new(exchange))
    }

    fn cancel(&self) {
        if let Some(mut stream) = self.current.lock().as_ref() {
            stream.write_all(&[1]).ok();
        }
    }
}

/// An answer under way.
struct Exchange {
    stream: UnixStream,
    /// The link's, emptied at the end.
    current: Arc<Mutex<Option<UnixStream>>>,
    answer: Vec<u8>,
    part: Vec<u8>,
    failed: Option<Failure>,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        *self.current.lock() = None;
    }
}

impl Answering for Exchange {
    fn wait(&mut self, caller: &Caller, patience: Option<Duration>) -> Result<Option<Json>, ControlError> {
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            if until.is_some_and(|until| !self.is_readable(until)) {
                return Ok(None);
            }
            if let Some(answer) = self.take_frame(caller)? {
                return Ok(Some(answer));
            }
        }
    }
}

impl Exchange {
    /// Whether a frame begins before `until`.
    fn is_readable(&self, until: Instant) -> bool {
        let Ok(left) = Timespec::try_from(until.saturating_duration_since(Instant::now())) else {
            return false;
        };
        poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&left)).is_ok_and(|ready| ready > 0)
    }

    /// Receives a frame; the last one gives the answer.
    fn take_frame(&mut self, caller: &Caller) -> Result<Option<Json>, ControlError> {
        let (kind, content) = answers::receive(&self.stream).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                ControlError::Refused("the daemon ended before the command was done".into())
            }
            _ => refused(&error),
        })?;
        match kind {
            Kind::Answer if self.answer.len() + content.len() > ANSWER_BYTES_MAX => {
                return Err(refused(&"its answer is longer than 1 GiB"));
            }
            Kind::Answer => self.answer.extend(content),
            Kind::Part if self.part.len() + content.len() > PART_BYTES_MAX => {
                return Err(refused(&"a part of its answer is longer than 64 MiB"));
            }
            Kind::Part => {
                let is_last = content.len() < CONTENT_BYTES_MAX;
                self.part.extend(content);
                if is_last {
                    caller.give(Part::of_json(std::mem::take(&mut self.part)))?;
                }
            }
            Kind::Told => tell(caller, parse(&content)?),
            Kind::Failed => self.failed = Some(parse(&content)?),
            // The prompt for a secret.
            Kind::Message => io::stderr().write_all(&content).unwrap_or_default(),
            Kind::Refused => return Err(refused(&String::from_utf8_lossy(&content))),
            Kind::Status => {
                let status = content.first().copied().unwrap_or(1);
                return match self.failed.take() {
                    Some(Failure { text, status }) => {
                        Err(ControlError::Told { text, outcome: Outcome::of_status(status) })
                    }
                    None => Ok(Some((std::mem::take(&mut self.answer), Outcome::of_status(status)))),
                };
            }
        }
        Ok(None)
    }
}

fn tell(caller: &Caller, told: Told) {
    match told {
        Told::Note(note) => caller.console.note(note),
        Told::Counted(met) => {
            let met = met.as_ref().map(|Met { what, files }| CountedFiles { what, files: *files });
            caller.console.counted(met);
        }
        Told::Progress(None) => caller.console.progress(None),
        Told::Progress(Some(share)) => caller.console.progress(Some(Progress {
            what: &share.what,
            done_bytes: share.done_bytes,
            total_bytes: share.total_bytes,
        })),
    }
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, ControlError> {
    serde_json::from_slice(json).map_err(|error| refused(&format!("it is of another version: {error}")))
}

fn refused(why: &dyn std::fmt::Display) -> ControlError {
    ControlError::Refused(format!("the daemon: {why}"))
}
