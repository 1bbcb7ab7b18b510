//! Command line of `cenote cat`.

use cenote_control::files::cat::Cat as Request;
use cenote_control::text::parse_bytes;

use super::Cat;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

impl Cat {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let bytes = |text: Option<&String>, option: &str| match text {
            None => Ok(None),
            Some(text) => parse_bytes(text).map(Some).ok_or_else(|| {
                CliError::Usage(format!("{option} {text}: give bytes, for example 4096 or 1M"))
            }),
        };
        let request = Request {
            start_bytes: bytes(self.offset.as_ref(), "--offset")?.unwrap_or(0),
            length_bytes: bytes(self.length.as_ref(), "--length")?,
            targets: self.targets,
        };
        Ok(session.control().run(request).await?.outcome)
    }
}
