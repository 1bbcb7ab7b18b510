//! `stream redup`: makes a deduplicated stream receivable.

use cenote_stream::filter::redup;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::filtered::failed;
use super::{Source, sink};
use crate::error::{ControlError, Outcome};
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// A `stream redup` request: a file to standard output.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Redup {
    /// The stream, a file.
    pub source: Source,
    /// `-v`: report the number of records.
    pub verbose: bool,
}

impl Verb for Redup {
    const NAME: &'static str = "stream redup";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// The stream is no file, or damaged.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let file = self.source.seekable(session)?;
        let done = redup(&file, sink(session)?).await.map_err(|error| failed(&self.source, error))?;
        if self.verbose {
            session.caller().note_bare(format!(
                "converted stream with {} total records, including {} dedup records of {} blocks.",
                done.records, done.references, done.blocks
            ));
        }
        Ok(Outcome::Done.into())
    }
}
