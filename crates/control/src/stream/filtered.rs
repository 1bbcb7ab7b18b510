//! Runs a filter from the request's stream to standard output.

use std::num::ParseIntError;

use cenote_format::units::ObjectId;
use cenote_stream::filter::{Change, FilterError, Place, filter};

use super::{Source, refused, sink};
use crate::error::{ControlError, Outcome};
use crate::session::Session;

/// Passes standard input through a change; with `verbose`, messages become notes.
pub(super) async fn filtered(
    session: &Session,
    change: Change,
    verbose: bool,
) -> Result<Outcome, ControlError> {
    let source = Source::default();
    let (input, output) = (source.once(session)?, sink(session)?);
    let caller = session.caller().clone();
    let mut note = move |text: String| {
        if verbose {
            caller.note_bare(text);
        }
    };
    match filter(session.runtime(), input, output, change, &mut note).await {
        Ok(()) => Ok(Outcome::Done),
        Err(error) => Err(failed(&source, error)),
    }
}

pub(super) fn failed(source: &Source, error: FilterError) -> ControlError {
    match error {
        FilterError::Stream(error) => source.failed(error),
        error => refused(format!("{}: {error}", source.name())),
    }
}

/// Reads OBJECT,OFFSET and what follows; numbers are decimal, or hexadecimal after 0x.
pub(super) fn place(typed: &str) -> Result<(Place, Option<&str>), ControlError> {
    let usage = |what: &str| ControlError::Usage(format!("'{typed}': {what}"));
    let mut parts = typed.splitn(3, ',');
    let (object, offset) = (parts.next().unwrap_or_default(), parts.next());
    let offset = offset.ok_or_else(|| usage("give OBJECT,OFFSET"))?;
    let object = number(object).map_err(|_| usage("invalid value for object"))?;
    let offset = number(offset).map_err(|_| usage("invalid value for offset"))?;
    Ok(((ObjectId(object), offset), parts.next()))
}

fn number(typed: &str) -> Result<u64, ParseIntError> {
    match typed.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => typed.parse(),
    }
}
