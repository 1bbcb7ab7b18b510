//! Opens the files of a request's stream.

use cenote_inspect::sent::{Sent, SentError};

use super::{Source, refused};
use crate::error::ControlError;
use crate::session::Session;

/// Opens the file system of the named snapshot, or the first one.
pub(super) async fn open(
    session: &Session,
    source: &Source,
    snapshot: Option<&str>,
) -> Result<Sent, ControlError> {
    let file = source.seekable(session)?;
    Sent::open(file, snapshot).await.map_err(|error| failed(source, error))
}

pub(super) fn failed(source: &Source, error: SentError) -> ControlError {
    match error {
        SentError::Stream(error) => source.failed(error),
        SentError::Fs(error) => error.into(),
        error => refused(format!("{}: {error}", source.name())),
    }
}
