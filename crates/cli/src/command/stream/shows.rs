//! `cenote stream dump`, `token` and `verify`: text about a stream.

use std::path::PathBuf;
use std::sync::Arc;

use cenote_control::stream::dump::{Dump as DumpRequest, Shown};
use cenote_control::stream::token::Token as TokenRequest;
use cenote_control::stream::verify::{Finding, Verify as VerifyRequest};
use clap::{ArgAction, Args};
use parking_lot::Mutex;

use super::source;
use crate::outcome::{CliError, Outcome};
use crate::render::{counted, nice_bytes};
use crate::session::{JsonArray, Session, print, print_json};

/// `cenote stream dump`
#[derive(Debug, Args)]
#[command(
    after_help = "The text is that of `zstream dump`; with --json, an array of its lines. A damaged stream \
        is shown up to the defect, and the exit status is 1.\n\n\
        Example: cenote zfs send tank/home@monday | cenote stream dump -v"
)]
pub struct Dump {
    /// Ignore checksums
    #[arg(short = 'C')]
    pub unchecked: bool,
    /// Show every record; twice: with checksums
    #[arg(short = 'v', action = ArgAction::Count)]
    pub verbose: u8,
    /// Show every record's data too
    #[arg(short = 'd')]
    pub data: bool,
    /// The stream [default: standard input]
    pub file: Option<PathBuf>,
}

impl Dump {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (source, files) = source(self.file.as_deref())?;
        let shown = match (self.data, self.verbose) {
            (true, _) => Shown::Data,
            (_, 0) => Shown::Ends,
            (_, 1) => Shown::Records,
            _ => Shown::Sums,
        };
        let request = DumpRequest { source, shown, unchecked: self.unchecked };
        let lines = Arc::new(Mutex::new(session.json().then(JsonArray::new)));
        let take = |json: &mut Option<JsonArray>, text: String| match json {
            Some(json) => text.lines().try_for_each(|line| json.push(&line)),
            None => print(text),
        };
        let answered = session.control().bringing(files).run_in_parts(request, &lines, take).await;
        let json = lines.lock().take();
        let outcome = answered?.outcome;
        json.map_or(Ok(()), JsonArray::end)?;
        Ok(outcome)
    }
}

/// `cenote stream token`
#[derive(Debug, Args)]
#[command(
    after_help = "Example: cenote stream token $(cenote zfs get -Ho value receive_resume_token tank/home)"
)]
pub struct Token {
    /// The token, a value of receive_resume_token
    pub token: String,
}

impl Token {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let answered = session.control().run(TokenRequest { token: self.token }).await?;
        match session.json() {
            true => print_json(&answered.answer)?,
            false => print(answered.answer.text())?,
        }
        Ok(answered.outcome)
    }
}

/// `cenote stream verify`
#[derive(Debug, Args)]
#[command(
    after_help = "Checks every checksum; that objects and blocks ascend and do not overlap; sizes, places, \
        and that BEGIN declares what the stream uses; that compressed blocks decompress; and that an \
        increment's \
        source is older and comes before it. Encrypted blocks can't be looked into.\n\n\
        Each finding is a line; \"odd\" ones do not keep a stream from being received. Exit status: 0 no \
        finding but odd ones, 3 the stream is damaged.\n\n\
        Example: cenote stream verify /backup/home.zs"
)]
pub struct Verify {
    /// The stream [default: standard input]
    pub file: Option<PathBuf>,
}

impl Verify {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (source, files) = source(self.file.as_deref())?;
        let findings = Arc::new(Mutex::new(session.json().then(JsonArray::new)));
        let take = |json: &mut Option<JsonArray>, finding: Finding| match json {
            Some(json) => json.push(&finding),
            None => print(format!("{finding}\n")),
        };
        let request = VerifyRequest { source };
        let answered = session.control().bringing(files).run_in_parts(request, &findings, take).await;
        let json = findings.lock().take();
        let answered = answered?;
        let verified = answered.answer;
        match json {
            Some(mut json) => {
                json.push(&verified)?;
                json.end()?;
            }
            None => print(format!(
                "{} in {}, {}: {} wrong, {} odd\n",
                nice_bytes(verified.bytes),
                counted(verified.streams, "stream"),
                counted(verified.records, "record"),
                verified.wrong,
                verified.odd
            ))?,
        }
        Ok(answered.outcome)
    }
}
