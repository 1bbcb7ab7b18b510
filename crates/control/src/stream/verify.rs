//! `stream verify`: checks a stream without a pool.

use cenote_stream::StreamReader;
use cenote_stream::verify::verify;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cenote_stream::verify::{Finding, Severity, Verified};

use super::{Source, Stopped};
use crate::error::{ControlError, Outcome};
use crate::parts::Part;
use crate::session::Session;
use crate::verb::{Answered, InParts, Looks, Needs, Verb};

/// A `stream verify` request.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Verify {
    /// The stream.
    pub source: Source,
}

impl InParts for Verify {
    type Part = Finding;
}

impl Verb for Verify {
    const NAME: &'static str = "stream verify";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Never;
    type Answer = Verified;

    /// # Errors
    /// No stream.
    async fn carry_out(self, session: &Session) -> Result<Answered<Verified>, ControlError> {
        let mut reader = StreamReader::new(self.source.once(session)?);
        let give = |finding: Finding| session.caller().give(Part::of(finding)).map_err(Stopped::Caller);
        let answer = verify(&mut reader, give).await.map_err(|stopped| self.source.stopped(stopped))?;
        let outcome = if answer.wrong > 0 { Outcome::Damaged } else { Outcome::Done };
        Ok(Answered { answer, outcome })
    }
}
