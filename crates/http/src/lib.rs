//! The daemon's HTTP server: an API for every command, metrics, and a web page.
//!
//! ```text
//!   /                     the page (static files; its data comes from the API)
//!   /v1/zfs/list ...      the command `zfs list`: fields are its options, the answer is its JSON output
//!   /v1/openapi.json      description of all commands and fields
//!   /metrics              Prometheus metrics, under the names that dashboards use
//! ```
//!
//! Idea: commands are data. The command line describes each command once (names, options, help), and the API
//! is derived from that description. So a new command appears in the API and in its document by itself. A
//! request runs its command in the daemon, exactly as the socket does.
//!
//! Read in this order: [`server`] (from connection to answer), [`access`] (tokens and roles), `room`
//! (concurrent commands), [`catalogue`] (commands), [`call`] (fields to a command line), [`answer`] and
//! [`documents`] (output to an answer), [`openapi`], [`metrics`], [`page`].

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
