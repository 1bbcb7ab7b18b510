//! Looks after open pools by an administrator's rules: starts scrubs and trims when due, records SMART data,
//! keeps copies up to date, and sends alerts when a problem begins or ends.
//!
//! ```text
//!   rules (TOML) ──> schedule: due work ──> verbs: zpool scrub, zpool trim
//!                └─> replication: `cenote replicate`
//!   zpool status, zpool list, smartctl ──> findings ──> alerts: once they last, again, when they end
//! ```
//!
//! Idea: the agent runs an administrator's verbs, so each step can be repeated and understood by hand; `zpool
//! history` lists them. Immediate reactions to a failed disk (hot spares, `autoreplace`, `autoexpand`) are
//! tasks of the engine.
//!
//! Read in this order: [`rules`], [`watch`] (the main loop), [`commands`], [`schedule`], [`findings`],
//! [`smart`], [`record`], [`replication`], [`alerts`], [`webhook`].

mod alerts;
mod commands;
mod findings;
mod record;
mod replication;
pub mod rules;
mod schedule;
pub mod smart;
pub mod watch;
mod webhook;

pub use alerts::{Alert, Tell};
pub use commands::Commands;
pub use replication::Program;
pub use rules::Rules;
pub use watch::keep_watch;
pub use webhook::Webhook;
