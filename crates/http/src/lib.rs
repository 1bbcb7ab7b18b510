//! The daemon over HTTP: an API for every command, metrics, and a page.
//!
//! ```text
//!   /                     the page (static files; all it shows comes from the API)
//!   /v1/zfs/list ...      the command `zfs list`: fields become its options, its JSON the answer
//!   /v1/openapi.json      what commands there are, with their fields
//!   /metrics              counters for Prometheus, by the names that dashboards know
//! ```
//!
//! Idea: commands are values. The command line describes each command once (names, options, help); the API is
//! that description spoken over HTTP, so that a new command is in the API, and in its document, by itself.
//! A request runs the command in the daemon, exactly as the socket does.
//!
//! Read in this order: [`server`] (from a connection to an answer), [`access`] (who may do what), `room` (how
//! many commands run at a time),
//! [`catalogue`] (the commands), [`call`] (fields to a command line), [`answer`] and [`documents`] (its
//! output as an answer), [`openapi`], [`metrics`], [`page`].

pub mod access;
mod answer;
mod call;
pub mod catalogue;
mod documents;
pub mod metrics;
pub mod openapi;
mod page;
mod patient;
mod room;
pub mod server;

pub use access::{Access, Tokens};
pub use catalogue::{Catalogue, Input, Kind, Looks, Verb};
pub use server::HttpServer;
