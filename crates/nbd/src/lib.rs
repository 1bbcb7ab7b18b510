//! NBD, the protocol of network block devices.
//!
//! ```text
//!   client --> handshake: options, TLS, export --> transmission: concurrent requests --> Export
//! ```
//!
//! Read in this order: [`export`] (exports), [`wire`] (numbers and layouts), [`handshake`], [`transmission`].
//!
//! Supported: fixed newstyle negotiation, TLS, structured replies with holes, extended headers, block status,
//! FLUSH across connections, FUA, TRIM, WRITE_ZEROES, CACHE. Not supported: oldstyle negotiation,
//! NBD_CMD_RESIZE and block status with a payload, which no client known to us needs.
//!
//! Bounds: options of 64 KiB, payloads of 32 MiB; [`Limits`](cenote_disk::Limits) bounds the memory of all
//! connections together. A client that stalls in the middle of a message is disconnected.
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
