//! `stream dump`: shows a stream's records, as `zstream dump`.

use cenote_stream::dump::{Detail, Dump as Dumper};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Source, Stopped};
use crate::error::{ControlError, Outcome};
use crate::parts::Part;
use crate::session::Session;
use crate::verb::{Answered, InParts, Looks, Needs, Verb};

/// A `stream dump` request.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Dump {
    /// The stream.
    pub source: Source,
    /// Parts to show.
    pub shown: Shown,
    /// `-C`: ignore checksums.
    pub unchecked: bool,
}

/// The shown parts of a stream, each with those before it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// Begin, end and totals.
    #[default]
    Ends,
    /// `-v`: records.
    Records,
    /// `-vv`: their checksums.
    Sums,
    /// `-d`: their payloads.
    Data,
}

impl InParts for Dump {
    /// Lines.
    type Part = String;
}

impl Verb for Dump {
    const NAME: &'static str = "stream dump";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No stream. A defect is reported after the records before it.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let mut input = self.source.once(session)?;
        let detail = match self.shown {
            Shown::Ends => Detail::Ends,
            Shown::Records => Detail::Records,
            Shown::Sums => Detail::Sums,
            Shown::Data => Detail::Data,
        };
        let give = |text: String| session.caller().give(Part::of(text)).map_err(Stopped::Caller);
        let dumped = Dumper::new(detail, !self.unchecked).read(&mut *input, give).await;
        let defect = dumped.map_err(|stopped| self.source.stopped(stopped))?;
        Ok(match defect {
            None => Outcome::Done.into(),
            Some(defect) => session.caller().tell("", &self.source.failed(defect)).into(),
        })
    }
}
