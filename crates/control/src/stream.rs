//! `cenote stream`: send streams without a pool.
//!
//! ```text
//!   as zstream does     dump, token, decompress, recompress, drop-record, redup, raw
//!   beyond zstream      ls, cat, verify
//! ```
//!
//! Idea: these verbs run in their user's program even if a daemon runs ([`crate::table`]): a stream may come
//! from anywhere, and is read with its user's rights alone. The stream is a file that the caller opened, or
//! standard input; a changed stream goes to standard output.
//!
//! Source: OpenZFS `cmd/zstream`, zstream(8), of 2.3.2; `drop_record` and `raw` of 2.4.99.

pub mod cat;
pub mod decompress;
pub mod drop_record;
pub mod dump;
mod filtered;
pub mod ls;
pub mod raw;
pub mod recompress;
pub mod redup;
mod sent;
pub mod token;
pub mod verify;

use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::fs::FileExt;

use cenote_inspect::InspectError;
use cenote_stream::{StreamError, StreamFile};
use rustix::fs::{FileType, fstat};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, BufWriter};

use crate::error::ControlError;
use crate::pipe::{Inlet, Outlet};
use crate::session::Session;

const BUFFER_BYTES: usize = 256 << 10;

/// The stream of a request.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Source {
    /// The file's name in messages: it is the request's first file. None: standard input.
    pub file: Option<String>,
}

impl Source {
    fn name(&self) -> &str {
        self.file.as_deref().unwrap_or("standard input")
    }

    fn open(&self, session: &Session) -> Result<File, ControlError> {
        let caller = session.caller();
        let file = match &self.file {
            Some(_) => File::from(caller.file(0)?),
            None => caller.console.stream().map_err(ControlError::io("standard input"))?,
        };
        match file.is_terminal() {
            true => Err(refused(
                "Error: The send stream is a binary format and can not be read from a\nterminal.  Standard \
                 input must be redirected, or a file must be\nspecified as a command-line argument.",
            )),
            false => Ok(file),
        }
    }

    /// The stream, to be read once.
    fn once(&self, session: &Session) -> Result<Box<dyn AsyncRead + Send + Unpin>, ControlError> {
        let file = self.open(session)?;
        // The user's program ends by Ctrl-C itself.
        let inlet = Inlet::new(file, Box::pin(std::future::pending()));
        let inlet = inlet.map_err(ControlError::io(self.name()))?;
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, inlet)))
    }

    /// The stream, to be read at any place.
    fn seekable(&self, session: &Session) -> Result<StreamFile, ControlError> {
        let file = self.open(session)?;
        let stat = fstat(&file).map_err(|errno| ControlError::io(self.name())(errno.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::BlockDevice => {
                Ok(StreamFile::new(move |at, buffer| file.read_at(buffer, at)))
            }
            _ => Err(refused(format!(
                "{}: the stream is read twice, so it must be in a file: save it and give the file's name",
                self.name()
            ))),
        }
    }

    fn failed(&self, error: StreamError) -> ControlError {
        match error {
            StreamError::Write(source) => InspectError::io("standard output")(source).into(),
            StreamError::Read(source) => InspectError::io(self.name())(source).into(),
            error => refused(format!("{}: {error}", self.name())),
        }
    }

    fn stopped(&self, stopped: Stopped) -> ControlError {
        match stopped {
            Stopped::Caller(error) => error,
            Stopped::Stream(error) => self.failed(error),
        }
    }
}

/// The cause of an early end.
enum Stopped {
    /// The caller takes no more.
    Caller(ControlError),
    Stream(StreamError),
}

impl From<StreamError> for Stopped {
    fn from(error: StreamError) -> Stopped {
        Stopped::Stream(error)
    }
}

/// Standard output, for a stream.
fn sink(session: &Session) -> Result<Box<dyn AsyncWrite + Send + Unpin>, ControlError> {
    let output = session.caller().console.output().map_err(ControlError::io("standard output"))?;
    if output.is_terminal() {
        return Err(refused(
            "Error: Stream can not be written to a terminal.\nYou must redirect standard output.",
        ));
    }
    let outlet = Outlet::new(output).map_err(ControlError::io("standard output"))?;
    Ok(Box::new(BufWriter::with_capacity(BUFFER_BYTES, outlet)))
}

fn refused(text: impl Into<String>) -> ControlError {
    ControlError::Refused(text.into())
}
