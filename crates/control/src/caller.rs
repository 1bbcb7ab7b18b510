//! Who asks for something, from where, and how they are spoken to meanwhile.
//!
//! Idea: rights fail closed. A caller has [`Rights`] from the beginning, given by whoever has looked at the
//! other end of a connection, and no part of this crate asks a thread or a process who it works for.
//!
//! Locking: none here; a [`Console`] may be called from any thread.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_dataset::Credentials;
use cenote_host::cancel::Cancel;
use tokio::signal::unix::{SignalKind, signal};

use crate::error::ControlError;
use crate::parts::{Part, Taker};

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Everything: root, the daemon's user, or whoever runs a program of their own.
    All,
    /// What `zfs allow` delegates, and what everybody may look at.
    Delegated,
}

/// Who asks.
#[derive(Clone)]
pub struct Caller {
    /// User and groups.
    pub who: Credentials,
    /// What they may do.
    pub rights: Rights,
    /// How they are spoken to.
    pub console: Arc<dyn Console>,
    /// Where a client of the daemon is; none: the caller is this program's own user.
    client: Option<Arc<Client>>,
    /// Where parts of answers go; none: nowhere.
    parts: Option<Taker>,
    /// Files that the caller has opened.
    files: Arc<[OwnedFd]>,
}

/// A caller in another process.
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

    /// A client of the daemon: where it is, variables of its environment, and by what it stops its verb.
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

    /// The same, with files that it has opened.
    pub fn bringing(self, files: Vec<OwnedFd>) -> Caller {
        Caller { files: files.into(), ..self }
    }

    /// The files that the caller has opened.
    pub fn files(&self) -> &[OwnedFd] {
        &self.files
    }

    /// One of them.
    ///
    /// # Errors
    /// There are not so many; no descriptors are left.
    pub fn file(&self, at: usize) -> Result<OwnedFd, ControlError> {
        let missing = || ControlError::Usage(format!("the request came without its file {at}"));
        let file = self.files.get(at).ok_or_else(missing)?;
        file.try_clone().map_err(ControlError::io(format!("file {at} of the request")))
    }

    /// Gives them a part of the answer. It waits until the caller has taken it.
    ///
    /// # Errors
    /// They take no more: the verb is to end.
    pub fn give(&self, part: Part) -> Result<(), ControlError> {
        self.parts.as_ref().map_or(Ok(()), |taker| taker.take(part))
    }

    /// A part in the form in which [`Caller::give`] hands it over: a verb's workers make many at a time.
    ///
    /// # Errors
    /// It has no form as JSON.
    pub fn ready(&self, part: Part) -> Result<Part, ControlError> {
        match &self.parts {
            Some(taker) => taker.ready(part),
            None => Ok(part),
        }
    }

    /// Whether they may do everything.
    pub fn may_do_all(&self) -> bool {
        self.rights == Rights::All
    }

    /// Who it is, if they may do only what was delegated.
    pub fn delegated(&self) -> Option<&Credentials> {
        (self.rights == Rights::Delegated).then_some(&self.who)
    }

    /// A file as the caller named it: relative to where they are.
    pub fn local(&self, path: &Path) -> PathBuf {
        self.client.as_ref().map_or_else(|| path.to_owned(), |client| client.cwd.join(path))
    }

    /// An environment variable of theirs.
    pub fn variable(&self, name: &str) -> Option<OsString> {
        let Some(client) = &self.client else { return std::env::var_os(name) };
        let (_, value) = client.env.iter().find(|(other, _)| other == name)?;
        Some(OsString::from_vec(value.clone()))
    }

    /// Tells them something.
    pub fn note(&self, text: impl Into<String>) {
        self.console.note(Note::Said(text.into()));
    }

    /// Tells them something as OpenZFS words it.
    pub fn note_bare(&self, text: impl Into<String>) {
        self.console.note(Note::Bare(text.into()));
    }

    /// Tells them of an error that does not end the verb, after the name of what it concerns.
    pub fn tell(&self, name: &str, error: &ControlError) -> crate::Outcome {
        let outcome = error.outcome();
        self.console.note(Note::Failed { text: error.text_about(name), status: outcome.status() });
        outcome
    }

    /// The same without advice, for verbs that give that themselves.
    pub fn tell_cause(&self, name: &str, error: &ControlError) -> crate::Outcome {
        let outcome = error.outcome();
        self.console.note(Note::Failed { text: error.cause_about(name), status: outcome.status() });
        outcome
    }

    /// Waits until they stop the verb: Ctrl-C, or the signals that `kill` and service managers send.
    pub async fn interrupted(&self) {
        if let Some(client) = &self.client {
            let _heeding = client.cancel.heed();
            return client.cancel.cancelled().await;
        }
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
        let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
        if signals.is_empty() {
            // No signal handler can be installed: an interrupt then ends the program as usual.
            std::future::pending::<()>().await;
        }
        futures::future::select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
    }

    /// Runs `work` to its end; an interrupt drops it, and `left` says what it leaves behind.
    ///
    /// # Errors
    /// Those of the work; it was interrupted.
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

    /// Runs a client's verb, or a part of it; if it is cancelled and does not end by itself, it is dropped.
    ///
    /// # Errors
    /// Those of the work; it was cancelled.
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

    /// Takes steps that belong together: a client's verb is not dropped in their midst, though the client
    /// may have gone.
    pub async fn whole<T>(&self, steps: impl Future<Output = T>) -> T {
        let _heeding = self.client.as_ref().map(|client| client.cancel.heed());
        steps.await
    }
}

/// How a verb speaks with its caller while it runs.
pub trait Console: Send + Sync {
    /// Takes in a note. One that can't be written is lost: telling never ends the work it tells of.
    fn note(&self, note: Note);

    /// Shows how far long work is; none: it has ended.
    fn progress(&self, now: Option<Progress<'_>>);

    /// Shows how many files were met so far; none: it has ended.
    fn counted(&self, _now: Option<CountedFiles<'_>>) {}

    /// Where the bytes go that a verb makes: standard output.
    ///
    /// # Errors
    /// There is none.
    fn output(&self) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Where the bytes come from that a verb takes: standard input.
    ///
    /// # Errors
    /// There is none.
    fn stream(&self) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// From where a secret can come.
    fn input(&self) -> Input<'_>;

    /// Asks at the terminal, without showing what is typed. None: it can't be asked there.
    fn prompt(&self, text: &str) -> Option<String>;
}

/// From where a secret can come.
pub enum Input<'a> {
    /// From nowhere.
    None,
    /// Somebody sits at a terminal ([`Console::prompt`]).
    Terminal,
    /// Something is piped in; what is not read stays there.
    Pipe(Box<dyn BufRead + 'a>),
}

/// What a caller is told while a verb runs.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Note {
    /// In our words.
    Said(String),
    /// In those of OpenZFS.
    Bare(String),
    /// A line of the verb's own output.
    Line(String),
    /// A part of the work failed, and would by itself end with this status.
    Failed {
        /// What failed, and why.
        text: String,
        /// As of [`crate::Outcome::status`].
        status: u8,
    },
}

/// How far long work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// What is being done.
    pub what: &'a str,
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Files that were met, of a number that is not known in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedFiles<'a> {
    /// Where.
    pub what: &'a str,
    /// How many.
    pub files: u64,
}

/// A console that nobody listens at.
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
