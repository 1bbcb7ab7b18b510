//! The caller of a verb: identity, location, rights and console.
//!
//! Idea: rights fail closed. A caller gets its [`Rights`] at creation from the code that checked the other
//! end of the connection, never from a thread or process.
//!
//! Locking: none here; a [`Console`] may be called from any thread.

pub(crate) mod pipe;
pub(crate) mod progress;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_dataset::Credentials;
use cenote_device::Place;
use cenote_host::cancel::Cancel;
use tokio::signal::unix::{SignalKind, signal};

use crate::error::ControlError;
use crate::parts::{Part, Taker};

/// A caller's rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Everything: root, the daemon's user, or the user of this program itself.
    All,
    /// Whatever changes nothing and shows no file contents: [`crate::Verb::only_looks`].
    Look,
    /// Public information, and rights delegated by `zfs allow`.
    Delegated,
}

/// The caller of a verb.
#[derive(Clone)]
pub struct Caller {
    /// User and groups.
    pub who: Credentials,
    /// Rights of the caller.
    pub rights: Rights,
    /// Console.
    pub console: Arc<dyn Console>,
    /// The daemon's client; none: this program's own user.
    client: Option<Arc<Client>>,
    /// Destination of answer parts; none: they are dropped.
    parts: Option<Taker>,
    files: Arc<[OwnedFd]>,
}

struct Client {
    cwd: PathBuf,
    env: Vec<(String, Vec<u8>)>,
    cancel: Cancel,
}

impl Caller {
    /// The user of this program.
    pub fn own(console: Arc<dyn Console>) -> Caller {
        let uid = rustix::process::getuid().as_raw();
        let who = Credentials { uid, gids: Vec::new() };
        Caller { who, rights: Rights::All, console, client: None, parts: None, files: Arc::new([]) }
    }

    /// A client of the daemon: its directory, some environment variables, and its stop signal.
    pub fn client(
        who: Credentials,
        rights: Rights,
        console: Arc<dyn Console>,
        cwd: PathBuf,
        env: Vec<(String, Vec<u8>)>,
        cancel: Cancel,
    ) -> Caller {
        let client = Some(Arc::new(Client { cwd, env, cancel }));
        Caller { who, rights, console, client, parts: None, files: Arc::new([]) }
    }

    /// The same, with parts of answers going to `taker`.
    pub fn taking(self, taker: Taker) -> Caller {
        Caller { parts: Some(taker), ..self }
    }

    /// The same, with files opened by the caller.
    pub fn bringing(self, files: Vec<OwnedFd>) -> Caller {
        Caller { files: files.into(), ..self }
    }

    /// Files opened by the caller.
    pub fn files(&self) -> &[OwnedFd] {
        &self.files
    }

    /// One of its files.
    ///
    /// # Errors
    /// No such index; no descriptors left.
    pub fn file(&self, at: usize) -> Result<OwnedFd, ControlError> {
        let missing = || ControlError::Usage(format!("the request came without its file {at}"));
        let file = self.files.get(at).ok_or_else(missing)?;
        file.try_clone().map_err(ControlError::io(format!("file {at} of the request")))
    }

    /// Gives the caller a part of the answer. Blocks until taken.
    ///
    /// # Errors
    /// The caller takes no more: the verb must end.
    pub fn give(&self, part: Part) -> Result<(), ControlError> {
        self.parts.as_ref().map_or(Ok(()), |taker| taker.take(part))
    }

    /// Encodes a part for [`Caller::give`], so that a verb's workers can encode in parallel.
    ///
    /// # Errors
    /// The part has no JSON form.
    pub fn ready(&self, part: Part) -> Result<Part, ControlError> {
        match &self.parts {
            Some(taker) => taker.ready(part),
            None => Ok(part),
        }
    }

    /// Whether it has all rights.
    pub fn may_do_all(&self) -> bool {
        self.rights == Rights::All
    }

    /// The credentials of a caller limited to delegated rights.
    pub fn delegated(&self) -> Option<&Credentials> {
        (self.rights == Rights::Delegated).then_some(&self.who)
    }

    /// Resolves a path relative to the caller's directory.
    pub fn local(&self, path: &Path) -> PathBuf {
        self.client.as_ref().map_or_else(|| path.to_owned(), |client| client.cwd.join(path))
    }

    /// Resolves the place of a device; a path is relative to the caller's directory.
    ///
    /// # Errors
    /// A malformed address.
    pub fn place(&self, typed: &Path) -> Result<Place, ControlError> {
        match Place::typed(typed).map_err(|error| ControlError::Usage(error.to_string()))? {
            Place::Path(path) => Ok(Place::Path(self.local(&path))),
            remote => Ok(remote),
        }
    }

    /// An environment variable of the caller.
    pub fn variable(&self, name: &str) -> Option<OsString> {
        let Some(client) = &self.client else { return std::env::var_os(name) };
        let (_, value) = client.env.iter().find(|(other, _)| other == name)?;
        Some(OsString::from_vec(value.clone()))
    }

    /// Sends a note.
    pub fn note(&self, text: impl Into<String>) {
        self.console.note(Note::Said(text.into()));
    }

    /// Sends a note in OpenZFS's wording.
    pub fn note_bare(&self, text: impl Into<String>) {
        self.console.note(Note::Bare(text.into()));
    }

