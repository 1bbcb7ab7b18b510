//! `cenote stream dump`, `token` and `verify`: text about a stream.

use std::path::PathBuf;
use std::sync::Arc;

use cenote_control::stream::dump::{Dump as DumpRequest, Shown};
use cenote_control::stream::token::Token as TokenRequest;
use cenote_control::stream::verify::{Finding, Verify as VerifyRequest};
use cenote_shown::output::Output;
use cenote_shown::stream;
use clap::{ArgAction, Args};
use parking_lot::Mutex;

use super::source;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, Stdout, stdout};

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
        let out = Arc::new(Mutex::new(Some(Output::new(stdout(), session.json()))));
        let take = |out: &mut Option<Output<Stdout>>, text: String| match out {
            Some(out @ Output::Text(_)) => out.element(|| text, || ()),
            Some(out) => text.lines().try_for_each(|line| out.element(String::new, || line)),
            None => Ok(()),
        };
        let answered = session.control().bringing(files).run_in_parts(request, &out, take).await;
        let out = out.lock().take();
        let outcome = answered?.outcome;
        out.map_or(Ok(()), Output::end)?;
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
        session.show(|| answered.answer.text(), || &answered.answer)?;
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
        let out = Arc::new(Mutex::new(Some(Output::new(stdout(), session.json()))));
        let take = |out: &mut Option<Output<Stdout>>, finding: Finding| match out {
            Some(out) => out.element(|| format!("{finding}\n"), || &finding),
            None => Ok(()),
        };
        let request = VerifyRequest { source };
        let answered = session.control().bringing(files).run_in_parts(request, &out, take).await;
        let out = out.lock().take();
        let answered = answered?;
        if let Some(mut out) = out {
            out.element(|| stream::verdict(&answered.answer), || &answered.answer)?;
            out.end()?;
        }
        Ok(answered.outcome)
    }
}
