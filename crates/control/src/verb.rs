//! A verb: its request, its answer, and the right that it needs.
//!
//! Idea: a request is a value that contains all arguments, and [`Session::run`] runs it for every caller.
//! Rights are checked on the way, so no entry point can forget to. Request and answer travel as JSON, to the
//! daemon or to the verb's row in the table, so a verb can't tell where its caller is.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::caller::Rights;
use crate::error::{ControlError, Outcome};
use crate::parts::Taker;
use crate::permissions::{ONLY_ADMINS, Permissions};
use crate::remote::Json;
use crate::session::Session;
use crate::table;

/// The rights that a verb needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// None: it shows public information, or waits for it.
    Nothing,
    /// Permissions from `zfs allow`, depending on the request.
    Delegated,
    /// Root or the daemon's user.
    All,
}

/// Whether a verb only reads, and shows no file contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// For any request.
    Always,
    /// Depends on the request ([`Verb::only_looks`]).
    Sometimes,
    /// It may change something, or show content.
    Never,
}

/// Where a verb runs with a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// In the daemon, unless its caller names disks.
    OnOpenPools,
    /// Always in the daemon.
    InDaemon,
    /// Depends on the command line.
    AsWordsSay,
    /// In the daemon, from a terminal or wrapper program only.
    AtTerminal,
}

/// A request and its execution. Request and answer travel to and from a daemon as JSON.
pub trait Verb: Serialize + DeserializeOwned + JsonSchema + Send + 'static {
    /// As typed: `zfs wait`.
    const NAME: &'static str;
    /// The right it needs.
    const NEEDS: Needs;
    /// Whether it only reads.
    const LOOKS: Looks;
    /// Where it runs.
    const RUNS: Runs = Runs::OnOpenPools;
    /// Whether it sees changes that no txg on disk has yet. This holds for files and the history; datasets
    /// and pools are those of the last txg.
    const SEES_ALL: bool = false;
    /// The answer.
    type Answer: Serialize + DeserializeOwned + JsonSchema;

    /// Whether this request only reads, and shows no file contents.
    fn only_looks(&self) -> bool {
        Self::LOOKS == Looks::Always
    }

    /// The permissions that a delegated caller needs. The default refuses.
    ///
    /// # Errors
    /// The right can't be delegated; the target is missing.
    fn permissions(&self, _session: &Session) -> impl Future<Output = Result<Permissions, ControlError>> {
        async { Err(Permissions::to(Self::NAME).denied()) }
    }

    /// Runs the verb. Dropping it early leaves nothing half done.
    ///
    /// # Errors
    /// See the verb.
    fn carry_out(
        self,
        session: &Session,
    ) -> impl Future<Output = Result<Answered<Self::Answer>, ControlError>>;
}

/// A verb whose answer comes in parts.
pub trait InParts: Verb {
    /// A part, of bounded size.
    type Part: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<T> {
    /// Answer.
    pub answer: T,
    /// The worst failure on the way, already reported.
    pub outcome: Outcome,
}

impl<T> From<T> for Answered<T> {
    fn from(answer: T) -> Answered<T> {
        Answered { answer, outcome: Outcome::Done }
    }
}

/// The result of a verb without an answer.
impl From<Outcome> for Answered<()> {
    fn from(outcome: Outcome) -> Answered<()> {
        Answered { answer: (), outcome }
    }
}

impl Session {
    /// Runs a verb for the caller, here or in the daemon that holds the pools.
    ///
    /// # Errors
    /// Missing rights; an interrupt; errors of the verb.
    pub async fn run<V: Verb>(&self, request: V) -> Result<Answered<V::Answer>, ControlError> {
        let not_json = |error: serde_json::Error| {
            ControlError::Refused(format!("{}: request or answer of another version: {error}", V::NAME))
        };
        let request = serde_json::value::to_raw_value(&request).map_err(not_json)?;
        let (answer, outcome) = self.run_by_name(V::NAME, request).await?;
        Ok(Answered { answer: serde_json::from_slice(&answer).map_err(not_json)?, outcome })
    }

    /// By name, so that a verb's code is compiled once, for the table, and not again for each caller.
    fn run_by_name(
        &self,
        name: &'static str,
        request: Box<RawValue>,
    ) -> LocalBoxFuture<'_, Result<Json, ControlError>> {
        async move {
            if let Some(daemon) = self.daemon() {
                return self.ask(daemon, name, request).await;
            }
            let missing = || ControlError::Usage(format!("no verb '{name}'"));
            table::row_here(name).ok_or_else(missing)?.run(self, request.get().as_bytes()).await
        }
        .boxed_local()
    }

    pub(crate) async fn run_here<V: Verb>(&self, request: V) -> Result<Answered<V::Answer>, ControlError> {
        let only_looks = request.only_looks();
        self.only_looks.store(only_looks, Ordering::Relaxed);
        let checked = async {
            match (self.caller().rights, V::NEEDS) {
                (Rights::Look, _) if !only_looks => return Err(ControlError::MayOnlyLook),
                (Rights::All | Rights::Look, _) | (_, Needs::Nothing) => {}
                (Rights::Delegated, Needs::Delegated) => {
                    let permissions = request.permissions(self).await?;
                    if permissions.is_empty() && !only_looks {
                        return Err(permissions.denied());
                    }
                    permissions.check(&self.caller().who).await?;
                }
                (Rights::Delegated, Needs::All) => {
                    return Err(ControlError::Refused(ONLY_ADMINS.into()));
                }
            }
            request.carry_out(self).await
        };
        self.caller().until_cancelled(checked).await
    }

    /// Runs a verb whose answer comes in parts: `take` adds each to `all`.
    ///
    /// # Errors
    /// As [`Session::run`]; errors of `take`, which end the verb.
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

    /// Runs a verb on files opened by the caller: its request refers to them by index in `files`.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn run_with_files<V: Verb>(
        &self,
        request: V,
        files: Vec<OwnedFd>,
    ) -> Result<Answered<V::Answer>, ControlError> {
        self.bringing(files).run(request).await
    }

    /// The same session, with files opened by the caller.
    pub fn bringing(&self, files: Vec<OwnedFd>) -> Session {
        self.for_caller(self.caller().clone().bringing(files))
    }
}
