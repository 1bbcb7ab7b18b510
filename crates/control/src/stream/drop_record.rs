//! `stream drop-record`: leaves named blocks out of a stream.

use std::collections::HashSet;

use cenote_stream::filter::drop_records;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::filtered::{filtered, place};
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// A `stream drop-record` request: standard input to standard output.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DropRecord {
    /// OBJECT,OFFSET.
    pub records: Vec<String>,
    /// `-v`: report each record.
    pub verbose: bool,
}

impl Verb for DropRecord {
    const NAME: &'static str = "stream drop-record";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// A record's name can't be read; the stream is damaged.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let records = self.records.iter().map(|typed| match place(typed)? {
            (place, None) => Ok(place),
            _ => Err(ControlError::Usage(format!("'{typed}': give OBJECT,OFFSET"))),
        });
        let records = records.collect::<Result<HashSet<_>, ControlError>>()?;
        Ok(filtered(session, drop_records(records), self.verbose).await?.into())
    }
}
