//! Clients of volumes: one face for all protocols.
//!
//! ```text
//!   client --> Connection --NBD, iSCSI--> a stream in memory --> the server's session, as it ships
//!                         --virtio-blk--> a queue in memory  --> the device behind a vhost-user socket
//! ```
//!
//! Idea: a call is the same by every protocol, and so is its effect. Each protocol says it in several ways
//! (long and short commands, with and without a flag that makes it durable); the connection draws one.
//!
//! A server that breaks its protocol ends the world with a panic.

pub mod iscsi;
pub mod nbd;
pub mod vhost;

use std::io::Result;

use bytes::Bytes;
use cenote_fuse::Errno;

use super::daemon::Daemon;

/// The block of volumes by default. A part of one is not freed, so that a discard of it has no effect.
const VOLUME_BLOCK_BYTES: u64 = 16 << 10;

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // as their names say
pub enum Protocol {
    Nbd,
    Iscsi,
    Vhost,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Nbd, Protocol::Iscsi, Protocol::Vhost];
}

/// The answer to a request: data if it reads, or an error.
pub type Reply = std::result::Result<Bytes, Errno>;

/// A client's connection to a volume.
pub enum Connection {
    /// NBD.
    Nbd(nbd::Connection),
    /// iSCSI.
    Iscsi(Box<iscsi::Session>),
    /// vhost-user.
    Vhost(vhost::Guest),
}

/// Whether a range may be discarded instead of zeroed.
fn is_whole(offset: u64, len: u64) -> bool {
    offset.is_multiple_of(VOLUME_BLOCK_BYTES) && len.is_multiple_of(VOLUME_BLOCK_BYTES)
}

impl Connection {
    /// Connects to a volume; `None`: it is not served.
    pub async fn open(daemon: &Daemon, by: Protocol, volume: &str) -> Option<Connection> {
        match by {
            Protocol::Nbd => {
                let (stream, rng) = (daemon.connect(by), daemon.rng());
                let opened = nbd::Connection::open(stream, volume, rng).await.ok()??;
                Some(Connection::Nbd(opened))
            }
            Protocol::Iscsi => {
                let (stream, rng) = (daemon.connect(by), daemon.rng());
                let opened = iscsi::Session::open(stream, volume, rng).await.ok()??;
                Some(Connection::Iscsi(Box::new(opened)))
            }
            Protocol::Vhost => vhost::Guest::open(daemon, volume).await.map(Connection::Vhost),
        }
    }

    /// Reads.
    ///
    /// # Errors
    /// The connection ends; within: the volume's error.
    pub async fn read(&mut self, offset: u64, len: u64) -> Result<Reply> {
        match self {
            Connection::Nbd(connection) => connection.read(offset, len).await,
            Connection::Iscsi(session) => session.read(offset, len).await,
            Connection::Vhost(guest) => guest.read(offset, len).await,
        }
    }

    /// Writes; if `is_durable`, it is on disk before the answer.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn write(&mut self, offset: u64, data: &[u8], is_durable: bool) -> Result<Reply> {
        match self {
            Connection::Nbd(connection) => connection.write(offset, data, is_durable).await,
            Connection::Iscsi(session) => session.write(offset, data, is_durable).await,
            Connection::Vhost(guest) => guest.write(offset, data, is_durable).await,
        }
    }

    /// Zeroes.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn zero(&mut self, offset: u64, len: u64) -> Result<Reply> {
        match self {
            Connection::Nbd(connection) => connection.zero(offset, len).await,
            Connection::Iscsi(session) => session.zero(offset, len).await,
            Connection::Vhost(guest) => guest.zero(offset, len).await,
        }
    }

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn flush(&mut self) -> Result<Reply> {
        match self {
            Connection::Nbd(connection) => connection.flush().await,
            Connection::Iscsi(session) => session.flush().await,
            Connection::Vhost(guest) => guest.flush().await,
        }
    }
}
