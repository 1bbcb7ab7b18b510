//! Errors of connections: one flat enum. Texts of servers are cut and cleaned before they become part of one.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Longest part of a server's message.
const MESSAGE_CHARS_MAX: usize = 200;

/// Why a server's disk can't be used.
#[derive(Debug, Clone, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum NbdError {
    #[error("cannot connect: {0}; is the server running, and the port open?")]
    Connect(Arc<io::Error>),
    #[error("the connection ended: {0}")]
    Lost(Arc<io::Error>),
    #[error("the server has not answered for {} s", since.as_secs())]
    Silent { since: Duration },
    #[error("the server does not speak the protocol: {0}")]
    Protocol(&'static str),
    #[error("the server does not serve the export: {why}")]
    Refused { why: String },
    #[error("the server serves within TLS only: use nbds://")]
    OnlyTls,
    #[error("the server refuses TLS: {why}")]
    NoTls { why: String },
    #[error("TLS failed: {0}; does ca-cert.pem belong to the server, and does it want a client certificate?")]
    Tls(Arc<io::Error>),
    #[error("{}: {why}", file.display())]
    Certificates { file: PathBuf, why: String },
    #[error("the server does not know NBD_OPT_GO (protocol of 2016)")]
    TooOld,
    #[error("the export is read-only")]
    ReadOnly,
    #[error("the server can't flush the export, so nothing written to it would be safe")]
    NoFlush,
    #[error("the export's smallest block has {0} bytes: more than a pool can use")]
    Blocks(u32),
    #[error("the export has shrunk from {before} to {now} bytes")]
    Shrunk { before: u64, now: u64 },
    #[error("the export offers less than before it was lost")]
    Changed,
    #[error("the server is ending")]
    Ending,
    #[error("no connection for {} s, the last time because: {why}", since.as_secs())]
    GivenUp { since: Duration, why: Arc<NbdError> },
    #[error("the server was away, and may have lost answered writes: more than are kept for repetition")]
    UnflushedLost,
}

impl From<NbdError> for io::Error {
    fn from(error: NbdError) -> io::Error {
        let kind = match &error {
            NbdError::Silent { .. } | NbdError::GivenUp { .. } => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl From<io::Error> for NbdError {
    fn from(error: io::Error) -> NbdError {
        NbdError::Lost(Arc::new(error))
    }
}

impl From<cenote_disk::Ended> for NbdError {
    fn from(ended: cenote_disk::Ended) -> NbdError {
        match ended {
            cenote_disk::Ended::Io(error) => error.into(),
            cenote_disk::Ended::Protocol(_) => io::Error::from(io::ErrorKind::UnexpectedEof).into(),
            cenote_disk::Ended::Stalled => io::Error::from(io::ErrorKind::TimedOut).into(),
        }
    }
}

/// A server's message, for messages of this program.
pub(crate) fn cleaned(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let clean: String = clean.take(MESSAGE_CHARS_MAX).collect();
    if clean.is_empty() { "no reason given".into() } else { clean }
}
