//! NBD, the protocol of network block devices.
//!
//! ```text
//!   client --> handshake: options, TLS, which export --> transmission: requests, many at once --> Export
//! ```
//!
//! Read in this order: [`export`] (what is served), [`wire`] (numbers and layouts), [`handshake`],
//! [`transmission`].
//!
//! Offered: fixed newstyle negotiation, TLS, structured replies with holes, extended headers, block status,
//! FLUSH over all connections, FUA, TRIM, WRITE_ZEROES, CACHE. Not offered: oldstyle negotiation,
//! NBD_CMD_RESIZE and block status with a payload, which no client that we know of needs.
//!
//! Bounds: options of 64 KiB, payloads of 32 MiB, and for all connections together the memory that
//! [`Limits`] allows. A client that stalls in the middle of a message is disconnected.
//!
//! Source: the NBD project's `doc/proto.md`, of 2025.
#![forbid(unsafe_code)]

pub mod export;
pub mod handshake;
mod limits;
pub mod transmission;
pub mod wire;

pub use export::{Errno, Export, Exports, Extent, Failure, Listed};
pub use handshake::{Chosen, Handshake, Offer};
pub use limits::Limits;
pub use transmission::transmit;

use std::io;
use tokio::io::{AsyncRead, AsyncWrite};

/// What both sides talk over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why a connection ended before the client said so.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum Ended {
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("the client does not speak the protocol: {0}")]
    Protocol(&'static str),
    #[error("the client stalled in the middle of a message")]
    Stalled,
}

/// How a connection came to its end, or what failed.
pub type Result<T> = std::result::Result<T, Ended>;
