//! The verbs, as functions from requests to answers.
//!
//! ```text
//!   command line --\                                        /--> pools that a daemon holds (`host`)
//!   HTTP ----------- Request --> verb --> Answer, notes  ---
//!   agent, metrics -/            Caller                     \--> disks, for a verb without a daemon
//! ```
//!
//! Idea: a verb takes a value and returns one. Layers above this crate parse words into requests and render
//! answers as text or JSON. So every client runs a request alike, in its own program or in a daemon, and no
//! part of the daemon parses text printed by another. The caller is an argument ([`Caller`]), never a
//! property of a thread.
//!
//! Read in this order: [`verb`], [`table`], [`caller`], [`permissions`], [`session`] (the context of a verb),
//! [`error`], [`parts`] (long answers), [`remote`] (verbs that a daemon runs for this program); then a verb,
//! such as [`zfs::wait`].

pub mod answers;
pub mod caller;
pub mod error;
pub mod files;
pub mod inspect;
pub mod parts;
pub mod permissions;
pub mod remote;
pub mod replicate;
pub mod running;
pub mod session;
pub mod stream;
pub mod table;
pub mod text;
pub mod users;
pub mod verb;
pub mod volume;
pub mod zfs;
pub mod zpool;

pub use caller::{Caller, Console, Input, Note, Progress, Rights};
pub(crate) use caller::{pipe, progress};
pub use error::{ControlError, Outcome, refusal};
pub use session::{Options, Session, State, for_history};
pub use verb::{Answered, Needs, Verb};
