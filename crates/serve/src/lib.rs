//! The entry points of a daemon: how programs and machines reach its pools.
//!
//! ```text
//!   hosts    --NBD, iSCSI, ublk, vhost-user--> volumes of `host`
//!   programs --socket------------------------> verbs of `control` (`Serving`)
//! ```
//!
//! Read in this order: [`socket`], [`requests`] and [`run`] (verbs), [`listen`] (admission and limits),
//! [`tls`], [`config`], [`sandbox`]; for volumes [`nbd`] with [`raw`], [`iscsi`], [`vhost`], [`ublk`].

pub mod config;
mod disk;
pub mod iscsi;
pub mod listen;
pub mod nbd;
pub mod raw;
pub mod requests;
pub mod run;
pub mod sandbox;
pub mod socket;
pub mod tls;
pub mod ublk;
pub mod vhost;
