//! Verbs that a daemon runs for this program: what goes there and comes back, whatever carries it.
//!
//! ```text
//!   client                                         daemon
//!   Asking {verb, request, keys, command}  ---->   the verb's entry in the table, with the caller's rights
//!                                          <----   notes, progress   (shown by the client's console)
//!                                          <----   the answer as JSON, or a failure
//! ```
//!
//! Source: none; `docs/protocol.md` describes how it is carried over the daemon's socket.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::caller::{Caller, Note};
use crate::error::ControlError;
use crate::session::{GivenKeys, Session};
use crate::table::Json;
use crate::verb::{Answered, Verb};

/// What a client asks a daemon for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Asking {
    /// The verb's name.
    pub verb: String,
    /// Its request.
    pub request: Box<serde_json::value::RawValue>,
    /// Keys of datasets that the client was given.
    #[serde(default)]
    pub keys: GivenKeys,
    /// As the pool's history records it, without keys.
    pub command: String,
}

/// What a client is told while its verb runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Told {
    /// Something to be said.
    Note(Note),
    /// How far it is; none: long work has ended.
    Progress(Option<Share>),
    /// How many files were met; none: that work has ended.
    Counted(Option<Met>),
}

/// How far long work is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Share {
    /// What is being done.
    pub what: String,
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Files that were met so far.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Met {
    /// Where.
    pub what: String,
    /// How many.
    pub files: u64,
}

/// Why a verb failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What failed, why, and what to try next.
    pub text: String,
    /// As of [`crate::Outcome::status`].
    pub status: u8,
}

/// A daemon that runs verbs for this program.
pub trait Daemon: Send + Sync {
    /// Hands it a request, and waits for the answer; what it says meanwhile goes to the caller's console.
    ///
    /// # Errors
    /// The verb's; the daemon went away.
    fn ask(&self, asking: &Asking, caller: &Caller) -> Result<Json, ControlError>;

    /// Asks for the end of what it does for this program.
    fn cancel(&self);
}

impl From<&ControlError> for Failure {
    fn from(error: &ControlError) -> Failure {
        Failure { text: error.text_about(""), status: error.outcome().status() }
    }
}

impl Session {
    /// What asks for the end of the verb that a daemon runs for this program.
    pub fn ender(&self) -> impl Fn() + Send + 'static {
        let daemon = self.daemon().cloned();
        move || daemon.iter().for_each(|daemon| daemon.cancel())
    }

    pub(crate) async fn ask<V: Verb>(
        &self,
        daemon: &Arc<dyn Daemon>,
        request: V,
    ) -> Result<Answered<V::Answer>, ControlError> {
        let broken = |error: serde_json::Error| {
            ControlError::Refused(format!("the daemon is of another version: {error}"))
        };
        let asking = Asking {
            verb: V::NAME.into(),
            request: serde_json::value::to_raw_value(&request).map_err(broken)?,
            keys: self.options().keys.clone(),
            command: self.command_line().into(),
        };
        let asked = {
            let (daemon, caller) = (daemon.clone(), self.caller().clone());
            self.runtime().blocking(move || daemon.ask(&asking, &caller))
        };
        let mut asked = std::pin::pin!(asked);
        let (answer, outcome) = loop {
            tokio::select! {
                biased;
                answered = &mut asked => break answered?,
                () = self.caller().interrupted() => daemon.cancel(),
            }
        };
        let answer = serde_json::from_slice(&answer).map_err(broken)?;
        Ok(Answered { answer, outcome })
    }
}
