//! An iSCSI target: serves disks to hosts as SCSI over TCP.
//!
//! ```text
//!   connection --> login: account, target --> session: concurrent commands --> SCSI --> Unit (a Disk)
//!                                               one Lun for all sessions: reservations, attentions
//! ```
//!
//! Read in this order: [`target`] (served disks, accounts), [`pdu`] and [`text`] (messages), [`login`] with
//! [`chap`], [`session`] with [`tasks`] (and the data of writes) and `send`, [`lun`] (state that sessions
//! share), [`scsi`] and its command modules.
//!
//! Supported: discovery, one-way and mutual CHAP, digests, immediate and unsolicited data, task management,
//! all SBC-3 commands that hosts send, persistent reservations. Not supported, because hosts do not use them:
//! several connections per session, error recovery above level 0, markers.
//!
//! Bounds: each connection has at most 128 commands, 8 MiB of unsolicited data and 64 MiB in flight;
//! [`Limits`](cenote_disk::Limits) bounds all connections together. A client that stalls is disconnected.
//!
//! Source: RFC 7143; SAM-5, SPC-4 and SBC-3 of T10.
#![forbid(unsafe_code)]

pub mod chap;
pub mod login;
pub mod lun;
pub mod pdu;
pub mod scsi;
mod send;
pub mod session;
pub mod target;
pub mod tasks;
pub mod text;

pub use login::turn_away;
pub use lun::Luns;
pub use session::{Visit, serve};
pub use target::{Account, Accounts, Identity, Portal, Targets, Unit, Units};
