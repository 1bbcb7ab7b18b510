//! A verb: its request, its answer, the right that it needs.
//!
//! Idea: a request is a value with all that was asked for, and whoever has one runs it through
//! [`Session::run`]. That looks at rights, so no door can forget to; and it hands the request to a daemon, if
//! the session is that of a daemon's client, so a verb can't tell where its caller is.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{ControlError, Outcome};
use crate::parts::Taker;
use crate::permissions::{ONLY_ADMINS, Permissions};
use crate::session::Session;

/// Who may run a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Everybody: it shows what everybody may know, or waits for it.
    Nothing,
    /// Permissions that `zfs allow` gives; which, depends on what is asked for.
    Delegated,
    /// Root and the daemon's user.
    All,
}

/// Whether a verb changes nothing and shows no content of files, whatever it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// It does not.
    Always,
    /// Its words say; then it needs this.
    Sometimes(Needs),
    /// It may change something, or show content.
    Never,
}

/// Where a verb runs if there is a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// There, unless it is about disks that its caller names.
    OnOpenPools,
    /// There, always.
    InDaemon,
    /// Its words say.
    AsWordsSay,
    /// There, with a terminal, or a program around it: no other door offers it.
    AtTerminal,
}

/// A request, and how it is carried out. Both are JSON on their way to a daemon and back.
pub trait Verb: Serialize + DeserializeOwned + Send + 'static {
    /// As it is typed: `zfs wait`.
    const NAME: &'static str;
    /// Who may run it.
    const NEEDS: Needs;
    /// Whether it changes anything.
    const LOOKS: Looks;
    /// Where it runs.
    const RUNS: Runs = Runs::OnOpenPools;
    /// Whether it is to see what was done until now, though no txg on disk has it yet: files, and the
    /// history. Datasets and pools are those of the last txg.
    const SEES_ALL: bool = false;
    /// What comes of it.
    type Answer: Serialize + DeserializeOwned;

    /// What a caller needs who may not do all, if that is delegated. A verb that does not say is refused.
    ///
    /// # Errors
    /// Nobody can be given what it needs; what it concerns is not there.
    fn permissions(&self, _session: &Session) -> impl Future<Output = Result<Permissions, ControlError>> {
        async { Err(Permissions::to(Self::NAME).denied()) }
    }

    /// Carries it out. Dropped before its end, it leaves no half.
    ///
    /// # Errors
    /// As the verb says.
    fn carry_out(
        self,
        session: &Session,
    ) -> impl Future<Output = Result<Answered<Self::Answer>, ControlError>>;
}

/// A verb whose answer has parts before its end.
pub trait InParts: Verb {
    /// One of them. It has bounded size.
    type Part: Serialize + DeserializeOwned + Send + 'static;
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<T> {
    /// The answer.
    pub answer: T,
    /// The worst of what failed on the way; the caller was told of it.
    pub outcome: Outcome,
}

impl<T> From<T> for Answered<T> {
    fn from(answer: T) -> Answered<T> {
        Answered { answer, outcome: Outcome::Done }
    }
}

/// That of a verb that answers nothing.
impl From<Outcome> for Answered<()> {
    fn from(outcome: Outcome) -> Answered<()> {
        Answered { answer: (), outcome }
    }
}

impl Session {
    /// Runs a verb for the caller, here or in the daemon that holds the pools.
    ///
    /// # Errors
    /// They may not; it was interrupted; those of the verb.
    pub async fn run<V: Verb>(&self, request: V) -> Result<Answered<V::Answer>, ControlError> {
        if let Some(daemon) = self.daemon() {
            return self.ask(daemon, request).await;
        }
        let checked = async {
            match (V::NEEDS, self.caller().delegated()) {
                (_, None) | (Needs::Nothing, _) => {}
                (Needs::Delegated, Some(who)) => request.permissions(self).await?.check(who).await?,
                (Needs::All, Some(_)) => return Err(ControlError::Refused(ONLY_ADMINS.into())),
            }
            request.carry_out(self).await
        };
        self.caller().until_cancelled(checked).await
    }

    /// Runs a verb whose answer comes in parts: `take` adds each to `all`.
    ///
    /// # Errors
    /// Those of [`Session::run`], and of `take`, which end the verb.
    pub async fn run_in_parts<V: InParts, T: Send + 'static>(
        &self,
        request: V,
        all: &Arc<Mutex<T>>,
        take: fn(&mut T, V::Part) -> Result<(), ControlError>,
    ) -> Result<Answered<V::Answer>, ControlError> {
        let all = all.clone();
        let taker = Taker::of_values(move |part| take(&mut all.lock(), part.read()?));
        self.for_caller(self.caller().clone().taking(taker)).run(request).await
    }

    /// Runs a verb that works with files that the caller has opened: its request names them by their place in
    /// `files`.
    ///
    /// # Errors
    /// Those of [`Session::run`].
    pub async fn run_with_files<V: Verb>(
        &self,
        request: V,
        files: Vec<OwnedFd>,
    ) -> Result<Answered<V::Answer>, ControlError> {
        let caller = self.caller().clone().bringing(files);
        self.for_caller(caller).run(request).await
    }
}