    /// Reports an error that does not end the verb, prefixed with the name it concerns.
    pub fn tell(&self, name: &str, error: &ControlError) -> crate::Outcome {
        let outcome = error.outcome();
        self.console.note(Note::Failed { text: error.text_about(name), status: outcome.status() });
        outcome
    }

    /// The same without advice, for verbs that give it themselves.
    pub fn tell_cause(&self, name: &str, error: &ControlError) -> crate::Outcome {
        let outcome = error.outcome();
        self.console.note(Note::Failed { text: error.cause_about(name), status: outcome.status() });
        outcome
    }

    /// Waits for the caller to stop the verb: Ctrl-C, or the signals of `kill` and service managers.
    pub async fn interrupted(&self) {
        if let Some(client) = &self.client {
            let _heeding = client.cancel.heed();
            return client.cancel.cancelled().await;
        }
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
        let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
        if signals.is_empty() {
            // Without a signal handler, an interrupt ends the program as usual.
            std::future::pending::<()>().await;
        }
        futures::future::select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
    }

    /// Runs `work` to its end; an interrupt drops it, and `left` describes the state it leaves.
    ///
    /// # Errors
    /// Errors of the work; an interrupt.
    pub async fn unless_interrupted<T>(
        &self,
        work: impl Future<Output = Result<T, ControlError>>,
        left: impl FnOnce() -> String,
    ) -> Result<T, ControlError> {
        tokio::select! {
            biased; // handle interrupts before the work begins
            () = self.interrupted() => Err(ControlError::Stopped(format!("interrupted; {}", left()))),
            done = work => done,
        }
    }

    /// Runs a client's verb or a part of it. If it is cancelled and does not end by itself, it is dropped.
    ///
    /// # Errors
    /// Errors of the work; cancellation.
    pub async fn until_cancelled<T>(
        &self,
        work: impl Future<Output = Result<T, ControlError>>,
    ) -> Result<T, ControlError> {
        let Some(client) = &self.client else { return work.await };
        let cancel = &client.cancel;
        let around = cancel.heeding();
        let cancelled = async {
            cancel.cancelled().await;
            if cancel.heeding() > around {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            () = cancelled => Err(ControlError::Stopped("interrupted".into())),
        }
    }

    /// Runs steps that belong together: a client's verb is not dropped between them, even if the client
    /// disconnects.
    pub async fn whole<T>(&self, steps: impl Future<Output = T>) -> T {
        let _heeding = self.client.as_ref().map(|client| client.cancel.heed());
        steps.await
    }
}

/// A running verb's channel to its caller.
pub trait Console: Send + Sync {
    /// Takes a note. A note that can't be written is lost: reporting never ends the work.
    fn note(&self, note: Note);

    /// Shows progress; none: the work ended.
    fn progress(&self, now: Option<Progress<'_>>);

    /// Shows the files seen so far; none: the work ended.
    fn counted(&self, _now: Option<CountedFiles<'_>>) {}

    /// Standard output, for a verb's stream.
    ///
    /// # Errors
    /// The caller has none.
    fn output(&self) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Standard input, for a verb's stream.
    ///
    /// # Errors
    /// The caller has none.
    fn stream(&self) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Source of secrets.
    fn input(&self) -> Input<'_>;

    /// Prompts at the terminal without echo. None: no prompt is possible.
    fn prompt(&self, text: &str) -> Option<String>;
}

/// A source of secrets.
pub enum Input<'a> {
    /// None.
    None,
    /// Terminal ([`Console::prompt`]).
    Terminal,
    /// A pipe; unread input stays in it.
    Pipe(Box<dyn BufRead + 'a>),
}

/// A message to the caller of a running verb.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Note {
    /// In our words.
    Said(String),
    /// In OpenZFS's words.
    Bare(String),
    /// A line of the verb's own output.
    Line(String),
    /// A part of the work failed; alone it would end with this status.
    Failed {
        /// The failure and its cause.
        text: String,
        /// See [`crate::Outcome::status`].
        status: u8,
    },
}

/// Progress of long work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Operation.
    pub what: &'a str,
    /// Bytes done.
    pub done_bytes: u64,
    /// Total bytes.
    pub total_bytes: u64,
}

/// Files seen, of an unknown total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedFiles<'a> {
    /// Where.
    pub what: &'a str,
    /// How many.
    pub files: u64,
}

/// A console without output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Console for Silent {
    fn note(&self, _note: Note) {}

    fn progress(&self, _now: Option<Progress<'_>>) {}

    fn input(&self) -> Input<'_> {
        Input::None
    }

    fn prompt(&self, _text: &str) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use cenote_runtime::Runtime;

    use super::*;

    #[test]
    fn what_follows_is_done_though_the_client_has_gone() {
        let (cancel, who) = (Cancel::default(), Credentials { uid: 0, gids: Vec::new() });
        let caller =
            Caller::client(who, Rights::All, Arc::new(Silent), "/".into(), Vec::new(), cancel.clone());
        let mut followed = false;
        let endless = async {
            cancel.cancel();
            std::future::pending::<Result<(), ControlError>>().await
        };
        let verb = caller.until_cancelled(caller.whole(async {
            let done = caller.until_cancelled(endless).await;
            tokio::task::yield_now().await;
            followed = true;
            done
        }));
        let done = Runtime::real(Some(1)).block_on(verb);
        assert!(matches!(done, Err(ControlError::Stopped(_))));
        assert!(followed);
    }
}
