//! Verbs that a daemon runs for this program: the messages exchanged, for any transport.
//!
//! ```text
//!   client                                         daemon
//!   Asking {verb, request, keys, command}  ---->   the verb's entry in the table, with the caller's rights
//!                                          <----   notes, progress   (shown by the client's console)
//!                                          <----   the answer as JSON, or a failure
//! ```
//!
//! Source: none; `docs/protocol.md` describes the transport over the daemon's socket.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::caller::{Caller, CountedFiles, Note, Progress};
use crate::error::{ControlError, Outcome};
use crate::session::{GivenKeys, Session};

/// An answer as JSON, and the verb's outcome.
pub type Json = (Vec<u8>, Outcome);

/// A client's request to a daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Asking {
    /// Verb's name.
    pub verb: String,
    /// Request.
    pub request: Box<RawValue>,
    /// Dataset keys given to the client.
    #[serde(default)]
    pub keys: GivenKeys,
    /// The command for the pool's history, without keys.
    pub command: String,
}

/// A message to the client of a running verb.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Told {
    /// Note.
    Note(Note),
    /// Progress; none: the work ended.
    Progress(Option<Share>),
    /// Files seen so far; none: the work ended.
    Counted(Option<Met>),
}

impl Told {
    /// Progress, as a console gets it.
    pub fn progress(now: Option<Progress<'_>>) -> Told {
        Told::Progress(now.map(|Progress { what, done_bytes, total_bytes }| Share {
            what: what.to_owned(),
            done_bytes,
            total_bytes,
        }))
    }

    /// Files seen so far, as a console gets them.
    pub fn counted(now: Option<CountedFiles<'_>>) -> Told {
        Told::Counted(now.map(|CountedFiles { what, files }| Met { what: what.to_owned(), files }))
    }
}

/// Progress of long work.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Share {
    /// Operation.
    pub what: String,
    /// Bytes done.
    pub done_bytes: u64,
    /// Total bytes.
    pub total_bytes: u64,
}

/// Files seen so far.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Met {
    /// Where.
    pub what: String,
    /// How many.
    pub files: u64,
}

/// Why a verb failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Failure {
    /// The failure, its cause, and advice.
    pub text: String,
    /// See [`crate::Outcome::status`].
    pub status: u8,
}

/// Most answers come this soon. Until then the caller's own thread waits: starting another costs a fifth of a
/// short command's time.
const SOON: Duration = Duration::from_millis(20);

/// A daemon that runs verbs for this program.
pub trait Daemon: Send + Sync {
    /// Sends a request.
    ///
    /// # Errors
    /// Loss of the daemon.
    fn ask(&self, asking: &Asking, caller: &Caller) -> Result<Box<dyn Answering>, ControlError>;

    /// Cancels the verb that runs for this program.
    fn cancel(&self);
}

/// A daemon's answer to a request.
pub trait Answering: Send {
    /// Waits for the answer; messages go to the caller's console meanwhile. `Ok(None)`: it is not complete
    /// after `patience`; call again for the rest.
    ///
    /// # Errors
    /// Errors of the verb; loss of the daemon.
    fn wait(&mut self, caller: &Caller, patience: Option<Duration>) -> Result<Option<Json>, ControlError>;
}

impl From<&ControlError> for Failure {
    fn from(error: &ControlError) -> Failure {
        Failure { text: error.text_about(""), status: error.outcome().status() }
    }
}

impl Session {
    /// A function that cancels the verb that a daemon runs for this program.
    pub fn ender(&self) -> impl Fn() + Send + 'static {
        let daemon = self.daemon().cloned();
        move || daemon.iter().for_each(|daemon| daemon.cancel())
    }

    pub(crate) async fn ask(
        &self,
        daemon: &Arc<dyn Daemon>,
        verb: &str,
        request: Box<RawValue>,
    ) -> Result<Json, ControlError> {
        let asking = Asking {
            verb: verb.into(),
            request,
            keys: self.options().keys.clone(),
            command: self.command_line().into(),
        };
        let mut answering = daemon.ask(&asking, self.caller())?;
        if let Some(answer) = answering.wait(self.caller(), Some(SOON))? {
            return Ok(answer);
        }
        let asked = {
            let caller = self.caller().clone();
            self.runtime().blocking(move || {
                loop {
                    if let Some(answer) = answering.wait(&caller, None)? {
                        return Ok(answer);
                    }
                }
            })
        };
        let mut asked = std::pin::pin!(asked);
        loop {
            tokio::select! {
                biased;
                answered = &mut asked => return answered,
                () = self.caller().interrupted() => daemon.cancel(),
            }
        }
    }
}
