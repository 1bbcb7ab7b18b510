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
//! [`Limits`](cenote_disk::Limits) allows. A client that stalls in the middle of a message is disconnected.
//!
//! Source: the NBD project's `doc/proto.md`, of 2025.
#![forbid(unsafe_code)]

pub mod export;
pub mod handshake;
pub mod transmission;
pub mod wire;

pub use export::{Export, Exports, Extent, Listed};
pub use handshake::{Chosen, Handshake, Offer};
pub use transmission::transmit;
