//! An iSCSI target: disks for those who speak SCSI over TCP.
//!
//! ```text
//!   connection --> login: who, which target --> session: commands, many at once --> SCSI --> Unit (a Disk)
//!                                               one Lun for all sessions: reservations, attentions
//! ```
//!
//! Read in this order: [`target`] (what is served, to whom), [`pdu`] and [`text`] (messages), [`login`] with
//! [`chap`], [`session`] with [`tasks`] (and the data of writes) and `send`, [`lun`] (what sessions share),
//! [`scsi`] and below it the commands.
//!
//! Offered: discovery, CHAP in one direction and both, digests, immediate and unsolicited data, task
//! management, all commands of SBC-3 that hosts ask for, persistent reservations. Not offered, because nobody
//! uses them: several connections in a session, error recovery above level 0, markers.
//!
//! Bounds: for each connection 128 commands, 8 MiB of data that came unasked, 64 MiB in flight, and for all
//! together what [`Limits`](cenote_disk::Limits) allows. A client that stalls is disconnected.
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
