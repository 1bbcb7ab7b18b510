//! Errors of servers: one flat enum. Texts of servers are cut and cleaned before they become part of one.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Longest part of a server's message.
const MESSAGE_CHARS_MAX: usize = 200;

/// Why a server's disk can't be used.
#[derive(Debug, Clone, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum ServerError {
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
    #[error("the disk is read-only")]
    ReadOnly,
    #[error("the server can't flush the disk, so nothing written to it would be safe")]
    NoFlush,
    #[error("the disk's smallest block has {0} bytes: more than a pool can use")]
    Blocks(u32),
    #[error("the disk has shrunk from {before} to {now} bytes")]
    Shrunk { before: u64, now: u64 },
    #[error("the disk offers less than before it was lost")]
    Changed,
    #[error("{}: {why}", file.display())]
    Secrets { file: PathBuf, why: String },
    #[error("the target does not let this machine in: it wants another name or secret (CHAP), or none")]
    Authentication,
    #[error("the target does not know its own secret: it may be an impostor")]
    Impostor,
    #[error("the target has moved to {address}: use that address")]
    Moved { address: String },
    #[error("the target refuses the login: {why} (status {status:#06x})")]
    Login { status: u16, why: &'static str },
    #[error("the target has no disk with this number")]
    NoDisk,
    #[error("the target does not describe the disk: {what} fails")]
    Description { what: &'static str },
    #[error("the target refuses a reservation: {why}")]
    Reservation { why: String },
    #[error("is locked by {holder}")]
    Locked { holder: String },
    #[error("the target was reset, and may have lost answered writes")]
    Reset,
    #[error("the server is ending")]
    Ending,
    #[error("no connection for {} s, the last time because: {why}", since.as_secs())]
    GivenUp { since: Duration, why: Arc<ServerError> },
    #[error("{why}")]
    Fenced { why: Arc<str> },
    #[error("the server was away, and may have lost answered writes: more than are kept for repetition")]
    UnflushedLost,
}

impl From<ServerError> for io::Error {
    fn from(error: ServerError) -> io::Error {
        let kind = match &error {
            ServerError::Silent { .. } | ServerError::GivenUp { .. } => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl From<io::Error> for ServerError {
    fn from(error: io::Error) -> ServerError {
        ServerError::Lost(Arc::new(error))
    }
}

impl From<cenote_disk::Ended> for ServerError {
    fn from(ended: cenote_disk::Ended) -> ServerError {
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
