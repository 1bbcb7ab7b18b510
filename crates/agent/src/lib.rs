//! Looks after open pools by rules that an administrator wrote: scrubs and trims when they are due, SMART
//! data read and recorded, alerts when something goes wrong or is well again.
//!
//! ```text
//!   rules (TOML) ──> schedule: what is due ──> commands: zpool scrub, zpool trim
//!   zpool status, zpool list, smartctl ──> findings ──> alerts: once they last, again, when they end
//! ```
//!
//! Idea: the agent is an administrator who never sleeps. It sees what commands print and runs commands, so
//! that whatever it does can be done, and understood, by hand; `zpool history` has it all. What steps in at
//! once when a disk fails (hot spares, `autoreplace`, `autoexpand`) is not here: the engine's own tasks do
//! that.
//!
//! Read in this order: [`rules`], [`watch`] (what happens when), [`schedule`], [`findings`], [`smart`],
//! [`record`], [`alerts`].

mod alerts;
mod findings;
mod record;
pub mod rules;
mod schedule;
pub mod smart;
mod view;
pub mod watch;

pub use alerts::{Alert, Tell};
pub use rules::Rules;
pub use watch::keep_watch;
